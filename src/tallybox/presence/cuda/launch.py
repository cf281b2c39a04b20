"""Launchers: allocate, and launch a block of threads for each image."""

from __future__ import annotations

import torch
from torch import Tensor

from tallybox.counter.cuda.launch import launch, power_of_two
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
        launch(fill_tables_kernel, counters, (*weights, tables), _table_constants(segments), 1)
        given = (attention, boxes, mask, tables, features, presence, distribution, state)
        sizes = (number, max_objects, images // counters)
        constants = (mask is not None, logits, segments, TILE, power_of_two(max_objects + 1))
        launch(presence_forward_kernel, images, (*given, *sizes), constants, 1)
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
    classes = grads[0].shape[1] - 1
    grad_attention, grad_boxes = torch.empty_like(attention), torch.empty_like(boxes)
    if not images:
        return grad_attention, grad_boxes, [torch.zeros_like(weight) for weight in weights]
    grad_weights = [torch.empty_like(weight) for weight in weights]
    a_counter = images // counters
    blocks = min(max(WARPS_WANTED // counters, 1), a_counter)
    owed = tables.new_empty(counters, blocks, tables.shape[1], LANES)
    scratch = attention.new_empty(images, 4 * number + 2 * classes)
    given = (attention, boxes, mask, tables, state)
    sizes = (number, classes - 1, a_counter)
    arguments = (*given, *grads, grad_attention, grad_boxes, scratch, *sizes)
    constants = (mask is not None, logits, segments)
    used = tuple(grad is not None for grad in grads[1:])
    launch(presence_backward_kernel, images, arguments, (*constants, *used, TILE, power_of_two(classes)), 1)
    launch(owed_kernel, counters * blocks, (*given, scratch, owed, *sizes, blocks), (*constants, LANES), 1)
    shaped = (w.calibration, w.overlap, w.headroom, w.order, w.step, owed.sum((1, 3)))
    launch(tables_backward_kernel, counters, (*shaped, *grad_weights), _table_constants(segments), 1)
    return grad_attention, grad_boxes, grad_weights


def _table_constants(segments: int) -> tuple[int, ...]:
    return segments, power_of_two(segments + 1), CELLS, power_of_two(CELLS + 1)
