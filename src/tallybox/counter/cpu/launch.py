"""Launchers: allocate, and share the images out among threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tallybox.counter.cpu.backward import count_backward_kernel
from tallybox.counter.cpu.forward import count_forward_kernel
from tallybox.counter.cpu.parts import Array, weight_gradient
from tallybox.counter.cpu.threads import chunk_number, share_out


def _array(tensor: Tensor | None) -> Array:
    return np.empty((0, 0), bool) if tensor is None else tensor.detach().numpy()


def _counters(weight: Tensor) -> Tensor:
    return weight.detach().view(-1, *weight.shape[-2:])


def count_forward_cpu(
    attention: Tensor, boxes: Tensor, weight: Tensor, mask: Tensor | None, max_objects: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Count ``attention [M * R, N]`` with ``weight [M, 8, S]`` or ``[8, S]``.

    Return features, count, and the state that the backward pass needs.
    """
    images, number = attention.shape
    features = attention.new_empty(images, max_objects + 1)
    count = attention.new_empty(images)
    state = attention.new_empty(images * (1 + number + number * number))
    arrays = [_array(tensor) for tensor in (attention, boxes, mask, _counters(weight), features, count, state)]
    kernel: Any = count_forward_kernel
    share_out(images, steps_of(number), lambda _, first, stop: kernel(*arrays, first, stop))
    return features, count, state


def count_backward_cpu(
    attention: Tensor,
    boxes: Tensor,
    weight: Tensor,
    mask: Tensor | None,
    count: Tensor,
    state: Tensor,
    grad_features: Tensor,
    grad_count: Tensor,
    *,
    boxes_need_grad: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of attention, boxes and weight; that of boxes is 0 where nobody needs it."""
    images, number = attention.shape
    counters = _counters(weight)
    grad_attention, grad_boxes, grad_weight = (torch.empty_like(t) for t in (attention, boxes, weight))
    given = (attention, boxes, mask, counters, count, state, grad_features, grad_count, grad_attention, grad_boxes)
    arrays = [_array(tensor) for tensor in given]
    grad_rise = np.zeros((chunk_number(images, steps_of(number)), *counters.shape))  # one for each chunk
    kernel: Any = count_backward_kernel
    share_out(
        images,
        steps_of(number),
        lambda chunk, first, stop: kernel(*arrays, grad_rise[chunk], boxes_need_grad, first, stop),
    )
    weight_gradient(_array(counters), grad_rise.sum(0), _array(_counters(grad_weight)))
    return grad_attention, grad_boxes, grad_weight


def steps_of(number: int) -> int:
    """Return how much work an image of so many boxes is: steps over pairs and boxes."""
    return (number + 4) ** 3
