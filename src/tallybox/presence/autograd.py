"""Fused kernels of presence counting behind autograd: eagerly as plain calls, in a compiled graph as operators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tallybox.counter.once import differentiable_once
from tallybox.kernels.layout import Layout
from tallybox.presence.table import counters_and_segments, state_size_cpu, state_size_cuda, table_size
from tallybox.presence.weights import PresenceWeights


def presence_forward(
    attention: Tensor,
    boxes: Tensor,
    weights: list[Tensor],
    mask: Tensor | None,
    max_objects: int,
    logits: bool,
    differentiable: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return features, presence and distribution of images ``[M * R, N]``, and what the backward pass needs.

    ``weights`` are those of `PresenceWeights`, each ``[M, ...]``, or without M for one counter. The last two
    results are each counter's functions at their knots, and the images' state.
    """
    given = (attention, boxes, weights, mask, max_objects, logits)
    if backend == "cpu":
        from tallybox.presence.cpu.launch import presence_forward_cpu

        return presence_forward_cpu(*given, differentiable=differentiable)
    from tallybox.presence.cuda.launch import presence_forward_triton

    return presence_forward_triton(*given)


def presence_backward(
    attention: Tensor,
    boxes: Tensor,
    weights: list[Tensor],
    mask: Tensor | None,
    tables: Tensor,
    state: Tensor,
    grad_features: Tensor,
    grad_presence: Tensor | None,
    grad_distribution: Tensor | None,
    logits: bool,
    boxes_need_grad: bool,
    backend: str,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return the gradients of attention, boxes and weights; that of boxes is 0 where a backend may leave it out.

    ``grad_presence`` and ``grad_distribution`` are None where nothing was made of them.
    """
    grads = (grad_features, grad_presence, grad_distribution)
    given = (attention, boxes, weights, mask, tables, state, grads)
    if backend == "cpu":
        from tallybox.presence.cpu.launch import presence_backward_cpu

        return presence_backward_cpu(*given, boxes_need_grad=boxes_need_grad)
    from tallybox.presence.cuda.launch import presence_backward_triton

    return presence_backward_triton(*given, logits)


presence_forward_operator = torch.library.custom_op("tallybox::presence_forward", presence_forward, mutates_args=())
presence_backward_operator = torch.library.custom_op("tallybox::presence_backward", presence_backward, mutates_args=())


@presence_forward_operator.register_fake
def _(
    attention: Tensor,
    boxes: Tensor,
    weights: list[Tensor],
    mask: Tensor | None,
    max_objects: int,
    logits: bool,
    differentiable: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    images, number = attention.shape
    counters, segments = counters_and_segments(weights)
    size = state_size_cpu(number) * differentiable if backend == "cpu" else state_size_cuda(number, max_objects)
    return (
        attention.new_empty(images, max_objects + 2),
        torch.empty_like(attention),
        attention.new_empty(images, max_objects + 1),
        attention.new_empty(counters, table_size(segments)),
        attention.new_empty(images, size),
    )


@presence_backward_operator.register_fake
def _(attention: Tensor, boxes: Tensor, weights: list[Tensor], *_: Any) -> tuple[Tensor, Tensor, list[Tensor]]:
    return torch.empty_like(attention), torch.empty_like(boxes), [torch.empty_like(weight) for weight in weights]


class PresenceFunction(torch.autograd.Function):
    """Features, presence and distribution of images ``[M * R, N]`` by a fused backend; differentiable once."""

    @staticmethod
    def forward(
        ctx: Any,
        attention: Tensor,
        boxes: Tensor,
        mask: Tensor | None,
        max_objects: int,
        logits: bool,
        differentiable: bool,
        backend: str,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Count, and keep what the gradient needs."""
        run: Any = presence_forward_operator if torch.compiler.is_compiling() else presence_forward
        results = run(attention, boxes, list(weights), mask, max_objects, logits, differentiable, backend)
        features, presence, distribution, tables, state = results
        ctx.save_for_backward(attention, boxes, mask, tables, state, *weights)
        ctx.logits = logits
        ctx.backend = backend
        ctx.max_objects = max_objects
        ctx.set_materialize_grads(False)  # zeros for results that are mostly unused would be launches of their own
        return features, presence, distribution

    @staticmethod
    @differentiable_once
    def backward(
        ctx: Any, grad_features: Tensor | None, grad_presence: Tensor | None, grad_distribution: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients of attention, boxes and weights."""
        run: Any = presence_backward_operator if torch.compiler.is_compiling() else presence_backward
        attention, boxes, mask, tables, state, *weights = ctx.saved_tensors
        if grad_features is None:
            grad_features = attention.new_zeros(len(attention), ctx.max_objects + 2)
        grads = [
            None if grad is None else grad.contiguous() for grad in (grad_features, grad_presence, grad_distribution)
        ]
        grad_attention, grad_boxes, grad_weights = run(
            attention, boxes, weights, mask, tables, state, *grads, ctx.logits, ctx.needs_input_grad[1], ctx.backend
        )
        return grad_attention, grad_boxes, None, None, None, None, None, *grad_weights


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
    leading = weights.leading
    layout = Layout.of(leading, attention.shape[:-1], boxes.shape[:-2], *([] if mask is None else [mask.shape[:-1]]))
    listed = weights
    if len(leading) > 1:  # none at all is a list of one
        listed = PresenceWeights(*(weight.reshape(-1, *weight.shape[len(leading) :]) for weight in weights))
    differentiable = torch.is_grad_enabled() and any(value.requires_grad for value in (attention, boxes, *weights))
    apply: Any = PresenceFunction.apply  # torch leaves it untyped
    results = apply(
        layout.to_list(attention, 1),
        layout.to_list(boxes, 2),
        None if mask is None else layout.to_list(mask, 1),
        max_objects,
        logits,
        differentiable,
        backend,
        *(weight.contiguous() for weight in listed),
    )
    features, presence, distribution = (layout.from_list(result) for result in results)
    return features, presence, distribution
