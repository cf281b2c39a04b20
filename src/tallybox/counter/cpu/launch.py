"""Launchers: allocate, and share the images out among threads."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tallybox.counter.cpu.lanes_backward import lanes_backward_kernel
from tallybox.counter.cpu.lanes_forward import lanes_forward_kernel
from tallybox.counter.cpu.parts import Array, weight_gradient
from tallybox.counter.cpu.rows_backward import rows_backward_kernel
from tallybox.counter.cpu.rows_forward import rows_forward_kernel
from tallybox.counter.state import state_size_cpu
from tallybox.kernels.cpu.vectors import LANES
from tallybox.kernels.threads import chunks_of, run_chunks

# Eight images at once for at least so many images of a counter: with fewer most lanes run empty (at 36 boxes 3 images
# take 1.3 times as long as one by one, 8 take 0.6 times). And for up to so many boxes: 8 images of 100 would still be
# 1.2 times as fast, but for eight times the scratch memory, and with fewer pieces to share among threads.
LEAST_IMAGES_IN_LANES = 5
MOST_BOXES_IN_LANES = 64


def _images_at_once(images: int, boxes_number: int, counters: int) -> int:
    in_lanes = images >= LEAST_IMAGES_IN_LANES * counters and boxes_number <= MOST_BOXES_IN_LANES
    return LANES if in_lanes else 1


def _steps(boxes_number: int) -> int:
    """Return how much work an image is, in steps over pairs and boxes."""
    return (boxes_number + 4) ** 3


def _array(tensor: Tensor | None) -> Array:
    return np.empty((0, 0), bool) if tensor is None else tensor.detach().numpy()


def _counters(weight: Tensor) -> Tensor:
    return weight.detach().view(-1, *weight.shape[-2:])


def _count_and_rest(state: Tensor, images: int) -> tuple[Tensor, Tensor]:
    """Split the state into counts ``[images]`` and all else that backward needs, ``[images, 1 + N + N * N]``."""
    return state[:images], state[images:].view(images, -1) if images else state.view(0, 0)


class CpuPlan(NamedTuple):
    """What is known of a call before it runs; kernels are chosen then, by as many threads as there are."""

    max_objects: int
    of_count: bool

    def forward(self, attention: Tensor, boxes: Tensor, weight: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return features, and the state that the backward pass needs, with the counts at its beginning."""
        images, number = attention.shape
        features = attention.new_empty(images, self.max_objects + 1)
        state = attention.new_empty(state_size_cpu(images, number))
        counters = _counters(weight)
        given = (attention, boxes, mask, counters, features, *_count_and_rest(state, images))
        arrays = [_array(tensor) for tensor in given]
        at_once = _images_at_once(images, number, len(counters))
        kernel: Any = rows_forward_kernel if at_once == 1 else lanes_forward_kernel
        run_chunks(chunks_of(images, _steps(number), at_once), lambda _, first, stop: kernel(*arrays, first, stop))
        return features, state

    def backward(
        self,
        attention: Tensor,
        boxes: Tensor,
        weight: Tensor,
        mask: Tensor | None,
        state: Tensor,
        grad: Tensor,
        boxes_need_grad: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of attention, boxes and weight; that of boxes is 0 where nobody needs it."""
        images, number = attention.shape
        counters = _counters(weight)
        grad_attention, grad_boxes, grad_weight = (torch.empty_like(t) for t in (attention, boxes, weight))
        grad_features = attention.new_zeros(images, self.max_objects + 1) if self.of_count else grad
        grad_count = grad if self.of_count else attention.new_zeros(images)
        of_results = (*_count_and_rest(state, images), grad_features, grad_count)
        given = (attention, boxes, mask, counters, *of_results, grad_attention, grad_boxes)
        arrays = [_array(tensor) for tensor in given]
        at_once = _images_at_once(images, number, len(counters))
        chunks = chunks_of(images, _steps(number), at_once)
        grad_rise = np.zeros((len(chunks), *counters.shape))
        kernel: Any = rows_backward_kernel if at_once == 1 else lanes_backward_kernel
        run_chunks(chunks, lambda chunk, *ends: kernel(*arrays, grad_rise[chunk], boxes_need_grad, *ends))
        weight_gradient(_array(counters), grad_rise.sum(0), _array(_counters(grad_weight)))
        return grad_attention, grad_boxes, grad_weight
