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


def _array(tensor: Tensor | None) -> Array:
    return np.empty((0, 0), bool) if tensor is None else tensor.detach().numpy()


def presence_forward_cpu(
    logit: Tensor, boxes: Tensor, tables: Tensor, edges: Tensor, mask: Tensor | None, max_objects: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return presence, distribution, and no state: the backward pass computes everything anew."""
    images, number = logit.shape
    presence, distribution = torch.empty_like(logit), logit.new_empty(images, max_objects + 1)
    arrays = [_array(tensor) for tensor in (logit, boxes, tables, edges, mask, presence, distribution)]
    kernel: Any = presence_forward_kernel
    run_chunks(chunks_of(images, _steps(number)), lambda _, first, stop: kernel(*arrays, first, stop))
    return presence, distribution, logit.new_empty(images, 0)


def presence_backward_cpu(
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
    grad_logit, grad_boxes = torch.empty_like(logit), torch.empty_like(boxes)
    given = (logit, boxes, tables, edges, mask, grad_presence, grad_distribution, grad_logit, grad_boxes)
    arrays = [_array(tensor) for tensor in given]
    chunks = chunks_of(images, _steps(number))
    owed = np.zeros((len(chunks), *tables.shape))
    kernel: Any = presence_backward_kernel
    run_chunks(chunks, lambda chunk, first, stop: kernel(*arrays, owed[chunk], first, stop))
    return grad_logit, grad_boxes, torch.from_numpy(owed.sum(0)).to(tables.dtype)


def _steps(number: int) -> int:
    """Return how much work an image of so many boxes is, in steps over pairs."""
    return 20 * (number + 4) ** 2
