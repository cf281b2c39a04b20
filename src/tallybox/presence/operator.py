"""The component's operator: images in one list, fused kernels, and their gradient."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from tallybox.kernels.operators import define_operator, refuse_derivatives


def launchers(backend: str) -> ModuleType:
    """Import the launchers of a fused backend, whose package the others do not need."""
    if backend == "cpu":
        from tallybox.presence.cpu import launch
    else:
        from tallybox.presence.cuda import launch  # type: ignore[no-redef]
    return launch


def allocate_results(
    attention: Tensor,
    boxes: Tensor,
    tables: Tensor,
    mask: Tensor | None,
    max_objects: int,
    logits: bool,
    save_state: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return features, presence, distribution and saved state, not yet written."""
    images, number = attention.shape
    features, distribution = attention.new_empty(images, max_objects + 2), attention.new_empty(images, max_objects + 1)
    state = attention.new_empty(images, launchers(backend).state_size(number, max_objects, save_state))
    return features, torch.empty_like(attention), distribution, state


def presence_forward(
    attention: Tensor,
    boxes: Tensor,
    tables: Tensor,
    mask: Tensor | None,
    max_objects: int,
    logits: bool,
    save_state: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return features ``[M * R, K + 2]``, presence ``[M * R, N]``, distribution ``[M * R, K + 1]``, and saved state.

    ``attention [M * R, N]``, ``boxes [M * R, N, 4]``, ``tables [M, T]`` (`PresenceFunctions.table`),
    ``mask [M * R, N]``, all contiguous. A backward pass needs ``save_state``.
    """
    results = allocate_results(attention, boxes, tables, mask, max_objects, logits, save_state, backend)
    launchers(backend).forward(attention, boxes, tables, mask, *results, logits)
    return results


def presence_backward(
    attention: Tensor,
    boxes: Tensor,
    tables: Tensor,
    mask: Tensor | None,
    state: Tensor,
    grad_features: Tensor,
    grad_presence: Tensor,
    grad_distribution: Tensor,
    logits: bool,
    boxes_need_grad: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of attention, boxes and tables; boxes may get 0 where they need none."""
    grads = (grad.contiguous() for grad in (grad_features, grad_presence, grad_distribution))
    gradients: tuple[Tensor, Tensor, Tensor] = launchers(backend).backward(
        attention, boxes, tables, mask, state, *grads, logits, boxes_need_grad
    )
    return gradients


def _allocate_gradients(attention: Tensor, boxes: Tensor, tables: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(attention), torch.empty_like(boxes), torch.empty_like(tables)


presence_operator = define_operator(presence_forward, allocate_results)
presence_backward_operator = define_operator(presence_backward, _allocate_gradients)
refuse_derivatives(presence_backward)


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    attention, boxes, tables, mask, ctx.max_objects, ctx.logits, _, ctx.backend = inputs
    ctx.save_for_backward(attention, boxes, tables, mask, output[3])
    ctx.mark_non_differentiable(output[3])
    ctx.set_materialize_grads(False)  # zeros for the state would be as large as the state


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    attention = ctx.saved_tensors[0]
    images, number = attention.shape  # len() would fix the number of images in a compiled graph
    shapes = ((images, ctx.max_objects + 2), (images, number), (images, ctx.max_objects + 1))
    given = [attention.new_zeros(s) if grad is None else grad for s, grad in zip(shapes, grads[:3], strict=True)]
    gradients = presence_backward_operator(*ctx.saved_tensors, *given, ctx.logits, ctx.needs_input_grad[1], ctx.backend)
    return (*gradients, None, None, None, None, None)


torch.library.register_autograd("tallybox::presence_forward", _backward, setup_context=_save_for_backward)
