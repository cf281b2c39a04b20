"""Launchers: allocate, and share the images out among threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tallybox.counter.cpu.backward import count_backward_kernel
from tallybox.counter.cpu.forward import count_forward_kernel
from tallybox.counter.cpu.parts import Array, weight_gradient

# Fewer pair-and-box steps than this are not worth waking another thread for.
STEPS_PER_THREAD = 20_000


@cache
def _threads(number: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(number, thread_name_prefix="tallybox")


os.register_at_fork(after_in_child=_threads.cache_clear)  # a forked child has none of its parent's threads


def _share_out(images: int, boxes_number: int, run: Callable[[int, int, int], None]) -> None:
    """Call run(chunk, first, stop) for consecutive chunks of the images, on as many threads as torch uses."""
    chunks = _chunk_number(images, boxes_number)
    borders = np.linspace(0, images, chunks + 1).astype(int).tolist()
    if chunks == 1:
        run(0, 0, images)
        return
    pool = _threads(torch.get_num_threads())
    for done in [pool.submit(run, chunk, *borders[chunk : chunk + 2]) for chunk in range(chunks)]:
        done.result()


def _chunk_number(images: int, boxes_number: int) -> int:
    worth = images * (boxes_number + 4) ** 3 // STEPS_PER_THREAD
    return int(max(1, min(images, worth, torch.get_num_threads())))


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
    _share_out(images, number, lambda _, first, stop: kernel(*arrays, first, stop))
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
    grad_rise = np.zeros((_chunk_number(images, number), *counters.shape))  # one for each chunk
    kernel: Any = count_backward_kernel
    _share_out(
        images, number, lambda chunk, first, stop: kernel(*arrays, grad_rise[chunk], boxes_need_grad, first, stop)
    )
    weight_gradient(_array(counters), grad_rise.sum(0), _array(_counters(grad_weight)))
    return grad_attention, grad_boxes, grad_weight
