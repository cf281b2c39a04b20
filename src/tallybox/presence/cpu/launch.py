"""Launchers: allocate, and share the images out among threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tallybox.kernels.cpu.compiling import Array
from tallybox.kernels.threads import chunks_of, run_chunks
from tallybox.presence.cpu.backward import presence_backward_kernel
from tallybox.presence.cpu.forward import presence_forward_kernel
from tallybox.presence.cpu.tables import fill_tables, tables_backward
from tallybox.presence.table import counters_and_segments, state_size_cpu, table_size
from tallybox.presence.weights import PresenceWeights


def _array(tensor: Tensor | None) -> Array:
    return np.empty((0, 0), bool) if tensor is None else tensor.detach().numpy()


def _arrays_of_counters(weights: list[Tensor], *, alone: bool) -> list[Array]:
    """Return weights as ``[M, ...]``; those of a counter alone have no M yet."""
    return [_array(weight)[None] if alone else _array(weight) for weight in weights]


def _steps(number: int) -> int:
    """Return how much work an image of so many boxes is, in steps over pairs."""
    return 20 * (number + 4) ** 2


def presence_forward_cpu(
    attention: Tensor,
    boxes: Tensor,
    weights: list[Tensor],
    mask: Tensor | None,
    max_objects: int,
    logits: bool,
    *,
    differentiable: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return features, presence, distribution, tables, and the state that the backward pass needs, if there is one."""
    images, number = attention.shape
    counters, segments = counters_and_segments(weights)
    tables = attention.new_empty(counters, table_size(segments))
    fill: Any = fill_tables
    fill(*_arrays_of_counters(weights, alone=weights[0].dim() == 0), _array(tables))
    features, distribution = attention.new_empty(images, max_objects + 2), attention.new_empty(images, max_objects + 1)
    presence = torch.empty_like(attention)
    given = [_array(tensor) for tensor in (attention, boxes, tables, mask)]
    state = attention.new_empty(images, state_size_cpu(number) if differentiable else 0)
    written = [_array(tensor) for tensor in (features, presence, distribution, state)]
    kernel: Any = presence_forward_kernel
    run_chunks(chunks_of(images, _steps(number)), lambda _, first, stop: kernel(*given, logits, *written, first, stop))
    return features, presence, distribution, tables, state


def presence_backward_cpu(
    attention: Tensor,
    boxes: Tensor,
    weights: list[Tensor],
    mask: Tensor | None,
    tables: Tensor,
    state: Tensor,
    grads: tuple[Tensor, Tensor | None, Tensor | None],
    *,
    boxes_need_grad: bool,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return the gradients of attention, boxes and weights; that of boxes is 0 where nobody needs it."""
    images, number = attention.shape
    grad_attention, grad_boxes = torch.empty_like(attention), torch.empty_like(boxes)
    given = [_array(tensor) for tensor in (attention, boxes, tables, mask, state)]
    grad_features, grad_presence, grad_distribution = grads
    if grad_presence is None:
        grad_presence = torch.zeros_like(attention)
    if grad_distribution is None:
        grad_distribution = torch.zeros_like(grad_features[:, :-1])
    written = [
        _array(tensor) for tensor in (grad_features, grad_presence, grad_distribution, grad_attention, grad_boxes)
    ]
    chunks = chunks_of(images, _steps(number))
    owed = np.zeros((len(chunks), *tables.shape))
    kernel: Any = presence_backward_kernel
    run_chunks(chunks, lambda chunk, *ends: kernel(*given, *written, owed[chunk], boxes_need_grad, *ends))
    w = PresenceWeights(*weights)
    grad_weights = [torch.empty_like(weight) for weight in weights]
    shaped = _arrays_of_counters([w.calibration, w.overlap, w.headroom, w.order, w.step], alone=w.slope.dim() == 0)
    backward: Any = tables_backward
    backward(*shaped, _array(tables), owed.sum(0), *_arrays_of_counters(grad_weights, alone=w.slope.dim() == 0))
    return grad_attention, grad_boxes, grad_weights
