"""Fused kernels as PyTorch operators, and the autograd function that joins a forward with its backward.

Operators (not plain calls), so that `torch.compile` takes them into its graph as they are.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tallybox.counter.layout import Layout
from tallybox.counter.proposals import Proposals


@torch.library.custom_op("tallybox::count_forward", mutates_args=())
def count_forward(
    attention: Tensor,
    boxes: Tensor,
    weight: Tensor,
    mask: Tensor | None,
    max_objects: int,
    keep: bool,
    backend: str,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return features, count, and what the backward pass needs."""
    if backend == "cpu":
        from tallybox.counter.cpu_kernels import count_forward_cpu

        return count_forward_cpu(attention, boxes, weight, mask, max_objects, keep)
    from tallybox.counter.triton_kernels import count_forward_triton

    return count_forward_triton(attention, boxes, weight, mask, max_objects, keep)


@count_forward.register_fake
def _(
    attention: Tensor,
    boxes: Tensor,
    weight: Tensor,
    mask: Tensor | None,
    max_objects: int,
    keep: bool,
    backend: str,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    images, number = attention.shape
    square = attention.new_empty(images, number, number)
    products = square if keep else attention.new_empty(0, 0, 0)
    kept = [attention.new_empty(images), torch.empty_like(attention), products]  # certainty, scale, products
    if backend == "triton":
        kept = [*kept[:2], torch.empty_like(square), products, torch.empty_like(weight), torch.empty_like(weight)]
    return attention.new_empty(images, max_objects + 1), attention.new_empty(images), kept


@torch.library.custom_op("tallybox::count_backward", mutates_args=())
def count_backward(
    attention: Tensor,
    boxes: Tensor,
    weight: Tensor,
    mask: Tensor | None,
    count: Tensor,
    kept: list[Tensor],
    grad_features: Tensor,
    grad_count: Tensor,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of attention, boxes and weight."""
    given = (attention, boxes, weight, mask, count, kept, grad_features, grad_count)
    if backend == "cpu":
        from tallybox.counter.cpu_kernels import count_backward_cpu

        return count_backward_cpu(*given)
    from tallybox.counter.triton_kernels import count_backward_triton

    return count_backward_triton(*given)


@count_backward.register_fake
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
        keep: bool,
        backend: str,
    ) -> tuple[Tensor, Tensor]:
        """Count, and keep what the gradient needs."""
        features, count, kept = count_forward(attention, boxes, weight, mask, max_objects, keep, backend)
        ctx.save_for_backward(attention, boxes, weight, mask, count, *kept)
        ctx.backend = backend
        return features, count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_features: Tensor, grad_count: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of attention, boxes and weight."""
        attention, boxes, weight, mask, count, *kept = ctx.saved_tensors
        gradients = count_backward(
            attention,
            boxes,
            weight,
            mask,
            count,
            kept,
            grad_features.contiguous(),
            grad_count.contiguous(),
            ctx.backend,
        )
        return (*gradients, None, None, None, None)


def fused_count_and_features(
    proposals: Proposals, weight: Tensor, max_objects: int, backend: str
) -> tuple[Tensor, Tensor]:
    """Return the count ``[...]`` and features ``[..., max_objects + 1]`` by a fused backend."""
    attention, boxes, mask, _ = proposals
    layout = Layout.of(weight, attention.shape[:-1], boxes.shape[:-2], *([] if mask is None else [mask.shape[:-1]]))
    weight = weight.to(attention.dtype).reshape(-1, *weight.shape[-2:]).contiguous()
    keep = torch.is_grad_enabled() and any(t.requires_grad for t in (attention, boxes, weight))
    features, count = CountFunction.apply(
        layout.to_list(attention, 1),
        layout.to_list(boxes, 2),
        weight,
        None if mask is None else layout.to_list(mask, 1),
        max_objects,
        keep,
        backend,
    )
    return layout.from_list(count), layout.from_list(features)
