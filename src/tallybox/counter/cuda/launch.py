"""Launchers: choose the kernels for the number of images and boxes, allocate, launch."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from tallybox.counter.cuda import lanes, tiles
from tallybox.counter.cuda.launching import Launch, divided_up, power_of_two
from tallybox.counter.cuda.parts import weight_gradient_kernel
from tallybox.counter.cuda.tiles_backward import (
    pair_gradient_kernel,
    row_gradient_kernel,
    similarity_gradient_kernel,
)
from tallybox.counter.state import state_size_cuda

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

# So many blocks' sums are added up at once: of one activation, or by the last block to end those of all eight.
BLOCKS_SUMMED = 256
BLOCKS_SUMMED_AT_THE_END = 128


def fits_lanes(images: int, number: int) -> bool:
    """Whether there are images enough, and boxes few enough, for a lane to count each of them."""
    return number <= MOST_BOXES_IN_A_LANE and images >= LEAST_IMAGES_FOR_LANES * number**3


class TritonPlan(NamedTuple):
    """What the sizes of a call decide: the kernels, and how many numbers they keep."""

    of_count: bool
    classes: int
    state: int
    way_there: Launch
    # Gradients of row sums of Sim [I, N], and of X [I, N, N]; where blocks walk images also of row products [I, N, N],
    # and what each tile of X owes; last what each block owes to the segments of its counter [M, blocks, 8, S].
    scratch: int
    way_back: tuple[Launch, ...]  # these kernels all take the same tensors

    def forward(self, attention: Tensor, boxes: Tensor, weight: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return features, and the state that the backward pass needs, with the counts at its beginning."""
        images = len(attention)
        features, state = attention.new_empty(images, self.classes), attention.new_empty(self.state)
        if images:
            self.way_there(attention, boxes, mask, weight, features, state)
        return features, state

    def backward(
        self,
        attention: Tensor,
        boxes: Tensor,
        weight: Tensor,
        mask: Tensor | None,
        state: Tensor,
        grad: Tensor,
        boxes_need_grad: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of attention, boxes and weight; they share their work, so boxes always get theirs."""
        grad_attention, grad_boxes = torch.empty_like(attention), torch.empty_like(boxes)
        if not self.scratch:
            return grad_attention, grad_boxes, torch.zeros_like(weight)
        grad_weight, scratch = torch.empty_like(weight), attention.new_empty(self.scratch)
        for launch in self.way_back:
            launch(attention, boxes, mask, weight, state, grad, grad_attention, grad_boxes, grad_weight, scratch)
        return grad_attention, grad_boxes, grad_weight


@lru_cache(maxsize=1024)
def plan_triton(
    attention: torch.Size, weight: torch.Size, has_mask: bool, max_objects: int, of_count: bool
) -> TritonPlan:
    """Choose kernels for ``attention [M * R, N]`` and ``weight [M, 8, S]`` or ``[8, S]``.

    The way back starts from the count or from the features.
    """
    images, number = attention
    segments = weight[-1]
    counters = weight.numel() // (8 * segments)
    a_counter, padded, given = images // max(counters, 1), power_of_two(segments), (has_mask, of_count)
    in_lanes, side = fits_lanes(images, number), divided_up(number, TILE)
    used = images * (number + number * number)
    if in_lanes:
        blocks = divided_up(a_counter, LANES)
        sizes = (images, max_objects, a_counter, blocks)
        constants = (number, segments, padded, LANES)
        forward = Launch(lanes.count_forward_kernel, counters * blocks, sizes, (has_mask, *constants), 1)
        backward = [Launch(lanes.count_backward_kernel, counters * blocks, sizes, (*given, *constants), 1)]
    else:
        used += images * (number * number + side * side * segments)
        a_block = min(max(images // BLOCKS_WANTED, 1), MOST_IMAGES_A_BLOCK)
        blocks = divided_up(a_counter, a_block)
        sizes = (images, number, max_objects, a_counter)
        constants = (segments, padded, TILE, power_of_two(max_objects + 1))
        forward = Launch(tiles.count_forward_kernel, images, sizes, (has_mask, *constants), FORWARD_WARPS)
        of_pairs = (*given, side == 1, segments, padded, TILE, BLOCKS_SUMMED_AT_THE_END)
        backward = []
        if side > 1:
            of_tiles = (images, number, a_counter, side)
            backward = [
                Launch(similarity_gradient_kernel, images, sizes, (*given, segments, TILE), GRADIENT_WARPS),
                Launch(row_gradient_kernel, images * side * side, of_tiles, (segments, padded, TILE), GRADIENT_WARPS),
            ]
        sizes_of_pairs = (*sizes, blocks, a_block, side)
        backward.append(Launch(pair_gradient_kernel, counters * blocks, sizes_of_pairs, of_pairs, GRADIENT_WARPS))
    if in_lanes or side > 1:  # else the kernel for pairs takes the others along
        of_weights = (segments, padded, BLOCKS_SUMMED)
        backward.append(Launch(weight_gradient_kernel, counters * 8, (used, blocks), of_weights, GRADIENT_WARPS))
    return TritonPlan(
        of_count,
        classes=max_objects + 1,
        state=state_size_cuda(images, number, counters, segments),
        way_there=forward,
        scratch=used + counters * blocks * 8 * segments,
        way_back=tuple(backward),
    )
