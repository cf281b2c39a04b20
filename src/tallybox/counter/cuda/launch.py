"""Launchers: choose the kernels for the number of images and boxes, allocate, launch."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from tallybox.counter.cuda import lanes, tiles, tiles_backward
from tallybox.counter.cuda.launching import Launch, divided_up, power_of_two
from tallybox.counter.cuda.parts import weight_gradient_kernel

# Few boxes in many images: an image gets a lane of a warp, which walks it alone, about N³ steps. Otherwise it gets a
# block of threads. On an H200 lanes won from 4,096 images of 10 boxes on, not at 1,024, and not at 8,192 of 16.
MOST_BOXES_IN_A_LANE = 16
LEAST_IMAGES_FOR_LANES = 2.5  # times N³
LANES = 32
TILE = 16
FORWARD_WARPS = 8
GRADIENT_WARPS = 4

# A block that sums weight gradients over several images writes fewer partial sums.
MOST_IMAGES_A_BLOCK = 16
BLOCKS_WANTED = 4096
PARTIAL_SUMS_AT_ONCE = 256  # are added up by four warps, or the like number of all eight activations


def fits_lanes(images: int, number: int) -> bool:
    """Whether there are images enough, and boxes few enough, for a lane to count each of them."""
    return number <= MOST_BOXES_IN_A_LANE and images >= LEAST_IMAGES_FOR_LANES * number**3


class Forward(NamedTuple):
    """What the sizes of a call decide of its forward pass."""

    # How many numbers: certainty [I], scale [I, N], X and products [I, N, N]; of counters base and rise [M, 8, S],
    # and a place for their blocks to count themselves [M].
    state: int
    launch: Launch


class Backward(NamedTuple):
    """What they decide of its backward pass."""

    scratch: int  # how many numbers
    steps: tuple[Launch, ...]  # kernels that all take the same tensors


@lru_cache(maxsize=1024)
def plan_forward(images: int, number: int, counters: int, segments: int, max_objects: int, has_mask: bool) -> Forward:
    """Choose the kernel that counts ``images`` of ``number`` boxes, those of each counter together."""
    a_counter, padded = images // counters, power_of_two(segments)
    if fits_lanes(images, number):
        blocks = divided_up(a_counter, LANES)
        sizes = (images, max_objects, a_counter, blocks)
        constants = (has_mask, number, segments, padded, LANES)
        launch = Launch(lanes.count_forward_kernel, counters * blocks, sizes, constants, 1)
    else:
        sizes = (images, number, max_objects, a_counter)
        constants = (has_mask, segments, padded, TILE, power_of_two(max_objects + 1))
        launch = Launch(tiles.count_forward_kernel, images, sizes, constants, FORWARD_WARPS)
    return Forward(images * (1 + number + 2 * number * number) + counters * (16 * segments + 1), launch)


@lru_cache(maxsize=1024)
def plan_backward(
    images: int, number: int, counters: int, segments: int, max_objects: int, has_mask: bool, has_count: bool
) -> Backward:
    """Choose the kernels for the way back, with or without a gradient of the count itself."""
    a_counter, padded, given = images // counters, power_of_two(segments), (has_mask, has_count)
    # Scratch: gradients of row sums of Sim, and of X, ...
    used = images * (number + number * number)
    if fits_lanes(images, number):
        blocks = divided_up(a_counter, LANES)
        sizes = (images, max_objects, a_counter, blocks)
        constants = (*given, number, segments, padded, LANES)
        steps = [Launch(lanes.count_backward_kernel, counters * blocks, sizes, constants, 1)]
    else:
        side = divided_up(number, TILE)
        # ... in blocks also those of row products, and what each tile of X owes, ...
        used += images * (number * number + side * side * segments)
        a_block = min(max(images // BLOCKS_WANTED, 1), MOST_IMAGES_A_BLOCK)
        blocks = divided_up(a_counter, a_block)
        sizes = (images, number, max_objects, a_counter)
        pairs = Launch(
            tiles_backward.pair_gradient_kernel,
            counters * blocks,
            (*sizes, blocks, a_block, side),
            (*given, side == 1, segments, padded, TILE, PARTIAL_SUMS_AT_ONCE // 8),
            GRADIENT_WARPS,
        )
        if side == 1:  # that is all of it
            return Backward(used + counters * blocks * 8 * segments, (pairs,))
        similarity = Launch(
            tiles_backward.similarity_gradient_kernel, images, sizes, (*given, segments, TILE), GRADIENT_WARPS
        )
        rows = Launch(
            tiles_backward.row_gradient_kernel,
            images * side * side,
            (images, number, a_counter, side),
            (segments, padded, TILE),
            GRADIENT_WARPS,
        )
        steps = [similarity, rows, pairs]
    # ... and last what each block owes to its counter's segments.
    at_once = (segments, padded, PARTIAL_SUMS_AT_ONCE)
    weights = Launch(weight_gradient_kernel, counters * 8, (used, blocks), at_once, 4)
    return Backward(used + counters * blocks * 8 * segments, (*steps, weights))


def count_forward_triton(
    attention: Tensor, boxes: Tensor, weight: Tensor, mask: Tensor | None, max_objects: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Count ``attention [M * R, N]`` with ``weight [M, 8, S]`` or ``[8, S]``.

    Return features, count, and the state that the backward pass needs.
    """
    images, number = attention.shape
    segments = weight.shape[-1]
    plan = plan_forward(images, number, weight.numel() // (8 * segments), segments, max_objects, mask is not None)
    features = attention.new_empty(images, max_objects + 1)
    count = attention.new_empty(images)
    state = attention.new_empty(plan.state)
    if images:
        plan.launch(attention, boxes, mask, weight, features, count, state)
    return features, count, state


def count_backward_triton(
    attention: Tensor,
    boxes: Tensor,
    weight: Tensor,
    mask: Tensor | None,
    count: Tensor,
    state: Tensor,
    grad_features: Tensor,
    grad_count: Tensor | None,
    boxes_need_grad: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of attention, boxes and weight; they share their work, so boxes always get theirs."""
    images, number = attention.shape
    segments = weight.shape[-1]
    grad_attention, grad_boxes = torch.empty_like(attention), torch.empty_like(boxes)
    if not images:
        return grad_attention, grad_boxes, torch.zeros_like(weight)
    grad_weight = torch.empty_like(weight)
    sizes = (images, number, weight.numel() // (8 * segments), segments, grad_features.shape[1] - 1)
    plan = plan_backward(*sizes, mask is not None, grad_count is not None)
    scratch = attention.new_empty(plan.scratch)
    given = (attention, boxes, mask, weight, count, state, grad_features, grad_count)
    for step in plan.steps:
        step(*given, grad_attention, grad_boxes, grad_weight, scratch)
    return grad_attention, grad_boxes, grad_weight
