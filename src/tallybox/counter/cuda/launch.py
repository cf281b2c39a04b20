"""Launchers: choose the kernels for the number of images and boxes, allocate, launch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from triton import cdiv, next_power_of_2

from tallybox.counter.cuda import lanes, tiles_forward
from tallybox.counter.cuda.activations import weight_gradient_kernel
from tallybox.counter.cuda.tiles_backward import (
    pair_gradient_kernel,
    row_gradient_kernel,
    similarity_gradient_kernel,
)
from tallybox.counter.saved import SavedState
from tallybox.kernels.cuda.launch import launch

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


def launch_by_name(kernel: Any, blocks: int, arguments: dict[str, Any], num_warps: int) -> None:
    """Launch a kernel with those of the arguments that it takes."""
    first, *others = kernel.arg_names
    launch(kernel, blocks, (arguments[first],), num_warps=num_warps, **{name: arguments[name] for name in others})


def forward(
    attention: Tensor,
    boxes: Tensor,
    weight: Tensor,
    mask: Tensor | None,
    features: Tensor,
    count: Tensor,
    saved: SavedState,
) -> None:
    """Write features and count, and what `backward` needs."""
    if not len(attention):
        return
    arguments: dict[str, Any] = {
        "attention": attention,
        "boxes": boxes,
        "mask": mask,
        "weight": weight,
        "features": features,
        "count": count,
        **saved._asdict(),
        **_sizes(attention, weight, mask, features.shape[1] - 1),
    }
    if fits_lanes(*attention.shape):
        blocks = len(weight) * arguments["BLOCKS_PER_COUNTER"]
        launch_by_name(lanes.count_forward_kernel, blocks, arguments, num_warps=1)
    else:
        launch_by_name(tiles_forward.count_forward_kernel, len(attention), arguments, num_warps=FORWARD_WARPS)


def backward(
    attention: Tensor,
    boxes: Tensor,
    weight: Tensor,
    mask: Tensor | None,
    count: Tensor,
    saved: SavedState,
    grad_features: Tensor | None,
    grad_count: Tensor | None,
    max_objects: int,
    boxes_need_grad: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of attention, boxes and weight; they share their work, so boxes always get theirs."""
    grad_attention, grad_boxes = torch.empty_like(attention), torch.empty_like(boxes)
    if not len(attention):
        return grad_attention, grad_boxes, torch.zeros_like(weight)
    arguments: dict[str, Any] = {
        "attention": attention,
        "boxes": boxes,
        "mask": mask,
        "weight": weight,
        "count": count,
        "grad_features": grad_features,
        "grad_count": grad_count,
        "HAS_GRAD_FEATURES": grad_features is not None,
        "HAS_GRAD_COUNT": grad_count is not None,
        "grad_attention": grad_attention,
        "grad_boxes": grad_boxes,
        "grad_weight": torch.empty_like(weight),
        **saved._asdict(),
        **_sizes(attention, weight, mask, max_objects),
    }
    images, number = attention.shape
    counters, _, segments = weight.shape
    in_lanes, tiles = fits_lanes(images, number), arguments["TILES"]
    blocks = counters * arguments["BLOCKS_PER_COUNTER"]
    arguments |= {
        "grad_alike": torch.empty_like(attention),  # of row sums of Sim
        "grad_rows": torch.empty_like(saved.rows),
        "partial": attention.new_empty(blocks, 8, segments),  # of rises, summed by each block
    }
    if not in_lanes:
        arguments |= {
            "grad_products": torch.empty_like(saved.products),
            "likeness_sums": attention.new_empty(images, tiles, tiles, segments),  # of f3's rises, summed by each tile
        }
    if in_lanes:
        launch_by_name(lanes.count_backward_kernel, blocks, arguments, num_warps=1)
    else:
        if tiles > 1:  # else the kernel for pairs takes these steps along
            launch_by_name(similarity_gradient_kernel, images, arguments, GRADIENT_WARPS)
            launch_by_name(row_gradient_kernel, images * tiles * tiles, arguments, GRADIENT_WARPS)
        launch_by_name(pair_gradient_kernel, blocks, arguments, GRADIENT_WARPS)
    launch_by_name(weight_gradient_kernel, counters * 8, arguments, GRADIENT_WARPS)
    return grad_attention, grad_boxes, arguments["grad_weight"]


def _sizes(attention: Tensor, weight: Tensor, mask: Tensor | None, max_objects: int) -> dict[str, int]:
    """Return all that kernels know of a call besides tensors."""
    images, number = attention.shape
    counters, _, segments = weight.shape
    images_per_block = (
        LANES if fits_lanes(images, number) else min(max(images // BLOCKS_WANTED, 1), MAX_IMAGES_PER_BLOCK)
    )
    return {
        "IMAGES": images,
        "IMAGES_PER_COUNTER": images // counters,
        "IMAGES_PER_BLOCK": images_per_block,
        "BLOCKS_PER_COUNTER": cdiv(images // counters, images_per_block),
        "MAX_OBJECTS": max_objects,
        "CLASSES": next_power_of_2(max_objects + 1),
        "HAS_MASK": mask is not None,
        "N": number,
        "S": segments,
        "SP": next_power_of_2(segments),
        "LANES": LANES,
        "B": TILE,
        "TILES": cdiv(number, TILE),
        "ONE_TILE": number <= TILE,
        "CHUNK": BLOCKS_SUMMED,
    }
