"""Launchers: share the images out among threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tallybox.kernels.cpu.compiling import as_array
from tallybox.kernels.threads import chunks_of, run_chunks
from tallybox.presence.cpu.backward import presence_backward_kernel
from tallybox.presence.cpu.forward import presence_forward_kernel
from tallybox.presence.cpu.image import saved_size


def _steps(number: int) -> int:
    """Return how much work an image of so many boxes is, in steps over pairs."""
    return 20 * (number + 4) ** 2


def _every_pair(attention: Tensor, boxes: Tensor, tables: Tensor) -> bool:
    """Whether boxes apart influence each other too: 0 times NaN is NaN."""
    return not bool((attention.sum() + boxes.sum() + tables.sum()).isfinite())


def state_size(number: int, max_objects: int, save_state: bool) -> int:
    """Return how many numbers are saved of an image."""
    return saved_size(number) if save_state else 0


def forward(
    attention: Tensor,
    boxes: Tensor,
    tables: Tensor,
    mask: Tensor | None,
    features: Tensor,
    presence: Tensor,
    distribution: Tensor,
    state: Tensor,
    logits: bool,
) -> None:
    """Write features, presence, distribution and, unless it is empty, the saved state."""
    read = [as_array(tensor) for tensor in (attention, boxes, tables, mask)]
    written = [as_array(tensor) for tensor in (features, presence, distribution, state)]
    settings = (logits, _every_pair(attention, boxes, tables))
    kernel: Any = presence_forward_kernel
    chunks = chunks_of(len(attention), _steps(attention.shape[1]))
    run_chunks(chunks, lambda _, first, stop: kernel(*read, *settings, *written, first, stop))


def backward(
    attention: Tensor,
    boxes: Tensor,
    tables: Tensor,
    mask: Tensor | None,
    state: Tensor,
    grad_features: Tensor,
    grad_presence: Tensor,
    grad_distribution: Tensor,
    logits: bool,
    boxes_need_grad: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of attention, boxes and tables; that of boxes is 0 where nobody needs it."""
    grad_attention, grad_boxes = torch.empty_like(attention), torch.empty_like(boxes)
    inputs = (attention, boxes, tables, mask, state, grad_features, grad_presence, grad_distribution)
    read, written = [as_array(tensor) for tensor in inputs], [as_array(grad_attention), as_array(grad_boxes)]
    settings = (_every_pair(attention, boxes, tables), boxes_need_grad)
    chunks = chunks_of(len(attention), _steps(attention.shape[1]))
    grad_tables = np.zeros((len(chunks), *tables.shape))  # summed in double precision
    kernel: Any = presence_backward_kernel
    run_chunks(chunks, lambda chunk, *ends: kernel(*read, *settings, *written, grad_tables[chunk], *ends))
    return grad_attention, grad_boxes, torch.from_numpy(grad_tables.sum(0)).to(tables.dtype)
