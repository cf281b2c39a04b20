"""The component's operator: images in one list, fused kernels, and their gradient."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from tallybox.counter.saved import SavedState
from tallybox.kernels.operators import define_operator, refuse_derivatives


def launchers(backend: str) -> ModuleType:
    """Import the launchers of a fused backend, whose package the others do not need."""
    if backend == "cpu":
        from tallybox.counter.cpu import launch
    else:
        from tallybox.counter.cuda import launch  # type: ignore[no-redef]
    return launch


def allocate_results(
    attention: Tensor, boxes: Tensor, weight: Tensor, mask: Tensor | None, max_objects: int, backend: str
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return features, count and saved state, not yet written."""
    images, number = attention.shape
    counters, _, segments = weight.shape
    products = attention.new_empty(images, number, number)
    is_triton = backend == "triton"
    return (
        attention.new_empty(images, max_objects + 1),
        attention.new_empty(images),
        attention.new_empty(images),
        attention.new_empty(images, number),
        products,
        torch.empty_like(products) if is_triton else attention.new_empty(0),
        attention.new_empty(counters, 2, 8, segments) if is_triton else attention.new_empty(0),
    )


def count_forward(
    attention: Tensor, boxes: Tensor, weight: Tensor, mask: Tensor | None, max_objects: int, backend: str
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return features ``[M * R, max_objects + 1]``, count ``[M * R]``, and the saved state.

    ``attention [M * R, N]``, ``boxes [M * R, N, 4]``, ``weight [M, 8, S]``, ``mask [M * R, N]``, all contiguous.
    """
    results = allocate_results(attention, boxes, weight, mask, max_objects, backend)
    features, count, *saved = results
    launchers(backend).forward(attention, boxes, weight, mask, features, count, SavedState(*saved))
    return results


def count_backward(
    attention: Tensor,
    boxes: Tensor,
    weight: Tensor,
    mask: Tensor | None,
    count: Tensor,
    saved: list[Tensor],
    grad_features: Tensor | None,
    grad_count: Tensor | None,
    max_objects: int,
    boxes_need_grad: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of attention, boxes and weight; boxes may get 0 where they need none."""
    grads = (None if grad is None else grad.contiguous() for grad in (grad_features, grad_count))
    gradients: tuple[Tensor, Tensor, Tensor] = launchers(backend).backward(
        attention, boxes, weight, mask, count, SavedState(*saved), *grads, max_objects, boxes_need_grad
    )
    return gradients


def _allocate_gradients(attention: Tensor, boxes: Tensor, weight: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(attention), torch.empty_like(boxes), torch.empty_like(weight)


count_operator = define_operator(count_forward, allocate_results)
count_backward_operator = define_operator(count_backward, _allocate_gradients)
refuse_derivatives(count_backward)


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    attention, boxes, weight, mask, ctx.max_objects, ctx.backend = inputs
    _, count, *saved = output
    ctx.save_for_backward(attention, boxes, weight, mask, count, *saved)
    ctx.mark_non_differentiable(*saved)
    ctx.set_materialize_grads(False)  # a call makes use of the features or of the count


def _backward(ctx: Any, grad_features: Tensor | None, grad_count: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    attention, boxes, weight, mask, count, *saved = ctx.saved_tensors
    gradients = count_backward_operator(
        attention,
        boxes,
        weight,
        mask,
        count,
        saved,
        grad_features,
        grad_count,
        ctx.max_objects,
        ctx.needs_input_grad[1],
        ctx.backend,
    )
    return (*gradients, None, None, None)


torch.library.register_autograd("tallybox::count_forward", _backward, setup_context=_save_for_backward)
