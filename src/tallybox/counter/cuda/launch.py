"""Launchers: allocate, choose the kernels for the number of boxes, launch."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from tallybox.counter.cuda import lanes, tiles
from tallybox.counter.cuda.parts import weight_gradient_kernel

# Up to this many boxes an image gets a lane of a warp, above it a block of threads.
MOST_BOXES_IN_A_LANE = 16
LANES = 32
TILE = 16
FORWARD_WARPS = 8
ROW_GRADIENT_WARPS = 2
PAIR_GRADIENT_WARPS = 4

# A block that sums weight gradients over several images writes fewer partial sums.
MOST_IMAGES_A_BLOCK = 16
BLOCKS_WANTED = 4096


def count_forward_triton(
    attention: Tensor, boxes: Tensor, weight: Tensor, mask: Tensor | None, max_objects: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Count ``attention [M * R, N]`` with ``weight [M, 8, S]``: features, count, and the state backward needs."""
    images, number = attention.shape
    counters, _, segments = weight.shape
    features = attention.new_empty(images, max_objects + 1)
    count = attention.new_empty(images)
    # Certainty [I], scale [I, N], X and products [I, N, N], base and rise [M, 8, S].
    state = attention.new_empty(images * (1 + number + 2 * number * number) + counters * 16 * segments)
    if not images:
        return features, count, state
    a_counter = images // counters
    padded = triton.next_power_of_2(segments)
    if number <= MOST_BOXES_IN_A_LANE:
        blocks = triton.cdiv(a_counter, LANES)
        lanes.count_forward_kernel[(counters * blocks,)](
            attention, boxes, mask, weight, features, count, state,
            images, max_objects, a_counter, blocks,
            mask is not None, number, segments, padded, LANES, num_warps=1,
        )  # fmt: skip
    else:
        tiles.count_forward_kernel[(images,)](
            attention, boxes, mask, weight, features, count, state,
            images, number, max_objects, a_counter,
            mask is not None, segments, padded, TILE, triton.next_power_of_2(max_objects + 1),
            num_warps=FORWARD_WARPS,
        )  # fmt: skip
    return features, count, state


def count_backward_triton(
    attention: Tensor,
    boxes: Tensor,
    weight: Tensor,
    mask: Tensor | None,
    count: Tensor,
    state: Tensor,
    grad_features: Tensor,
    grad_count: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of attention, boxes and weight."""
    images, number = attention.shape
    counters, _, segments = weight.shape
    grad_attention, grad_boxes = torch.empty_like(attention), torch.empty_like(boxes)
    if not images:
        return grad_attention, grad_boxes, torch.zeros_like(weight)
    grad_weight = torch.empty_like(weight)
    a_counter, max_objects = images // counters, grad_features.shape[1] - 1
    padded, has_mask = triton.next_power_of_2(segments), mask is not None
    given = (attention, boxes, mask, count, state, grad_features, grad_count)
    if number <= MOST_BOXES_IN_A_LANE:
        scratch = attention.new_empty(images * (number + number * number))
        blocks = triton.cdiv(a_counter, LANES)
        partial = weight.new_empty(counters * blocks, 8, segments)
        lanes.count_backward_kernel[(counters * blocks,)](
            *given, grad_attention, grad_boxes, scratch, partial,
            images, max_objects, a_counter, blocks,
            has_mask, number, segments, padded, LANES, num_warps=1,
        )  # fmt: skip
    else:
        scratch = attention.new_empty(images * (number + 2 * number * number))
        a_side = triton.cdiv(number, TILE)
        row_partial = weight.new_empty(images * a_side * a_side, segments)
        a_block = min(max(images // BLOCKS_WANTED, 1), MOST_IMAGES_A_BLOCK)
        blocks = triton.cdiv(a_counter, a_block)
        partial = weight.new_empty(counters * blocks, 8, segments)
        tiles.similarity_gradient_kernel[(images,)](
            *given, scratch, images, number, max_objects, a_counter,
            has_mask, segments, TILE, num_warps=PAIR_GRADIENT_WARPS,
        )  # fmt: skip
        tiles.row_gradient_kernel[(images * a_side * a_side,)](
            state, scratch, row_partial, images, number, a_counter, a_side,
            segments, padded, TILE, num_warps=ROW_GRADIENT_WARPS,
        )  # fmt: skip
        tiles.pair_gradient_kernel[(counters * blocks,)](
            *given, grad_attention, grad_boxes, scratch, row_partial, partial,
            images, number, max_objects, a_counter, blocks, a_block, a_side,
            has_mask, segments, padded, TILE, num_warps=PAIR_GRADIENT_WARPS,
        )  # fmt: skip
    weight_gradient_kernel[(counters * 8,)](weight, partial, grad_weight, blocks, segments, padded, 64, num_warps=4)
    return grad_attention, grad_boxes, grad_weight
