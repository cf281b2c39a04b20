"""From a user's inputs to those of a component: checks, dtype, masking, the n largest weights, logistic."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from tallybox.checks import check_proposal_shapes, check_proposal_values, is_exporting


class Proposals(NamedTuple):
    """The proposals that take part: at most ``max_objects``, weights in [0, 1], all in one dtype."""

    attention: Tensor  # [..., n], 0 where masked
    boxes: Tensor | None  # [..., n, 4]; None if distances are given
    mask: Tensor | None  # [..., n] bool, None when all are real
    indices: Tensor | None = None  # [..., n] which of the N were kept, None when all of them
    distance: Tensor | None = None  # [..., n, n] with a diagonal of 0, where masked 0; None if boxes are given

    # A method: torch 2.7 cannot compile properties of named tuples.
    def is_one_image(self) -> bool:
        """Whether no input has leading dimensions."""
        pairwise = self.distance if self.boxes is None else self.boxes
        no_mask = self.mask is None or self.mask.dim() == 1
        return self.attention.dim() == 1 and no_mask and pairwise is not None and pairwise.dim() == 2

    def for_every_head(self) -> "Proposals":
        """Add a dimension for weights ``[heads, ...]`` to broadcast along."""
        return Proposals(
            self.attention.unsqueeze(-2),
            None if self.boxes is None else self.boxes.unsqueeze(-3),
            None if self.mask is None else self.mask.unsqueeze(-2),
            None if self.indices is None else self.indices.unsqueeze(-2),
            None if self.distance is None else self.distance.unsqueeze(-3),
        )

    def expanded(self, leading: torch.Size) -> dict[str, Any]:
        """Return attention, boxes and mask by name as a trace shows them, with all leading dimensions."""
        shape = (*leading, self.attention.shape[-1])
        real = torch.ones(shape, dtype=torch.bool, device=self.attention.device)
        return {
            "attention": self.attention.expand(shape),
            "boxes": None if self.boxes is None else self.boxes.expand(*shape, 4),
            "mask": real if self.mask is None else self.mask.expand(shape),
        }


def checked_proposals(
    attention: Tensor,
    boxes: Tensor | None,
    mask: Tensor | None,
    distance: Tensor | None = None,
    *,
    weight_leading: tuple[int, ...] = (),
    max_objects: int | None = None,
    logits: bool,
) -> Proposals:
    """Check the inputs of a call whose weight has the dimensions ``weight_leading``, and prepare their proposals.

    Without ``max_objects`` all proposals stay, and logits stay logits.
    """
    check_proposal_shapes(attention, boxes, mask, distance, weight_leading=torch.Size(weight_leading))
    check_proposal_values(attention, boxes, mask, distance, logits=logits)
    if max_objects is None:
        return prepare_proposals(attention, boxes, mask, distance, max_objects=attention.shape[-1], logits=False)
    return prepare_proposals(attention, boxes, mask, distance, max_objects=max_objects, logits=logits)


def prepare_proposals(
    attention: Tensor,
    boxes: Tensor | None,
    mask: Tensor | None,
    distance: Tensor | None = None,
    *,
    max_objects: int,
    logits: bool,
) -> Proposals:
    """Keep the ``max_objects`` largest weights and bring them into [0, 1].

    Selection is on the weights as given, before the logistic, which could make distinct large weights equal;
    among equal weights the first proposal is kept.
    """
    dtype = torch.float64 if attention.dtype == torch.float64 else torch.float32  # areas in pixels overflow halves
    attention = attention.to(dtype)
    boxes = None if boxes is None else boxes.to(dtype)
    distance = None if distance is None else distance.to(dtype)
    indices = None
    if attention.shape[-1] > max_objects:
        lists = [tensor.shape for tensor in (attention, mask) if tensor is not None]
        matrices = [tensor.shape[:-1] for tensor in (boxes, distance) if tensor is not None]
        shape = torch.broadcast_shapes(*lists, *matrices)
        weights = attention.detach().expand(shape)
        if mask is not None:
            weights = weights.masked_fill(~mask, -torch.inf)
        if is_exporting():
            # ONNX knows no stable sort; its top-k keeps the first of equal weights, as we do.
            indices = weights.topk(max_objects, dim=-1).indices
        else:
            indices = weights.sort(dim=-1, descending=True, stable=True).indices[..., :max_objects]
        attention = attention.expand(shape).gather(-1, indices)
        boxes = None if boxes is None else _rows(boxes, indices)
        distance = None if distance is None else _rows(_rows(distance, indices).mT, indices).mT
        mask = None if mask is None else mask.expand(shape).gather(-1, indices)
    if mask is not None:
        # The content of a masked proposal, NaN included, reaches neither a result nor a gradient.
        attention = torch.where(mask, attention, 0)
        boxes = None if boxes is None else torch.where(mask.unsqueeze(-1), boxes, 0)
    if distance is not None:
        is_pair = ~torch.eye(distance.shape[-1], dtype=torch.bool, device=distance.device)
        if mask is not None:
            is_pair = is_pair & mask.unsqueeze(-1) & mask.unsqueeze(-2)
        distance = torch.where(is_pair, distance, 0)
    if logits:
        attention = attention.sigmoid()
        if mask is not None:
            attention = torch.where(mask, attention, 0)
    return Proposals(attention, boxes, mask, indices, distance)


def _rows(matrix: Tensor, indices: Tensor) -> Tensor:
    """Select rows of ``[..., N, k]``, of which leading dimensions may be missing, by ``[..., n]``."""
    matrix = matrix.expand(*indices.shape[:-1], *matrix.shape[-2:])
    return matrix.gather(-2, indices.unsqueeze(-1).expand(*indices.shape, matrix.shape[-1]))
