"""From what a user passes to what components compute with: dtype, masking, the n largest weights, logistic."""

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
    dtype = torch.float64 if attention.dtype == torch.float64 else torch.float32  # areas in pixels overflow halves
    attention, boxes = attention.to(dtype), boxes.to(dtype)
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
        # What a masked proposal holds, NaN included, reaches neither a result nor a gradient.
        attention = torch.where(mask, attention, 0)
        boxes = torch.where(mask.unsqueeze(-1), boxes, 0)
    if logits:
        attention = attention.sigmoid()
        if mask is not None:
            attention = torch.where(mask, attention, 0)
    return Proposals(attention, boxes, mask, indices)


def _to_common_leading_dimensions(
    attention: Tensor, boxes: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    shapes = [attention.shape, boxes.shape[:-1], *([] if mask is None else [mask.shape])]
    shape = torch.broadcast_shapes(*shapes)
    return attention.expand(shape), boxes.expand(*shape, 4), None if mask is None else mask.expand(shape)


def for_every_head(proposals: Proposals) -> Proposals:
    """Give the proposals a dimension for weights ``[heads, ...]`` to broadcast along."""
    attention, boxes, mask, indices = proposals
    return Proposals(
        attention.unsqueeze(-2),
        boxes.unsqueeze(-3),
        None if mask is None else mask.unsqueeze(-2),
        None if indices is None else indices.unsqueeze(-2),
    )
