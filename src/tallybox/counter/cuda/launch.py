"""Launchers: allocate, choose the kernels for the number of boxes, launch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tallybox.counter.cuda import lanes, tiles, tiles_backward
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


# Compiled kernels by what they were compiled for. Triton's own look-up inspects every argument of every
# launch, 25 µs beside an H200; our kernels assume nothing of their arguments but their types, which
# are always the same.
_compiled: dict[tuple[Any, ...], Any] = {}


def divided_up(number: int, share: int) -> int:
    """Return how many shares hold so many; Triton's own function takes 5 µs for it.

    >>> divided_up(33, 32)
    2
    """
    return -(-number // share)


def power_of_two(number: int) -> int:
    """Return the smallest power of two that is not below the number; likewise.

    >>> power_of_two(17)
    32
    """
    return 1 << (number - 1).bit_length()


def fits_lanes(images: int, number: int) -> bool:
    """Whether there are images enough, and boxes few enough, for a lane to count each of them."""
    return number <= MOST_BOXES_IN_A_LANE and images >= LEAST_IMAGES_FOR_LANES * number**3


def launch(kernel: Any, blocks: int, arguments: tuple[Any, ...], constants: tuple[int | bool, ...], warps: int) -> None:
    """Launch so many blocks of a kernel that `parts.kernel` made; compile it where it has not been."""
    # A kernel's own hash is that of its source, which takes 4 µs to ask for; kernels live as long as their module.
    key = (id(kernel), constants, warps, arguments[0].device.index)
    compiled = _compiled.get(key)
    if compiled is None:
        # Interpreted kernels are not compiled: nothing comes back.
        _compiled[key] = kernel[(blocks,)](*arguments, *constants, num_warps=warps)
    else:
        compiled[(blocks, 1, 1)](*arguments, *constants)


def count_forward_triton(
    attention: Tensor, boxes: Tensor, weight: Tensor, mask: Tensor | None, max_objects: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Count ``attention [M * R, N]`` with ``weight [M, 8, S]`` or ``[8, S]``.

    Return features, count, and the state that the backward pass needs.
    """
    images, number = attention.shape
    segments = weight.shape[-1]
    counters = weight.numel() // (8 * segments)
    features = attention.new_empty(images, max_objects + 1)
    count = attention.new_empty(images)
    # Certainty [I], scale [I, N], X and products [I, N, N], base and rise [M, 8, S].
    state = attention.new_empty(images * (1 + number + 2 * number * number) + counters * 16 * segments)
    if not images:
        return features, count, state
    a_counter = images // counters
    padded = power_of_two(segments)
    given = (attention, boxes, mask, weight, features, count, state)
    if fits_lanes(images, number):
        blocks = divided_up(a_counter, LANES)
        sizes = (images, max_objects, a_counter, blocks)
        constants = (mask is not None, number, segments, padded, LANES)
        launch(lanes.count_forward_kernel, counters * blocks, (*given, *sizes), constants, 1)
    else:
        sizes = (images, number, max_objects, a_counter)
        constants = (mask is not None, segments, padded, TILE, power_of_two(max_objects + 1))
        launch(tiles.count_forward_kernel, images, (*given, *sizes), constants, FORWARD_WARPS)
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
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of attention, boxes and weight."""
    images, number = attention.shape
    segments = weight.shape[-1]
    counters = weight.numel() // (8 * segments)
    grad_attention, grad_boxes = torch.empty_like(attention), torch.empty_like(boxes)
    if not images:
        return grad_attention, grad_boxes, torch.zeros_like(weight)
    grad_weight = torch.empty_like(weight)
    a_counter, max_objects = images // counters, grad_features.shape[1] - 1
    padded, has_mask, has_count = power_of_two(segments), mask is not None, grad_count is not None
    given = (attention, boxes, mask, count, state, grad_features, grad_count)
    grads = (grad_attention, grad_boxes)
    if fits_lanes(images, number):
        blocks = divided_up(a_counter, LANES)
        used = images * (number + number * number)  # gradients of row sums of Sim, and of X
        scratch = attention.new_empty(used + counters * blocks * 8 * segments)
        sizes = (images, max_objects, a_counter, blocks)
        constants = (has_mask, has_count, number, segments, padded, LANES)
        launch(lanes.count_backward_kernel, counters * blocks, (*given, *grads, scratch, *sizes), constants, 1)
    else:
        side = divided_up(number, TILE)
        a_block = min(max(images // BLOCKS_WANTED, 1), MOST_IMAGES_A_BLOCK)
        blocks = divided_up(a_counter, a_block)
        # As above, and gradients of row products, and what each tile of X owes.
        used = images * (number + 2 * number * number + side * side * segments)
        scratch = attention.new_empty(used + counters * blocks * 8 * segments)
        sizes = (images, number, max_objects, a_counter)
        if side > 1:
            first = ((*given, scratch, *sizes), (has_mask, has_count, segments, TILE))
            second = ((state, scratch, images, number, a_counter, side), (segments, padded, TILE))
            launch(tiles_backward.similarity_gradient_kernel, images, *first, GRADIENT_WARPS)
            launch(tiles_backward.row_gradient_kernel, images * side * side, *second, GRADIENT_WARPS)
        launch(
            tiles_backward.pair_gradient_kernel,
            counters * blocks,
            (*given, *grads, scratch, *sizes, blocks, a_block, side),
            (has_mask, has_count, side == 1, segments, padded, TILE),
            GRADIENT_WARPS,
        )
    partial = scratch[used:]
    launch(weight_gradient_kernel, counters * 8, (weight, partial, grad_weight, blocks), (segments, padded, 256), 4)
    return grad_attention, grad_boxes, grad_weight
