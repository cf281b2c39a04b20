"""Launchers: allocate, and launch a block of threads for each image."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from tallybox.counter.cuda.launch import launch
from tallybox.presence.cuda.backward import presence_backward_kernel
from tallybox.presence.cuda.forward import presence_forward_kernel

MOST_BOXES_IN_A_TILE = 32


def _tile(number: int) -> tuple[int, int]:
    """Return the side of a tile and the warps that share it."""
    side = min(max(triton.next_power_of_2(number), 16), MOST_BOXES_IN_A_TILE)
    return side, 1 if side == 16 else 4


def state_size(number: int, max_objects: int) -> int:
    """Return how many numbers an image's forward pass leaves for its backward pass."""
    return number * number + 4 * number + (number + 1) * (max_objects + 1)


def presence_forward_triton(
    logit: Tensor, boxes: Tensor, tables: Tensor, edges: Tensor, mask: Tensor | None, max_objects: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return presence, distribution, and the state that the backward pass needs."""
    images, number = logit.shape
    presence, distribution = torch.empty_like(logit), logit.new_empty(images, max_objects + 1)
    state = logit.new_empty(images, state_size(number, max_objects))
    if images:
        given = (logit, boxes, mask, tables, edges, presence, distribution, state)
        sizes = (number, max_objects, images // len(tables))
        side, warps = _tile(number)
        constants = (mask is not None, len(edges) - 1, side, triton.next_power_of_2(max_objects + 1))
        launch(presence_forward_kernel, images, (*given, *sizes), constants, warps)
    return presence, distribution, state


def presence_backward_triton(
    logit: Tensor,
    boxes: Tensor,
    tables: Tensor,
    edges: Tensor,
    mask: Tensor | None,
    state: Tensor,
    grad_presence: Tensor,
    grad_distribution: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of logits, boxes and tables."""
    images, number = logit.shape
    classes = grad_distribution.shape[1]
    grad_logit, grad_boxes = torch.empty_like(logit), torch.empty_like(boxes)
    if not images:
        return grad_logit, grad_boxes, torch.zeros_like(tables)
    owed = tables.new_empty(images, tables.shape[1])
    scratch = logit.new_empty(images, 3 * number + 2 * classes)
    given = (logit, boxes, mask, tables, edges, state, grad_presence, grad_distribution)
    sizes = (number, classes - 1, images // len(tables))
    side, warps = _tile(number)
    segments = len(edges) - 1
    constants = (
        mask is not None,
        segments,
        triton.next_power_of_2(segments + 1),
        side,
        triton.next_power_of_2(classes),
    )
    written = (grad_logit, grad_boxes, owed, scratch)
    launch(presence_backward_kernel, images, (*given, *written, *sizes), constants, warps)
    return grad_logit, grad_boxes, owed.view(len(tables), -1, tables.shape[1]).sum(1)
