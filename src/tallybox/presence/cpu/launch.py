"""Launchers: allocate, and share the images out among threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tallybox.counter.cpu.parts import Array
from tallybox.counter.cpu.threads import chunks_of, run_chunks
from tallybox.presence.cpu.backward import presence_backward_kernel
from tallybox.presence.cpu.forward import presence_forward_kernel
from tallybox.presence.cpu.tables import fill_tables, tables_backward
from tallybox.presence.table import table_size
from tallybox.presence.weights import PresenceWeights


def _array(tensor: Tensor | None) -> Array:
    return np.empty((0, 0), bool) if tensor is None else tensor.detach().numpy()


def _steps(number: int) -> int:
    """Return how much work an image of so many boxes is, in steps over pairs."""
    return 20 * (number + 4) ** 2


def presence_forward_cpu(
    attention: Tensor, boxes: Tensor, weights: list[Tensor], mask: Tensor | None, max_objects: int, logits: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return features, presence, distribution, tables, and no state: the backward pass computes everything anew."""
    images, number = attention.shape
    tables = attention.new_empty(len(weights[0]), table_size(PresenceWeights(*weights).calibration.shape[-1]))
    fill: Any = fill_tables
    fill(*(_array(weight) for weight in weights), _array(tables))
    features, distribution = attention.new_empty(images, max_objects + 2), attention.new_empty(images, max_objects + 1)
    presence = torch.empty_like(attention)
    given = [_array(tensor) for tensor in (attention, boxes, tables, mask)]
    written = [_array(tensor) for tensor in (features, presence, distribution)]
    kernel: Any = presence_forward_kernel
    run_chunks(chunks_of(images, _steps(number)), lambda _, first, stop: kernel(*given, logits, *written, first, stop))
    return features, presence, distribution, tables, attention.new_empty(images, 0)


def presence_backward_cpu(
    attention: Tensor,
    boxes: Tensor,
    weights: list[Tensor],
    mask: Tensor | None,
    tables: Tensor,
    state: Tensor,
    grads: tuple[Tensor, Tensor, Tensor],
    logits: bool,
    *,
    boxes_need_grad: bool,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return the gradients of attention, boxes and weights; that of boxes is 0 where nobody needs it."""
    images, number = attention.shape
    grad_attention, grad_boxes = torch.empty_like(attention), torch.empty_like(boxes)
    given = [_array(tensor) for tensor in (attention, boxes, tables, mask)]
    written = [_array(tensor) for tensor in (*grads, grad_attention, grad_boxes)]
    chunks = chunks_of(images, _steps(number))
    owed = np.zeros((len(chunks), *tables.shape))
    kernel: Any = presence_backward_kernel
    run_chunks(chunks, lambda chunk, *ends: kernel(*given, logits, *written, owed[chunk], boxes_need_grad, *ends))
    w = PresenceWeights(*weights)
    grad_weights = [torch.empty_like(weight) for weight in weights]
    shaped = [_array(weight) for weight in (w.calibration, w.overlap, w.headroom, w.order, w.step)]
    backward: Any = tables_backward
    backward(*shaped, _array(tables), owed.sum(0), *(_array(grad) for grad in grad_weights))
    return grad_attention, grad_boxes, grad_weights
