"""Fused kernels behind autograd: eagerly as plain calls, in a compiled graph as operators.

`torch.compile` takes an operator into its graph as it is. Eagerly the operator's own bookkeeping costs more
than a small call (0.3 ms a call was measured beside an H200), so it is used in graphs only.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from tallybox.counter.once import differentiable_once
from tallybox.counter.state import state_size_cpu, state_size_cuda
from tallybox.kernels.layout import Layout
from tallybox.kernels.proposals import Proposals, as_dtype


class FusedPlan(Protocol):
    """What the sizes of a call by a fused backend decide; images are ``[M * R, N]``, weights ``[M, 8, S]``."""

    @property
    def of_count(self) -> bool:
        """Whether the count is asked for, or the features."""

    def forward(self, attention: Tensor, boxes: Tensor, weight: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the features, and the state that `backward` needs, which begins with the counts ``[M * R]``."""

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
        """Return the gradients of attention, boxes and weight; boxes may get 0 where they need none.

        ``grad`` is that of the count or of the features.
        """


def plan_fused(
    attention: torch.Size, weight: torch.Size, has_mask: bool, max_objects: int, of_count: bool, backend: str
) -> FusedPlan:
    """Plan a call by a backend, whose package others do not need."""
    if backend == "cpu":
        from tallybox.counter.cpu.launch import CpuPlan

        return CpuPlan(max_objects, of_count)
    from tallybox.counter.cuda.launch import plan_triton

    return plan_triton(attention, weight, has_mask, max_objects, of_count)


def result_and_state(plan: FusedPlan, given: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    """Run a plan forward, and pick what is asked for."""
    features, state = plan.forward(*given)
    # The state is much larger than the counts, and they may be kept for longer.
    return (state[: len(features)].clone() if plan.of_count else features), state


class CountFunction(torch.autograd.Function):
    """The count or the features of images ``[M * R, N]`` as planned; differentiable once."""

    @staticmethod
    def forward(
        ctx: Any, attention: Tensor, boxes: Tensor, weight: Tensor, mask: Tensor | None, plan: FusedPlan
    ) -> Tensor:
        """Count, and keep what the gradient needs."""
        result, state = result_and_state(plan, (attention, boxes, weight, mask))
        ctx.save_for_backward(attention, boxes, weight, mask, state)
        ctx.plan = plan
        return result

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of attention, boxes and weight."""
        gradients = ctx.plan.backward(*ctx.saved_tensors, grad.contiguous(), ctx.needs_input_grad[1])
        return (*gradients, None, None)


@torch.library.custom_op("tallybox::count_forward", mutates_args=())
def count_forward(
    attention: Tensor,
    boxes: Tensor,
    weight: Tensor,
    mask: Tensor | None,
    max_objects: int,
    of_count: bool,
    backend: str,
) -> tuple[Tensor, Tensor]:
    """Return the count or the features of images ``[M * R, N]``, and the state that the backward pass needs."""
    plan = plan_fused(attention.shape, weight.shape, mask is not None, max_objects, of_count, backend)
    return result_and_state(plan, (attention, boxes, weight, mask))


@torch.library.custom_op("tallybox::count_backward", mutates_args=())
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
    """Return the gradients of attention, boxes and weight."""
    plan = plan_fused(attention.shape, weight.shape, mask is not None, max_objects, of_count, backend)
    return plan.backward(attention, boxes, weight, mask, state, grad.contiguous(), boxes_need_grad)


@count_forward.register_fake
def _(
    attention: Tensor,
    boxes: Tensor,
    weight: Tensor,
    mask: Tensor | None,
    max_objects: int,
    of_count: bool,
    backend: str,
) -> tuple[Tensor, Tensor]:
    images, number = attention.shape
    segments = weight.shape[-1]
    if backend == "cpu":
        size = state_size_cpu(images, number)
    else:
        size = state_size_cuda(images, number, weight.numel() // (8 * segments), segments)
    result = attention.new_empty(images) if of_count else attention.new_empty(images, max_objects + 1)
    return result, attention.new_empty(size)


@count_backward.register_fake
def _(attention: Tensor, boxes: Tensor, weight: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(attention), torch.empty_like(boxes), torch.empty_like(weight)


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    attention, boxes, weight, mask, *ctx.settings = inputs
    ctx.save_for_backward(attention, boxes, weight, mask, output[1])


def _operator_backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    gradients = count_backward(*ctx.saved_tensors, grad, ctx.needs_input_grad[1], *ctx.settings)
    return (*gradients, None, None, None, None)


count_forward.register_autograd(_operator_backward, setup_context=_keep_for_backward)


def fused_result(attention: Tensor, boxes: Tensor, weight: Tensor, mask: Tensor | None, plan: FusedPlan) -> Tensor:
    """Return the count ``[M * R]`` or the features ``[M * R, max_objects + 1]`` as planned."""
    apply: Any = CountFunction.apply  # torch leaves it untyped
    mask = None if mask is None else mask.contiguous()
    result: Tensor = apply(attention.contiguous(), boxes.contiguous(), weight.contiguous(), mask, plan)
    return result


def fused_result_in_layout(
    proposals: Proposals, weight: Tensor, max_objects: int, of_count: bool, layout: Layout, backend: str
) -> Tensor:
    """Return the count ``[...]`` or the features ``[..., max_objects + 1]`` of proposals in any layout."""
    weight = as_dtype(weight, proposals.attention.dtype)
    attention, boxes = layout.to_list(proposals.attention, 1), layout.to_list(proposals.boxes, 2)
    weight = weight.flatten(0, -3) if weight.dim() > 3 else weight
    mask = None if proposals.mask is None else layout.to_list(proposals.mask, 1)
    if torch.compiler.is_compiling():
        result = count_forward(attention, boxes, weight.contiguous(), mask, max_objects, of_count, backend)[0]
    else:
        plan = plan_fused(attention.shape, weight.shape, mask is not None, max_objects, of_count, backend)
        result = fused_result(attention, boxes, weight, mask, plan)
    return layout.from_list(result)
