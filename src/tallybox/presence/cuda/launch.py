"""Launchers: allocate, and launch a block of threads for each image."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from tallybox.counter.cuda.launching import Launch, power_of_two
from tallybox.presence.cuda.backward import presence_backward_kernel
from tallybox.presence.cuda.forward import presence_forward_kernel
from tallybox.presence.cuda.owed import owed_kernel
from tallybox.presence.cuda.tables import fill_tables_kernel, tables_backward_kernel
from tallybox.presence.table import counters_and_segments, state_size_cuda, table_size
from tallybox.presence.weights import CELLS, PresenceWeights

TILE = 16  # the side of a tile, one warp's: at 100 boxes 1.2 times as fast as 32 with four warps, H200

# A lane of a warp for each proposal, and enough warps to fill a GPU; each has a table of sums of its own.
LANES = 32
WARPS_WANTED = 4096


class Forward(NamedTuple):
    """What the sizes of a call decide of its forward pass."""

    tables: Launch
    images: Launch


class Backward(NamedTuple):
    """What they decide of its backward pass."""

    blocks: int  # that sum what is owed to a counter
    images: Launch
    owed: Launch
    tables: Launch


@lru_cache(maxsize=1024)
def plan_forward(
    images: int, number: int, counters: int, segments: int, max_objects: int, has_mask: bool, logits: bool
) -> Forward:
    """Prepare to count ``images`` of ``number`` boxes, those of each counter together."""
    sizes = (number, max_objects, images // counters)
    constants = (has_mask, logits, segments, TILE, power_of_two(max_objects + 1))
    return Forward(
        Launch(fill_tables_kernel, counters, (), _table_constants(segments), 1),
        Launch(presence_forward_kernel, images, sizes, constants, 1),
    )


@lru_cache(maxsize=1024)
def plan_backward(
    images: int,
    number: int,
    counters: int,
    segments: int,
    max_objects: int,
    has_mask: bool,
    logits: bool,
    used: tuple[bool, bool],
) -> Backward:
    """Prepare for the way back; ``used`` says whether presence and distribution themselves have gradients."""
    a_counter = images // counters
    blocks = min(max(WARPS_WANTED // counters, 1), a_counter)
    sizes, constants = (number, max_objects, a_counter), (has_mask, logits, segments)
    of_count = (*constants, *used, TILE, power_of_two(max_objects + 1))
    return Backward(
        blocks,
        Launch(presence_backward_kernel, images, sizes, of_count, 1),
        Launch(owed_kernel, counters * blocks, (*sizes, blocks), (*constants, LANES), 1),
        Launch(tables_backward_kernel, counters, (), _table_constants(segments), 1),
    )


def _table_constants(segments: int) -> tuple[int, ...]:
    return segments, power_of_two(segments + 1), CELLS, power_of_two(CELLS + 1)


def presence_forward_triton(
    attention: Tensor, boxes: Tensor, weights: list[Tensor], mask: Tensor | None, max_objects: int, logits: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return features, presence, distribution, tables, and the state that the backward pass needs."""
    images, number = attention.shape
    counters, segments = counters_and_segments(weights)
    tables = attention.new_empty(counters, table_size(segments))
    features, distribution = attention.new_empty(images, max_objects + 2), attention.new_empty(images, max_objects + 1)
    presence = torch.empty_like(attention)
    state = attention.new_empty(images, state_size_cuda(number, max_objects))
    if images:
        plan = plan_forward(images, number, counters, segments, max_objects, mask is not None, logits)
        plan.tables(*weights, tables)
        plan.images(attention, boxes, mask, tables, features, presence, distribution, state)
    return features, presence, distribution, tables, state


def presence_backward_triton(
    attention: Tensor,
    boxes: Tensor,
    weights: list[Tensor],
    mask: Tensor | None,
    tables: Tensor,
    state: Tensor,
    grads: tuple[Tensor, Tensor | None, Tensor | None],
    logits: bool,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return the gradients of attention, boxes and weights."""
    images, number = attention.shape
    w = PresenceWeights(*weights)
    counters, segments = counters_and_segments(weights)
    max_objects = grads[0].shape[1] - 2
    grad_attention, grad_boxes = torch.empty_like(attention), torch.empty_like(boxes)
    if not images:
        return grad_attention, grad_boxes, [torch.zeros_like(weight) for weight in weights]
    grad_weights = [torch.empty_like(weight) for weight in weights]
    used = (grads[1] is not None, grads[2] is not None)
    plan = plan_backward(images, number, counters, segments, max_objects, mask is not None, logits, used)
    owed = tables.new_empty(counters, plan.blocks, tables.shape[1], LANES)
    scratch = attention.new_empty(images, 4 * number + 2 * (max_objects + 1))
    given = (attention, boxes, mask, tables, state)
    plan.images(*given, *grads, grad_attention, grad_boxes, scratch)
    plan.owed(*given, scratch, owed)
    shaped = (w.calibration, w.overlap, w.headroom, w.order, w.step, owed.sum((1, 3)))
    plan.tables(*shaped, *grad_weights)
    return grad_attention, grad_boxes, grad_weights
