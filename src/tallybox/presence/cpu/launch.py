"""Launchers: share the images out among threads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tallybox.kernels.cpu.compiling import as_array, as_rows
from tallybox.kernels.threads import chunks_of, run_chunks
from tallybox.presence.cpu.backward import presence_backward_kernel
from tallybox.presence.cpu.forward import presence_forward_kernel
from tallybox.presence.cpu.image import saved_size


def _every_pair(*inputs: Tensor) -> bool:
    """Whether boxes apart influence each other too: 0 times NaN is NaN."""
    return not math.isfinite(sum(tensor.sum().item() for tensor in inputs))


def _chunks(logit: Tensor) -> list[tuple[int, int]]:
    images, number = logit.shape
    return chunks_of(images, 20 * (number + 4) ** 2)  # steps over pairs


def state_size(logit: Tensor, tables: Tensor, max_objects: int, save_state: bool) -> int:
    """Return how many numbers the forward kernel saves."""
    images, number = logit.shape
    return images * saved_size(number) if save_state else 0


def forward(
    logit: Tensor,
    boxes: Tensor,
    tables: Tensor,
    mask: Tensor | None,
    features: Tensor,
    presence: Tensor,
    distribution: Tensor,
    state: Tensor,
) -> None:
    """Write features, presence, distribution and, unless it is empty, the saved state."""
    read = [*map(as_array, (logit, boxes, tables, mask)), _every_pair(logit, boxes, tables)]
    written = [*map(as_array, (features, presence, distribution)), as_rows(state, len(logit))]
    kernel: Any = presence_forward_kernel
    run_chunks(_chunks(logit), lambda _, *images: kernel(*read, *written, *images))


def backward(
    logit: Tensor,
    boxes: Tensor,
    tables: Tensor,
    mask: Tensor | None,
    state: Tensor,
    grad_features: Tensor,
    grad_presence: Tensor,
    grad_distribution: Tensor,
    boxes_need_grad: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of logits, boxes and tables; that of boxes is 0 where nobody needs it."""
    grad_logit, grad_boxes = torch.empty_like(logit), torch.empty_like(boxes)
    arrays = [*map(as_array, (logit, boxes, tables, mask)), as_rows(state, len(logit))]
    arrays += map(as_array, (grad_features, grad_presence, grad_distribution, grad_logit, grad_boxes))
    settings = (_every_pair(logit, boxes, tables), boxes_need_grad)
    chunks = _chunks(logit)
    grad_tables = np.zeros((len(chunks), *tables.shape))  # summed in double precision
    kernel: Any = presence_backward_kernel
    run_chunks(chunks, lambda chunk, *images: kernel(*arrays, *settings, grad_tables[chunk], *images))
    return grad_logit, grad_boxes, torch.from_numpy(grad_tables.sum(0)).to(tables.dtype)
