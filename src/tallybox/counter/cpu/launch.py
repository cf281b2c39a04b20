"""Launchers: share the images out among threads, in groups of eight."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tallybox.concurrency import chunks_of, run_chunks
from tallybox.counter.cpu.activations import weight_gradient
from tallybox.counter.cpu.backward import count_backward_kernel
from tallybox.counter.cpu.forward import count_forward_kernel
from tallybox.counter.cpu.group import saved_size
from tallybox.kernels.cpu.compiling import as_array, as_arrays, as_rows
from tallybox.kernels.cpu.vectors import LANES
from tallybox.kernels.operators import Inputs


def _groups(inputs: Inputs) -> int:
    counters = inputs.weights[0].shape[0]
    images_per_counter = inputs.attention.shape[0] // max(counters, 1)
    return counters * ((images_per_counter + LANES - 1) // LANES)


def state_size(inputs: Inputs, save_state: bool) -> int:
    """Return how many numbers the forward kernel saves."""
    return _groups(inputs) * saved_size(inputs.attention.shape[1]) if save_state else 0


def _chunks(inputs: Inputs) -> list[tuple[int, int]]:
    steps = LANES * (inputs.attention.shape[1] + 4) ** 3  # over pairs and boxes
    return chunks_of(_groups(inputs), steps)


def forward(inputs: Inputs, results: Sequence[Tensor], state: Tensor) -> None:
    """Write features, count and, unless it is empty, the saved state."""
    arrays = (as_arrays(*inputs[:3], *inputs.weights), as_arrays(*results), as_rows(state, _groups(inputs)))
    kernel: Any = count_forward_kernel
    run_chunks(_chunks(inputs), lambda _, *groups: kernel(*arrays, *groups))


def backward(inputs: Inputs, state: Tensor, grads: Sequence[Tensor], boxes_need_grad: bool) -> list[Tensor]:
    """Return the gradients of attention, boxes and weight; that of boxes is 0 where nobody needs it."""
    grad_attention, grad_boxes, grad_weight = (torch.empty_like(tensor) for tensor in (*inputs[:2], *inputs.weights))
    written = as_arrays(grad_attention, grad_boxes)
    arrays = (as_arrays(*inputs[:3], *inputs.weights), as_rows(state, _groups(inputs)), as_arrays(*grads), written)
    chunks = _chunks(inputs)
    grad_rise = np.zeros((len(chunks), *inputs.weights[0].shape))
    kernel: Any = count_backward_kernel
    run_chunks(chunks, lambda chunk, *groups: kernel(*arrays, grad_rise[chunk], boxes_need_grad, *groups))
    weight_gradient(as_array(inputs.weights[0]), grad_rise.sum(0), as_array(grad_weight))
    return [grad_attention, grad_boxes, grad_weight]
