"""Launchers: share the images out among threads, in groups of eight."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tallybox.counter.cpu.activations import weight_gradient
from tallybox.counter.cpu.backward import count_backward_kernel
from tallybox.counter.cpu.forward import count_forward_kernel
from tallybox.counter.cpu.group import saved_size
from tallybox.kernels.cpu.compiling import as_array, as_rows
from tallybox.kernels.cpu.vectors import LANES
from tallybox.kernels.threads import chunks_of, run_chunks


def _groups(attention: Tensor, weight: Tensor) -> int:
    counters = weight.shape[0]
    images_per_counter = attention.shape[0] // max(counters, 1)
    return counters * ((images_per_counter + LANES - 1) // LANES)


def state_size(attention: Tensor, weight: Tensor, max_objects: int, save_state: bool) -> int:
    """Return how many numbers the forward kernel saves."""
    return _groups(attention, weight) * saved_size(attention.shape[1]) if save_state else 0


def _chunks(attention: Tensor, weight: Tensor) -> list[tuple[int, int]]:
    steps = LANES * (attention.shape[1] + 4) ** 3  # over pairs and boxes
    return chunks_of(_groups(attention, weight), steps)


def forward(
    attention: Tensor,
    boxes: Tensor,
    weight: Tensor,
    mask: Tensor | None,
    features: Tensor,
    count: Tensor,
    state: Tensor,
) -> None:
    """Write features, count and, unless it is empty, the saved state."""
    tensors = (attention, boxes, weight, mask, features, count)
    arrays = [*map(as_array, tensors), as_rows(state, _groups(attention, weight))]
    kernel: Any = count_forward_kernel
    run_chunks(_chunks(attention, weight), lambda _, *groups: kernel(*arrays, *groups))


def backward(
    attention: Tensor,
    boxes: Tensor,
    weight: Tensor,
    mask: Tensor | None,
    state: Tensor,
    grad_features: Tensor,
    grad_count: Tensor,
    boxes_need_grad: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of attention, boxes and weight; that of boxes is 0 where nobody needs it."""
    grad_attention, grad_boxes, grad_weight = (torch.empty_like(tensor) for tensor in (attention, boxes, weight))
    arrays = [*map(as_array, (attention, boxes, weight, mask)), as_rows(state, _groups(attention, weight))]
    arrays += map(as_array, (grad_features, grad_count, grad_attention, grad_boxes))
    chunks = _chunks(attention, weight)
    grad_rise = np.zeros((len(chunks), *weight.shape))
    kernel: Any = count_backward_kernel
    run_chunks(chunks, lambda chunk, *groups: kernel(*arrays, boxes_need_grad, grad_rise[chunk], *groups))
    weight_gradient(as_array(weight), grad_rise.sum(0), as_array(grad_weight))
    return grad_attention, grad_boxes, grad_weight
