"""The counting component as functions: features, the plain count, and the trace of one call."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from tallybox.boxes import box_iou
from tallybox.checks import check_count, check_proposal_shapes, check_proposal_values, check_weight
from tallybox.counter.autograd import FusedPlan, fused_result, fused_result_in_layout, plan_fused
from tallybox.counter.reference import Quantities, count_quantities
from tallybox.counter.trace import CountTrace
from tallybox.kernels.dispatch import Backend, choose_backend
from tallybox.kernels.layout import Layout
from tallybox.kernels.proposals import Proposals, computed_in, for_every_head, prepare_proposals
from tallybox.shapes import by_shape, is_symbolic

Result = Literal["features", "count"]


def count_features(
    attention: Tensor,
    boxes: Tensor,
    weight: Tensor,
    *,
    max_objects: int = 10,
    mask: Tensor | None = None,
    logits: bool = False,
    backend: Backend = "auto",
) -> Tensor:
    """Return the counting features of the paper (section 4), ``[..., max_objects + 1]``.

    ``attention [..., N]`` in [0, 1] (any real numbers with ``logits=True``), ``boxes [..., N, 4]``
    corners in any unit, ``mask [..., N]`` True for a real proposal, ``weight [..., 8, segments]`` one
    row for each activation. All leading dimensions broadcast, so one call can evaluate many
    differently trained counters: ``weight [M, 1, 8, 16]`` with ``attention [M, B, N]``.

    >>> boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0], [2.0, 2.0, 3.0, 3.0]])
    >>> count_features(torch.ones(3), boxes, torch.ones(8, 16), max_objects=3)  # two objects, one seen twice
    tensor([0., 0., 1., 0.])
    """
    return count_result(attention, boxes, weight, mask, max_objects, logits, backend, "features")


def count_result(
    attention: Tensor,
    boxes: Tensor,
    weight: Tensor,
    mask: Tensor | None,
    max_objects: int,
    logits: bool,
    backend: Backend,
    asked_for: Result,
) -> Tensor:
    """Return the count c ``[...]`` or the features ``[..., max_objects + 1]`` of one call."""
    plan = plan_count(attention, boxes, weight, mask, max_objects, backend, asked_for)
    check_proposal_values(attention, boxes, mask, logits=logits)
    if plan.as_given is not None:
        return fused_result(attention.sigmoid() if logits else attention, boxes, weight, None, plan.as_given)
    proposals = prepare_proposals(attention, boxes, mask, max_objects=max_objects, logits=logits)
    return planned_result(plan, proposals, weight)


class Plan(NamedTuple):
    """What the shapes, dtypes and devices of a call decide."""

    max_objects: int
    of_count: bool
    backend: str
    layout: Layout  # for a fused backend
    as_given: FusedPlan | None  # where it takes the inputs as they are: one list of images, every proposal of them


@by_shape
def plan_count(
    attention: Tensor,
    boxes: Tensor,
    weight: Tensor,
    mask: Tensor | None,
    max_objects: int,
    backend: Backend,
    asked_for: Result,
) -> Plan:
    """Check that inputs fit together, and choose who counts them."""
    check_count("max_objects", max_objects)
    check_weight(weight, attention)
    of_weights = weight.shape[:-2]
    check_proposal_shapes(attention, boxes, mask, weight_leading=of_weights)
    number = min(attention.shape[-1], max_objects)
    dtype = computed_in(attention.dtype)
    choice = choose_backend(backend, device=attention.device, dtype=dtype, boxes=number)
    leading = [attention.shape[:-1], boxes.shape[:-2], *([] if mask is None else [mask.shape[:-1]])]
    is_plain = (
        choice.backend != "reference"
        and not is_symbolic()
        and attention.dtype == boxes.dtype == weight.dtype == dtype
        and len(leading[0]) == 1
        and leading == [leading[0], leading[0]]
        and of_weights in ((), (1,))
        and number == attention.shape[-1]
    )
    of_count = asked_for == "count"
    shapes = (attention.shape, weight.shape)
    as_given = plan_fused(*shapes, False, max_objects, of_count, choice.backend) if is_plain else None
    return Plan(max_objects, of_count, choice.backend, Layout.of(of_weights, *leading), as_given)


def planned_result(plan: Plan, proposals: Proposals, weight: Tensor) -> Tensor:
    """Return the count c ``[...]`` or the features ``[..., max_objects + 1]`` of prepared proposals."""
    max_objects, of_count, backend, layout, _ = plan
    if backend != "reference":
        return fused_result_in_layout(proposals, weight, max_objects, of_count, layout, backend)
    quantities = reference_quantities(proposals, weight, max_objects)
    return quantities.count.squeeze((-2, -1)) if of_count else quantities.features


def checked_proposals(
    attention: Tensor,
    boxes: Tensor,
    mask: Tensor | None,
    *,
    max_objects: int,
    logits: bool,
) -> Proposals:
    """Check the inputs of a call for several heads, and prepare their proposals."""
    check_proposal_shapes(attention, boxes, mask, weight_leading=torch.Size())
    check_proposal_values(attention, boxes, mask, logits=logits)
    return prepare_proposals(attention, boxes, mask, max_objects=max_objects, logits=logits)


def proposal_distance(proposals: Proposals) -> Tensor:
    """D = 1 - IoU (eq. 2), exactly 0 for a box with itself: ``[..., n, n]``, 0 where masked."""
    distance = 1 - box_iou(proposals.boxes, proposals.boxes)
    if proposals.mask is None:
        return distance
    return torch.where(proposals.mask.unsqueeze(-1) & proposals.mask.unsqueeze(-2), distance, 0)


def reference_quantities(proposals: Proposals, weight: Tensor, max_objects: int) -> Quantities:
    """Follow the equations of the paper for prepared proposals."""
    return count_quantities(
        proposals.attention,
        proposal_distance(proposals),
        weight.to(proposals.attention.dtype),
        proposals.mask,
        max_objects,
    )


def count_trace(
    attention: Tensor,
    boxes: Tensor,
    weight: Tensor,
    *,
    max_objects: int = 10,
    mask: Tensor | None = None,
    logits: bool = False,
) -> CountTrace:
    """Return every intermediate quantity of `count_features` for ``weight [heads, 8, segments]``.

    Always computed by the reference, equation by equation.
    """
    heads = weight.shape[0]
    shared = checked_proposals(attention, boxes, mask, max_objects=max_objects, logits=logits)
    q = reference_quantities(for_every_head(shared), weight, max_objects)

    def of_heads(quantity: Tensor, leading: torch.Size) -> Tensor:
        """Drop the heads dimension where there is one head only."""
        quantity = quantity.expand(*leading, *quantity.shape[len(leading) :])
        return quantity.squeeze(len(leading) - 1) if heads == 1 else quantity

    kept = shared.attention.shape
    leading = q.features.shape[:-1]  # [..., heads]
    proposals_shape = (*leading[:-1], kept[-1])
    indices = shared.indices
    if indices is None:
        indices = torch.arange(kept[-1], device=attention.device)
    mask_kept = shared.mask
    if mask_kept is None:
        mask_kept = torch.ones(kept[-1], dtype=torch.bool, device=attention.device)
    return CountTrace(
        attention=shared.attention.expand(proposals_shape),
        boxes=shared.boxes.expand(*proposals_shape, 4),
        mask=mask_kept.expand(proposals_shape),
        indices=indices.expand(proposals_shape),
        relevance=q.relevance.squeeze(-3).expand(*proposals_shape, kept[-1]),
        distance=proposal_distance(shared).expand(*proposals_shape, kept[-1]),
        deduplicated=of_heads(q.deduplicated, leading),
        similarity=of_heads(q.similarity, leading),
        scale=of_heads(q.scale.squeeze(-1), leading),
        count_matrix=of_heads(q.count_matrix, leading),
        count=of_heads(q.count.squeeze((-2, -1)), leading),
        confidence=of_heads(q.confidence.squeeze((-2, -1)), leading),
        features=q.features.flatten(-2),
    )
