"""Launchers: choose the kernels for the number of images and boxes, allocate, launch."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tallybox.counter.cuda import lanes, tiles_backward, tiles_forward
from tallybox.counter.cuda.activations import weight_gradient_kernel
from tallybox.kernels.cuda import Launch, Step, given_or_any, launch_now, once_a_shape
from tallybox.kernels.operators import Grads, Inputs

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
    images, number, counters, segments, *_ = _sizes(inputs)
    return images * (2 + number + 2 * number**2) + counters * 16 * segments


def forward(inputs: Inputs, results: Sequence[Tensor], state: Tensor, launch: Launch = launch_now) -> None:
    """Write features, count and the saved state."""
    attention, boxes, mask, (weight,), _, _ = inputs
    step = _forward_step(launch, *_sizes(inputs))
    launch(step, attention, boxes, given_or_any(mask, attention), weight, *results, state)


def backward(
    inputs: Inputs, state: Tensor, grads: Grads, boxes_need_grad: bool, launch: Launch = launch_now
) -> list[Tensor]:
    """Return the gradients of attention, boxes and weight; they share their work, so boxes always get theirs."""
    attention, boxes, mask, (weight,), _, _ = inputs
    of_features, of_count = grads
    assert of_features is not None
    plan = _backward_plan(launch, *_sizes(inputs), of_count is not None)
    grad_attention, grad_boxes, grad_weight = (torch.empty_like(tensor) for tensor in (attention, boxes, weight))
    scratch, partial = attention.new_empty(plan.scratch), attention.new_empty(plan.partial)
    a_mask, a_count = given_or_any(mask, attention), given_or_any(of_count, of_features)
    read = (attention, boxes, a_mask, of_features, a_count, state)
    if plan.similarity is not None and plan.rows is not None:
        launch(plan.similarity, *read, scratch)
        launch(plan.rows, state, scratch)
    launch(plan.pairs, *read, grad_attention, grad_boxes, scratch, partial)
    launch(plan.weights, weight, partial, grad_weight)
    return [grad_attention, grad_boxes, grad_weight]


class BackwardPlan(NamedTuple):
    """The steps of a backward pass, and how many numbers they note: one step if a lane or a tile holds an image."""

    scratch: int
    partial: int  # sums of each block
    similarity: Step | None
    rows: Step | None
    pairs: Step
    weights: Step


@once_a_shape
def _forward_step(images: int, number: int, counters: int, segments: int, max_objects: int, masked: bool) -> Step:
    of_counter = images // counters
    functions = (segments, _power_of_two(segments))
    if fits_lanes(images, number):
        blocks = -(-of_counter // LANES)
        numbers: tuple[int, ...] = (images, of_counter, blocks, max_objects, number)
        constants = (masked, *functions, LANES)
        return Step(lanes.count_forward_kernel, counters * blocks, numbers, constants, num_warps=1)
    numbers, constants = (images, of_counter, number, max_objects), (masked, *functions, TILE)
    return Step(tiles_forward.count_forward_kernel, images, numbers, constants, num_warps=FORWARD_WARPS)


@once_a_shape
def _backward_plan(
    images: int, number: int, counters: int, segments: int, max_objects: int, masked: bool, has_grad_count: bool
) -> BackwardPlan:
    of_counter, tiles = images // counters, -(-number // TILE)
    power, branches = _power_of_two(segments), (masked, has_grad_count)
    similarity = rows = None
    if fits_lanes(images, number):
        blocks, scratch = -(-of_counter // LANES), images * (number + number**2)
        numbers: tuple[int, ...] = (images, of_counter, blocks, max_objects, number)
        constants: tuple[int, ...] = (*branches, segments, power, LANES)
        pairs = Step(lanes.count_backward_kernel, counters * blocks, numbers, constants, num_warps=1)
    else:
        of_block = min(max(images // BLOCKS_WANTED, 1), MAX_IMAGES_PER_BLOCK)
        blocks, scratch = -(-of_counter // of_block), images * (number + 2 * number**2 + tiles**2 * segments)
        if tiles > 1:
            numbers, constants = (images, of_counter, number, max_objects, tiles), (*branches, segments, TILE)
            kernel = tiles_backward.similarity_gradient_kernel
            similarity = Step(kernel, images, numbers, constants, num_warps=GRADIENT_WARPS)
            numbers, constants = (images, of_counter, number, tiles), (segments, power, TILE)
            kernel = tiles_backward.row_gradient_kernel
            rows = Step(kernel, images * tiles**2, numbers, constants, num_warps=GRADIENT_WARPS)
        numbers = (images, of_counter, of_block, blocks, number, max_objects, tiles)
        constants = (*branches, segments, power, TILE, tiles == 1)
        kernel = tiles_backward.pair_gradient_kernel
        pairs = Step(kernel, counters * blocks, numbers, constants, num_warps=GRADIENT_WARPS)
    constants = (segments, power, BLOCKS_SUMMED)
    weights = Step(weight_gradient_kernel, counters * 8, (blocks,), constants, num_warps=GRADIENT_WARPS)
    return BackwardPlan(scratch, counters * blocks * 8 * segments, similarity, rows, pairs, weights)


def _sizes(inputs: Inputs) -> tuple[int, int, int, int, int, bool]:
    """Return the numbers of images, boxes, counters, segments and objects, and whether there is a mask."""
    counters, _, segments = inputs.weights[0].shape
    return *inputs.attention.shape, counters, segments, inputs.max_objects, inputs.mask is not None


def _power_of_two(number: int) -> int:
    """Round up to a power of two."""
    return 1 << (number - 1).bit_length()
