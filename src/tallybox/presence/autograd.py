"""Fused kernels of presence counting behind autograd: eagerly as plain calls, in a compiled graph as operators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tallybox.counter.layout import Layout
from tallybox.presence.weights import PresenceFunctions, calibration_edges


def presence_forward(
    logit: Tensor, boxes: Tensor, tables: Tensor, edges: Tensor, mask: Tensor | None, max_objects: int, backend: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return presence, distribution, and the state that the backward pass needs, of images ``[M * R, N]``.

    ``tables [M, T]`` holds each counter's functions as `pack` lays them out; at ``edges [S + 1]`` φ's segments meet.
    """
    given = (logit, boxes, tables, edges, mask, max_objects)
    if backend == "cpu":
        from tallybox.presence.cpu.launch import presence_forward_cpu

        return presence_forward_cpu(*given)
    from tallybox.presence.cuda.launch import presence_forward_triton

    return presence_forward_triton(*given)


def presence_backward(
    logit: Tensor,
    boxes: Tensor,
    tables: Tensor,
    edges: Tensor,
    mask: Tensor | None,
    state: Tensor,
    grad_presence: Tensor,
    grad_distribution: Tensor,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of logits, boxes and tables."""
    given = (logit, boxes, tables, edges, mask, state, grad_presence, grad_distribution)
    if backend == "cpu":
        from tallybox.presence.cpu.launch import presence_backward_cpu

        return presence_backward_cpu(*given)
    from tallybox.presence.cuda.launch import presence_backward_triton

    return presence_backward_triton(*given)


presence_forward_operator = torch.library.custom_op("tallybox::presence_forward", presence_forward, mutates_args=())
presence_backward_operator = torch.library.custom_op("tallybox::presence_backward", presence_backward, mutates_args=())


@presence_forward_operator.register_fake
def _(
    logit: Tensor, boxes: Tensor, tables: Tensor, edges: Tensor, mask: Tensor | None, max_objects: int, backend: str
) -> tuple[Tensor, Tensor, Tensor]:
    images, number = logit.shape
    size = 0 if backend == "cpu" else number * number + 4 * number + (number + 1) * (max_objects + 1)
    state = logit.new_empty(images, size)  # as the launchers allocate it
    return torch.empty_like(logit), logit.new_empty(images, max_objects + 1), state


@presence_backward_operator.register_fake
def _(logit: Tensor, boxes: Tensor, tables: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(logit), torch.empty_like(boxes), torch.empty_like(tables)


class PresenceFunction(torch.autograd.Function):
    """Presence and distribution of images ``[M * R, N]`` by a fused backend; differentiable once."""

    @staticmethod
    def forward(
        ctx: Any,
        logit: Tensor,
        boxes: Tensor,
        tables: Tensor,
        edges: Tensor,
        mask: Tensor | None,
        max_objects: int,
        backend: str,
    ) -> tuple[Tensor, Tensor]:
        """Count, and keep what the gradient needs."""
        run: Any = presence_forward_operator if torch.compiler.is_compiling() else presence_forward
        presence, distribution, state = run(logit, boxes, tables, edges, mask, max_objects, backend)
        ctx.save_for_backward(logit, boxes, tables, edges, mask, state)
        ctx.backend = backend
        return presence, distribution

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_presence: Tensor, grad_distribution: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of logits, boxes and tables."""
        run: Any = presence_backward_operator if torch.compiler.is_compiling() else presence_backward
        gradients = run(*ctx.saved_tensors, grad_presence.contiguous(), grad_distribution.contiguous(), ctx.backend)
        return (*gradients, None, None, None, None)


def pack(f: PresenceFunctions) -> Tensor:
    """Lay all functions out as one table ``[..., T]``: α, β, γ, the step, then φ, τ, κ and η at their knots."""
    numbers = torch.stack((f.slope, f.shift, f.sharpness, f.step), dim=-1)
    return torch.cat((numbers, f.calibration, f.order, f.evidence.flatten(-2), f.overlap.flatten(-2)), dim=-1)


def fused_presence(
    logit: Tensor, boxes: Tensor, mask: Tensor | None, f: PresenceFunctions, max_objects: int, backend: str
) -> tuple[Tensor, Tensor]:
    """Return p ``[..., N]`` and P ``[..., max_objects + 1]`` by a fused backend."""
    tables = pack(f)
    leading = [logit.shape[:-1], boxes.shape[:-2], *([] if mask is None else [mask.shape[:-1]])]
    layout = Layout.of(tables.shape[:-1], *leading)
    apply: Any = PresenceFunction.apply  # torch leaves it untyped
    presence, distribution = apply(
        layout.to_list(logit, 1),
        layout.to_list(boxes, 2),
        tables.reshape(-1, tables.shape[-1]).contiguous(),
        calibration_edges(f.calibration.shape[-1] - 1, logit),
        None if mask is None else layout.to_list(mask, 1),
        max_objects,
        backend,
    )
    return layout.from_list(presence), layout.from_list(distribution)
