"""Launchers: share the images out among threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tallybox.counter.cpu.activations import weight_gradient
from tallybox.counter.cpu.backward import count_backward_kernel
from tallybox.counter.cpu.forward import count_forward_kernel
from tallybox.counter.saved import SavedState
from tallybox.kernels.cpu.compiling import as_array
from tallybox.kernels.cpu.vectors import LANES
from tallybox.kernels.threads import chunks_of, run_chunks


def _chunks(attention: Tensor) -> list[tuple[int, int]]:
    images, number = attention.shape
    return chunks_of(images, (number + 4) ** 3, LANES)  # steps over pairs and boxes


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
    arrays = [as_array(tensor) for tensor in (attention, boxes, mask, weight, features, count, *saved[:3])]
    kernel: Any = count_forward_kernel
    run_chunks(_chunks(attention), lambda _, first, stop: kernel(*arrays, first, stop))


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
    """Return the gradients of attention, boxes and weight; that of boxes is 0 where nobody needs it."""
    if grad_features is None:
        grad_features = attention.new_zeros(len(attention), max_objects + 1)
    if grad_count is None:
        grad_count = torch.zeros_like(count)
    grad_attention, grad_boxes, grad_weight = (torch.empty_like(t) for t in (attention, boxes, weight))
    grads = (grad_features, grad_count, grad_attention, grad_boxes)
    arrays = [as_array(tensor) for tensor in (attention, boxes, mask, weight, count, *saved[:3], *grads)]
    chunks = _chunks(attention)
    grad_rise = np.zeros((len(chunks), *weight.shape))
    kernel: Any = count_backward_kernel
    run_chunks(chunks, lambda chunk, *ends: kernel(*arrays, grad_rise[chunk], boxes_need_grad, *ends))
    weight_gradient(as_array(weight), grad_rise.sum(0), as_array(grad_weight))
    return grad_attention, grad_boxes, grad_weight
