"""The component's operator: images in one list, fused kernels, and their gradient."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from tallybox.errors import BackendError
from tallybox.kernels.layout import Layout
from tallybox.presence.weights import PresenceFunctions, PresenceWeights


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


presence_operator = torch.library.custom_op("tallybox::presence_forward", presence_forward, mutates_args=())
presence_operator.register_fake(allocate_results)
presence_backward_operator = torch.library.custom_op("tallybox::presence_backward", presence_backward, mutates_args=())
presence_backward_operator.register_fake(_allocate_gradients)


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    attention, boxes, tables, mask, ctx.max_objects, ctx.logits, _, ctx.backend = inputs
    ctx.save_for_backward(attention, boxes, tables, mask, output[3])
    ctx.mark_non_differentiable(output[3])
    ctx.set_materialize_grads(False)  # zeros for the state would be as large as the state


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    attention = ctx.saved_tensors[0]
    shapes = ((len(attention), ctx.max_objects + 2), attention.shape, (len(attention), ctx.max_objects + 1))
    given = [attention.new_zeros(s) if grad is None else grad for s, grad in zip(shapes, grads[:3], strict=True)]
    gradients = presence_backward_operator(*ctx.saved_tensors, *given, ctx.logits, ctx.needs_input_grad[1], ctx.backend)
    return (*gradients, None, None, None, None, None)


def _refuse(ctx: Any, *grads: Tensor | None) -> None:
    raise BackendError('the fused backends cannot differentiate twice; use backend="reference"')


presence_operator.register_autograd(_backward, setup_context=_save_for_backward)
presence_backward_operator.register_autograd(_refuse)


def fused_presence(
    attention: Tensor,
    boxes: Tensor,
    mask: Tensor | None,
    weights: PresenceWeights,
    max_objects: int,
    logits: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return features ``[..., max_objects + 2]``, p ``[..., N]`` and P ``[..., max_objects + 1]``."""
    masks = [] if mask is None else [mask.shape[:-1]]
    layout = Layout.of(weights.leading, attention.shape[:-1], boxes.shape[:-2], *masks)
    table = PresenceFunctions.of(weights).table()
    save_state = torch.is_grad_enabled() and any(value.requires_grad for value in (attention, boxes, table))
    features, presence, distribution, _ = presence_operator(
        layout.to_list(attention, 1),
        layout.to_list(boxes, 2),
        table.reshape(-1, table.shape[-1]),
        None if mask is None else layout.to_list(mask, 1),
        max_objects,
        logits,
        save_state,
        backend,
    )
    return layout.from_list(features), layout.from_list(presence), layout.from_list(distribution)
