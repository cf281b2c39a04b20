"""From what a user passes to what the equations take: dtype, masking, the n largest weights, logistic."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Proposals(NamedTuple):
    """The proposals that take part: at most ``max_objects``, weights in [0, 1], all in one dtype."""

    attention: Tensor  # [..., n], 0 where masked
    boxes: Tensor  # [..., n, 4]
    mask: Tensor | None  # [..., n] bool, None when all are real
    indices: Tensor | None  # [..., n] which of the N were kept, None when all of them


def prepare_proposals(
    attention: Tensor, boxes: Tensor, mask: Tensor | None, *, max_objects: int, logits: bool
) -> Proposals:
    """Keep the ``max_objects`` largest weights and bring them into [0, 1].

    Selection is on the weights as given, before the logistic, which could make distinct large weights equal;
    among equal weights the first proposal is kept.
    """
    dtype = computed_in(attention.dtype)
    attention, boxes = as_dtype(attention, dtype), as_dtype(boxes, dtype)
    indices = None
    if attention.shape[-1] > max_objects:
        attention, boxes, mask = _to_common_leading_dimensions(attention, boxes, mask)
        weights = attention.detach()
        if mask is not None:
            weights = weights.masked_fill(~mask, -torch.inf)
        if torch.compiler.is_exporting():
            # ONNX knows no stable sort; its top-k keeps the first of equal weights, as we do.
            indices = weights.topk(max_objects, dim=-1).indices
        else:
            indices = weights.sort(dim=-1, descending=True, stable=True).indices[..., :max_objects]
        attention = attention.gather(-1, indices)
        boxes = boxes.gather(-2, indices.unsqueeze(-1).expand(*indices.shape, 4))
        mask = None if mask is None else mask.gather(-1, indices)
    if mask is not None:
        # Whatever stands in a masked place, NaN included, reaches neither a result nor a gradient.
        attention = torch.where(mask, attention, 0)
        boxes = torch.where(mask.unsqueeze(-1), boxes, 0)
    if logits:
        attention = attention.sigmoid()
        if mask is not None:
            attention = torch.where(mask, attention, 0)
    return Proposals(attention, boxes, mask, indices)


def computed_in(dtype: torch.dtype) -> torch.dtype:
    """Return what is computed in: float64 for float64, else float32. Areas in pixels overflow half precision.

    >>> computed_in(torch.float16)
    torch.float32
    """
    return torch.float64 if dtype == torch.float64 else torch.float32


def as_dtype(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert a tensor where it needs to be; torch takes 4 µs to find that it does not."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def _to_common_leading_dimensions(
    attention: Tensor, boxes: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    shapes = [attention.shape[:-1], boxes.shape[:-2]]
    if mask is not None:
        shapes.append(mask.shape[:-1])
    leading = torch.broadcast_shapes(*shapes)
    number = attention.shape[-1]
    return (
        attention.expand(*leading, number),
        boxes.expand(*leading, number, 4),
        None if mask is None else mask.expand(*leading, number),
    )


def for_every_head(proposals: Proposals) -> Proposals:
    """Give the proposals a dimension for weights ``[heads, ...]`` to broadcast along."""
    attention, boxes, mask, indices = proposals
    return Proposals(
        attention.unsqueeze(-2),
        boxes.unsqueeze(-3),
        None if mask is None else mask.unsqueeze(-2),
        None if indices is None else indices.unsqueeze(-2),
    )
