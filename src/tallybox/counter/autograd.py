"""Fused kernels behind autograd: eagerly as plain calls, in a compiled graph as operators.

`torch.compile` takes an operator into its graph as it is. Eagerly the operator's own bookkeeping costs more
than a small call (0.3 ms a call was measured beside an H200), so it is used in graphs only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from tallybox.counter.layout import Layout
from tallybox.counter.once import differentiable_once
from tallybox.counter.proposals import Proposals, as_dtype


@cache
def launchers(backend: str) -> tuple[Callable[..., tuple[Tensor, Tensor, Tensor]], ...]:
    """Return the forward and the backward function of a backend, which need packages that others do not."""
    if backend == "cpu":
        from tallybox.counter.cpu.launch import count_backward_cpu, count_forward_cpu

        return count_forward_cpu, count_backward_cpu
    from tallybox.counter.cuda.launch import count_backward_triton, count_forward_triton

    return count_forward_triton, count_backward_triton


def count_forward(
    attention: Tensor, boxes: Tensor, weight: Tensor, mask: Tensor | None, max_objects: int, backend: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return features, count, and the state that the backward pass needs, of images ``[M * R, N]``."""
    return launchers(backend)[0](attention, boxes, weight, mask, max_objects)


def count_backward(
    attention: Tensor,
    boxes: Tensor,
    weight: Tensor,
    mask: Tensor | None,
    count: Tensor,
    state: Tensor,
    grad_features: Tensor,
    grad_count: Tensor | None,
    boxes_need_grad: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of attention, boxes and weight; that of boxes is 0 where a backend may leave it out.

    ``grad_count`` is None where nothing was made of the count.
    """
    return launchers(backend)[1](
        attention, boxes, weight, mask, count, state, grad_features, grad_count, boxes_need_grad
    )


count_forward_operator = torch.library.custom_op("tallybox::count_forward", count_forward, mutates_args=())
count_backward_operator = torch.library.custom_op("tallybox::count_backward", count_backward, mutates_args=())


@count_forward_operator.register_fake
def _(
    attention: Tensor, boxes: Tensor, weight: Tensor, mask: Tensor | None, max_objects: int, backend: str
) -> tuple[Tensor, Tensor, Tensor]:
    images, number = attention.shape
    if backend == "cpu":
        state = attention.new_empty(images, 1 + number + number * number)
    else:
        counters, segments = weight.numel() // (8 * weight.shape[-1]), weight.shape[-1]
        state = attention.new_empty(images * (1 + number + 2 * number * number) + counters * (16 * segments + 1))
    return attention.new_empty(images, max_objects + 1), attention.new_empty(images), state


@count_backward_operator.register_fake
def _(attention: Tensor, boxes: Tensor, weight: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(attention), torch.empty_like(boxes), torch.empty_like(weight)


class CountFunction(torch.autograd.Function):
    """Features and count of images ``[M * R, N]`` by a fused backend; differentiable once."""

    @staticmethod
    def forward(
        ctx: Any,
        attention: Tensor,
        boxes: Tensor,
        weight: Tensor,
        mask: Tensor | None,
        max_objects: int,
        backend: str,
    ) -> tuple[Tensor, Tensor]:
        """Count, and keep what the gradient needs."""
        run: Any = count_forward_operator if torch.compiler.is_compiling() else count_forward
        features, count, state = run(attention, boxes, weight, mask, max_objects, backend)
        ctx.save_for_backward(attention, boxes, weight, mask, count, state)
        ctx.backend = backend
        ctx.max_objects = max_objects
        ctx.set_materialize_grads(False)  # zeros for the count, mostly unused, would be one more launch
        return features, count

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_features: Tensor | None, grad_count: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the gradients of attention, boxes and weight."""
        run: Any = count_backward_operator if torch.compiler.is_compiling() else count_backward
        saved = ctx.saved_tensors
        if grad_features is None:
            grad_features = saved[0].new_zeros(len(saved[0]), ctx.max_objects + 1)
        grad_features = grad_features.contiguous()
        grad_count = None if grad_count is None else grad_count.contiguous()
        gradients = run(*saved, grad_features, grad_count, ctx.needs_input_grad[1], ctx.backend)
        return (*gradients, None, None, None)


def fused_count_and_features(
    attention: Tensor, boxes: Tensor, weight: Tensor, mask: Tensor | None, max_objects: int, backend: str
) -> tuple[Tensor, Tensor]:
    """Return the count ``[M * R]`` and features ``[M * R, max_objects + 1]`` of a plain list of images."""
    apply: Any = CountFunction.apply  # torch leaves it untyped
    mask = None if mask is None else mask.contiguous()
    given = (attention.contiguous(), boxes.contiguous(), weight.contiguous(), mask)
    features, count = apply(*given, max_objects, backend)
    return count, features


def fused_in_layout(
    proposals: Proposals, weight: Tensor, max_objects: int, layout: Layout, backend: str
) -> tuple[Tensor, Tensor]:
    """Return the count ``[...]`` and features ``[..., max_objects + 1]`` of proposals in any layout."""
    attention, boxes, mask, _ = proposals
    weight = as_dtype(weight, attention.dtype)
    count, features = fused_count_and_features(
        layout.to_list(attention, 1),
        layout.to_list(boxes, 2),
        weight.flatten(0, -3) if weight.dim() > 3 else weight,
        None if mask is None else layout.to_list(mask, 1),
        max_objects,
        backend,
    )
    return layout.from_list(count), layout.from_list(features)
