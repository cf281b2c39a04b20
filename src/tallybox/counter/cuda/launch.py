"""Launchers: choose the kernels for the number of images and boxes, allocate, launch."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tallybox.counter.cuda import lanes, tiles_backward, tiles_forward
from tallybox.counter.cuda.activations import weight_gradient_kernel
from tallybox.kernels.cuda import launch
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


def _saved_sizes(inputs: Inputs) -> dict[str, int]:
    """Return how many numbers are saved of each quantity: multiples of 16 bytes, which kernels are compiled for."""
    (images, number), (counters, _, segments) = inputs.attention.shape, inputs.weight.shape
    sizes = {
        "count_and_confidence_input": images * 2,  # c and p_a + p_D
        "scale": images * number,  # s
        "products": images * number**2,  # row products of Sim; in `lanes` above the diagonal only, below it Ã
        "rows": images * number**2,  # X
        "tables": counters * 2 * 8 * segments,  # where segments start and how much they rise
    }
    return {name: (size + 3) // 4 * 4 for name, size in sizes.items()}


def state_size(inputs: Inputs, max_objects: int, save_state: bool) -> int:
    """Return how many numbers are saved; the forward kernel needs them itself."""
    return sum(_saved_sizes(inputs).values())


def forward(inputs: Inputs, results: Sequence[Tensor], state: Tensor) -> None:
    """Write features, count and the saved state."""
    images, number = inputs.attention.shape
    if not images:
        return
    features, count = results
    arguments = _arguments(inputs, state, features.shape[1] - 1) | {"features": features, "count": count}
    if fits_lanes(images, number):
        blocks = len(inputs.weight) * arguments["BLOCKS_PER_COUNTER"]
        launch(lanes.count_forward_kernel, blocks, arguments, num_warps=1)
    else:
        launch(tiles_forward.count_forward_kernel, images, arguments, num_warps=FORWARD_WARPS)


def backward(
    inputs: Inputs, state: Tensor, grads: Sequence[Tensor], boxes_need_grad: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of attention, boxes and weight; they share their work, so boxes always get theirs."""
    attention, weight = inputs.attention, inputs.weight
    grad_attention, grad_boxes, grad_weight = (torch.empty_like(tensor) for tensor in inputs[:3])
    if not len(attention):
        return grad_attention, grad_boxes, grad_weight.zero_()
    (images, number), (counters, _, segments) = attention.shape, weight.shape
    grad_features, grad_count = grads
    arguments = _arguments(inputs, state, grad_features.shape[1] - 1)
    blocks, tiles = counters * arguments["BLOCKS_PER_COUNTER"], arguments["TILES"]
    arguments |= {
        "grad_features": grad_features,
        "grad_count": grad_count,
        "grad_attention": grad_attention,
        "grad_boxes": grad_boxes,
        "grad_weight": grad_weight,
        "grad_sums": torch.empty_like(attention),  # of row sums of Sim
        "grad_rows": attention.new_empty(images, number, number),
        "partial": attention.new_empty(blocks, 8, segments),  # of rises, summed by each block
    }
    if fits_lanes(images, number):
        launch(lanes.count_backward_kernel, blocks, arguments, num_warps=1)
    else:
        arguments["grad_products"] = attention.new_empty(images, number, number)
        arguments["similarity_grads"] = attention.new_empty(images, tiles, tiles, segments)  # of f3's rises, by tile
        launch(tiles_backward.similarity_gradient_kernel, images, arguments, num_warps=GRADIENT_WARPS)
        launch(tiles_backward.row_gradient_kernel, images * tiles**2, arguments, num_warps=GRADIENT_WARPS)
        launch(tiles_backward.pair_gradient_kernel, blocks, arguments, num_warps=GRADIENT_WARPS)
    launch(weight_gradient_kernel, counters * 8, arguments, num_warps=GRADIENT_WARPS)
    return grad_attention, grad_boxes, grad_weight


def _arguments(inputs: Inputs, state: Tensor, max_objects: int) -> dict[str, Any]:
    """Return the arguments that forward and backward kernels share, by name."""
    (images, number), (counters, _, segments) = inputs.attention.shape, inputs.weight.shape
    images_per_block = min(max(images // BLOCKS_WANTED, 1), MAX_IMAGES_PER_BLOCK)
    if fits_lanes(images, number):
        images_per_block = LANES
    sizes = _saved_sizes(inputs)
    return {
        **inputs._asdict(),
        **dict(zip(sizes, state.split(list(sizes.values())), strict=True)),
        "IMAGES": images,
        "IMAGES_PER_COUNTER": images // counters,
        "IMAGES_PER_BLOCK": images_per_block,
        "BLOCKS_PER_COUNTER": -(-(images // counters) // images_per_block),
        "MAX_OBJECTS": max_objects,
        "HAS_MASK": inputs.mask is not None,
        "N": number,
        "S": segments,
        "SP": 1 << (segments - 1).bit_length(),
        "LANES": LANES,
        "B": TILE,
        "TILES": -(-number // TILE),
        "CHUNK": BLOCKS_SUMMED,
    }
