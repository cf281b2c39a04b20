"""Launchers: share the images out among threads."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tallybox.concurrency import chunks_of, run_chunks
from tallybox.kernels.cpu.compiling import as_arrays, as_rows
from tallybox.kernels.operators import Inputs
from tallybox.presence.cpu.backward import presence_backward_kernel
from tallybox.presence.cpu.forward import presence_forward_kernel
from tallybox.presence.cpu.image import saved_size


def _every_pair(inputs: Inputs) -> bool:
    """Whether boxes apart influence each other too: 0 times NaN is NaN."""
    return not math.isfinite(sum(tensor.sum().item() for tensor in (*inputs[:2], *inputs.weights)))


def _chunks(inputs: Inputs) -> list[tuple[int, int]]:
    images, number = inputs.attention.shape
    return chunks_of(images, 20 * (number + 4) ** 2)  # steps over pairs


def state_size(inputs: Inputs, save_state: bool) -> int:
    """Return how many numbers the forward kernel saves."""
    images, number = inputs.attention.shape
    return images * saved_size(number) if save_state else 0


def forward(inputs: Inputs, results: Sequence[Tensor], state: Tensor) -> None:
    """Write features, presence, distribution and, unless it is empty, the saved state."""
    arrays = (
        as_arrays(*inputs[:3], *inputs.weights),
        as_arrays(*results),
        as_rows(state, len(inputs.attention)),
        _every_pair(inputs),
    )
    kernel: Any = presence_forward_kernel
    run_chunks(_chunks(inputs), lambda _, *images: kernel(*arrays, *images))


def backward(inputs: Inputs, state: Tensor, grads: Sequence[Tensor], boxes_need_grad: bool) -> list[Tensor]:
    """Return the gradients of logits, boxes and tables; that of boxes is 0 where nobody needs it."""
    grad_logit, grad_boxes = torch.empty_like(inputs.attention), torch.empty_like(inputs.boxes)
    arrays = (as_arrays(*inputs[:3], *inputs.weights), as_rows(state, len(inputs.attention)), as_arrays(*grads))
    written, settings = as_arrays(grad_logit, grad_boxes), (_every_pair(inputs), boxes_need_grad)
    chunks = _chunks(inputs)
    grad_tables = np.zeros((len(chunks), *inputs.weights[0].shape))  # summed in double precision
    kernel: Any = presence_backward_kernel
    run_chunks(chunks, lambda chunk, *images: kernel(*arrays, written, grad_tables[chunk], *settings, *images))
    return [grad_logit, grad_boxes, torch.from_numpy(grad_tables.sum(0)).to(inputs.weights[0].dtype)]
