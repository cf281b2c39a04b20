"""Launchers: choose the kernels for the number of images and boxes, allocate, launch."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tallybox.counter.cuda import lanes, tiles_backward, tiles_forward
from tallybox.counter.cuda.activations import weight_gradient_kernel
from tallybox.kernels.cuda import Arguments, Launch, given_or_any, launch_now
from tallybox.kernels.operators import Inputs

# Few boxes in many images: an image gets a lane of a warp, which walks it alone, about N³ steps. Otherwise it gets a
# block of threads. On an H200 lanes won from 4,096 images of 10 boxes on, not at 1,024, and not at 8,192 of 16.
MAX_BOXES_IN_A_LANE = 16
MIN_IMAGES_FOR_LANES = 2.5  # times N³
LANES = 32
TILE = 16
FORWARD_WARPS = 8
GRADIENT_WARPS = 4

# A block that sums weight gradients over several images writes fewer partial sums.
MAX_IMAGES_PER_BLOCK = 16
BLOCKS_WANTED = 4096

# The sums of so many blocks are added up at once.
BLOCKS_SUMMED = 256


def fits_lanes(images: int, number: int) -> bool:
    """Whether there are images enough, and boxes few enough, for a lane to count each of them."""
    return number <= MAX_BOXES_IN_A_LANE and images >= MIN_IMAGES_FOR_LANES * number**3


def state_size(inputs: Inputs, save_state: bool) -> int:
    """Return how many numbers are saved, see `saved_image`; the forward kernel needs them itself."""
    images, number, counters, segments = _sizes(inputs)
    return images * (2 + number + 2 * number**2) + counters * 16 * segments


def forward(inputs: Inputs, results: Sequence[Tensor], state: Tensor, launch: Launch = launch_now) -> None:
    """Write features, count and the saved state."""
    images, number, counters, segments = _sizes(inputs)
    attention, boxes, mask, (weight,), max_objects, _ = inputs
    tensors = (attention, boxes, given_or_any(mask, attention), weight, *results, state)
    of_counter = images // counters
    functions = (segments, _power_of_two(segments))
    if fits_lanes(images, number):
        blocks = -(-of_counter // LANES)
        arguments: Arguments = (*tensors, images, of_counter, blocks, max_objects, number)
        constants: Arguments = (mask is not None, *functions, LANES)
        launch(lanes.count_forward_kernel, counters * blocks, arguments, constants, num_warps=1)
    else:
        arguments, constants = (*tensors, images, of_counter, number, max_objects), (mask is not None, *functions, TILE)
        launch(tiles_forward.count_forward_kernel, images, arguments, constants, num_warps=FORWARD_WARPS)


def backward(
    inputs: Inputs, state: Tensor, grads: Sequence[Tensor | None], boxes_need_grad: bool, launch: Launch = launch_now
) -> list[Tensor]:
    """Return the gradients of attention, boxes and weight; they share their work, so boxes always get theirs."""
    images, number, counters, segments = _sizes(inputs)
    weight = inputs.weights[0]
    gradients = [torch.empty_like(tensor) for tensor in (inputs.attention, inputs.boxes, weight)]
    family = _lanes_backward if fits_lanes(images, number) else _tiles_backward
    partial = family(inputs, state, grads, gradients, launch)
    arguments = (weight, partial, gradients[2], len(partial) // counters)
    constants = (segments, _power_of_two(segments), BLOCKS_SUMMED)
    launch(weight_gradient_kernel, counters * 8, arguments, constants, num_warps=GRADIENT_WARPS)
    return gradients


def _lanes_backward(
    inputs: Inputs, state: Tensor, grads: Sequence[Tensor | None], gradients: list[Tensor], launch: Launch
) -> Tensor:
    """Write the gradients of attention and boxes; return those of rises, summed by each block."""
    images, number, counters, segments = _sizes(inputs)
    attention, boxes, mask, _, max_objects, _ = inputs
    of_counter = images // counters
    blocks = -(-of_counter // LANES)
    scratch = attention.new_empty(images * (number + number**2))
    partial = attention.new_empty(counters * blocks, 8, segments)
    tensors = (
        attention, boxes, given_or_any(mask, attention), *_of_results(grads), state, *gradients[:2], scratch, partial
    )  # fmt: skip
    constants = (mask is not None, grads[1] is not None, segments, _power_of_two(segments), LANES)
    arguments = (*tensors, images, of_counter, blocks, max_objects, number)
    launch(lanes.count_backward_kernel, counters * blocks, arguments, constants, num_warps=1)
    return partial


def _tiles_backward(
    inputs: Inputs, state: Tensor, grads: Sequence[Tensor | None], gradients: list[Tensor], launch: Launch
) -> Tensor:
    """Do the same in tiles: one launch where a tile holds an image, otherwise one for each step."""
    images, number, counters, segments = _sizes(inputs)
    attention, boxes, mask, _, max_objects, _ = inputs
    of_counter, tiles = images // counters, -(-number // TILE)
    of_block = min(max(images // BLOCKS_WANTED, 1), MAX_IMAGES_PER_BLOCK)
    blocks = -(-of_counter // of_block)
    scratch = attention.new_empty(images * (number + 2 * number**2 + tiles**2 * segments))
    partial = attention.new_empty(counters * blocks, 8, segments)
    read = (attention, boxes, given_or_any(mask, attention), *_of_results(grads), state)
    branches, power = (mask is not None, grads[1] is not None), _power_of_two(segments)
    if tiles > 1:
        arguments: Arguments = (*read, scratch, images, of_counter, number, max_objects, tiles)
        kernel = tiles_backward.similarity_gradient_kernel
        launch(kernel, images, arguments, (*branches, segments, TILE), num_warps=GRADIENT_WARPS)
        kernel, arguments = tiles_backward.row_gradient_kernel, (state, scratch, images, of_counter, number, tiles)
        launch(kernel, images * tiles**2, arguments, (segments, power, TILE), num_warps=GRADIENT_WARPS)
    numbers = (images, of_counter, of_block, blocks, number, max_objects, tiles)
    arguments = (*read, *gradients[:2], scratch, partial, *numbers)
    constants = (*branches, segments, power, TILE, tiles == 1)
    launch(tiles_backward.pair_gradient_kernel, counters * blocks, arguments, constants, num_warps=GRADIENT_WARPS)
    return partial


def _of_results(grads: Sequence[Tensor | None]) -> tuple[Tensor, Tensor]:
    """Return the gradients of features and count, and for the count's a tensor that is not read if it has none."""
    of_features, of_count = grads
    assert of_features is not None
    return of_features, given_or_any(of_count, of_features)


def _sizes(inputs: Inputs) -> tuple[int, int, int, int]:
    """Return the numbers of images, boxes, counters and segments."""
    counters, _, segments = inputs.weights[0].shape
    return *inputs.attention.shape, counters, segments


def _power_of_two(number: int) -> int:
    """Round up to a power of two."""
    return 1 << (number - 1).bit_length()
