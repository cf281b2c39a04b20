"""Fused kernels behind autograd: eagerly as plain calls, in a compiled graph as operators.

`torch.compile` takes an operator into its graph as it is. Eagerly the operator's own bookkeeping costs more
than a small call (0.3 ms a call was measured beside an H200), so it is used in graphs only.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tallybox.counter.layout import Layout
from tallybox.counter.once import differentiable_once
from tallybox.counter.proposals import Proposals, as_dtype


class Launchers(NamedTuple):
    """The functions of a backend."""

    plan: Any  # (attention's shape, weight's shape, has mask, max_objects, of count): what these decide
    forward: Any  # (plan, attention, boxes, weight, mask): features, state
    backward: Any  # (plan, attention, boxes, weight, mask, state, gradient, boxes need one): gradients


@cache
def launchers(backend: str) -> Launchers:
    """Return the functions of a backend, which need packages that others do not."""
    if backend == "cpu":
        from tallybox.counter.cpu.launch import count_backward_cpu, count_forward_cpu, plan_count_cpu

        return Launchers(plan_count_cpu, count_forward_cpu, count_backward_cpu)
    from tallybox.counter.cuda.launch import count_backward_triton, count_forward_triton, plan_count_triton

    return Launchers(plan_count_triton, count_forward_triton, count_backward_triton)


def count_forward(
    attention: Tensor, boxes: Tensor, weight: Tensor, mask: Tensor | None, max_objects: int, backend: str
) -> tuple[Tensor, Tensor]:
    """Return features of images ``[M * R, N]``, and the state that the backward pass needs.

    The state begins with the counts ``[M * R]``.
    """
    launch = launchers(backend)
    plan = launch.plan(attention.shape, weight.shape, mask is not None, max_objects, False)
    results: tuple[Tensor, Tensor] = launch.forward(plan, attention, boxes, weight, mask)
    return results


def count_backward(
    attention: Tensor,
    boxes: Tensor,
    weight: Tensor,
    mask: Tensor | None,
    state: Tensor,
    grad: Tensor,
    boxes_need_grad: bool,
    max_objects: int,
    of_count: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of attention, boxes and weight; that of boxes is 0 where a backend may leave it out.

    ``grad`` is that of the features, or that of the count.
    """
    launch = launchers(backend)
    plan = launch.plan(attention.shape, weight.shape, mask is not None, max_objects, of_count)
    given = (attention, boxes, weight, mask, state, grad, boxes_need_grad)
    gradients: tuple[Tensor, Tensor, Tensor] = launch.backward(plan, *given)
    return gradients


count_forward_operator = torch.library.custom_op("tallybox::count_forward", count_forward, mutates_args=())
count_backward_operator = torch.library.custom_op("tallybox::count_backward", count_backward, mutates_args=())


@count_forward_operator.register_fake
def _(
    attention: Tensor, boxes: Tensor, weight: Tensor, mask: Tensor | None, max_objects: int, backend: str
) -> tuple[Tensor, Tensor]:
    images, number = attention.shape
    size = images * (2 + number + number * number)
    if backend == "triton":
        segments = weight.shape[-1]
        counters = weight.numel() // (8 * segments)
        size += images * number * number + counters * (16 * segments + 1)
    return attention.new_empty(images, max_objects + 1), attention.new_empty(size)


@count_backward_operator.register_fake
def _(attention: Tensor, boxes: Tensor, weight: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(attention), torch.empty_like(boxes), torch.empty_like(weight)


class CountFunction(torch.autograd.Function):
    """The count or the features of images ``[M * R, N]`` by a fused backend; differentiable once."""

    @staticmethod
    def forward(
        ctx: Any,
        attention: Tensor,
        boxes: Tensor,
        weight: Tensor,
        mask: Tensor | None,
        max_objects: int,
        of_count: bool,
        backend: str,
    ) -> Tensor:
        """Count, and keep what the gradient needs."""
        if torch.compiler.is_compiling():
            ctx.plan = None
            ctx.settings = (max_objects, of_count, backend)
            features, state = count_forward_operator(attention, boxes, weight, mask, max_objects, backend)
        else:
            # Backward runs in a thread of its own, where whatever is left to work out takes longest.
            plan, forward, ctx.backward_by = launchers(backend)
            ctx.plan = plan(attention.shape, weight.shape, mask is not None, max_objects, of_count)
            features, state = forward(ctx.plan, attention, boxes, weight, mask)
        ctx.save_for_backward(attention, boxes, weight, mask, state)
        # The state is much larger than the counts, and they may be kept for longer.
        result: Tensor = state[: len(features)].clone() if of_count else features
        return result

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of attention, boxes and weight."""
        given = (*ctx.saved_tensors, grad.contiguous(), ctx.needs_input_grad[1])
        if ctx.plan is None:
            gradients = count_backward_operator(*given, *ctx.settings)
        else:
            gradients = ctx.backward_by(ctx.plan, *given)
        return (*gradients, None, None, None, None)


def fused_result(
    attention: Tensor,
    boxes: Tensor,
    weight: Tensor,
    mask: Tensor | None,
    max_objects: int,
    of_count: bool,
    backend: str,
) -> Tensor:
    """Return the count ``[M * R]`` or the features ``[M * R, max_objects + 1]`` of a plain list of images."""
    apply: Any = CountFunction.apply  # torch leaves it untyped
    mask = None if mask is None else mask.contiguous()
    given = (attention.contiguous(), boxes.contiguous(), weight.contiguous(), mask)
    result: Tensor = apply(*given, max_objects, of_count, backend)
    return result


def fused_result_in_layout(
    proposals: Proposals, weight: Tensor, max_objects: int, of_count: bool, layout: Layout, backend: str
) -> Tensor:
    """Return the count ``[...]`` or the features ``[..., max_objects + 1]`` of proposals in any layout."""
    attention, boxes, mask, _ = proposals
    weight = as_dtype(weight, attention.dtype)
    result = fused_result(
        layout.to_list(attention, 1),
        layout.to_list(boxes, 2),
        weight.flatten(0, -3) if weight.dim() > 3 else weight,
        None if mask is None else layout.to_list(mask, 1),
        max_objects,
        of_count,
        backend,
    )
    return layout.from_list(result)
