"""Presence counting as functions: presences and their distribution, features, and the trace of one call."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tallybox.checks import check_count, check_floating, check_proposal_shapes, check_proposal_values
from tallybox.counter.dispatch import Backend, choose_backend
from tallybox.counter.proposals import prepare_proposals
from tallybox.errors import InputError
from tallybox.geometry import box_iou
from tallybox.presence.autograd import fused_presence
from tallybox.presence.reference import (
    PresenceQuantities,
    count_features_of,
    precedes,
    presence_quantities,
    score_logit,
)
from tallybox.presence.trace import PresenceTrace
from tallybox.presence.weights import CELLS, PresenceFunctions, PresenceWeights


class ScoredBoxes(NamedTuple):
    """Checked proposals in one dtype; what is masked is 0."""

    attention: Tensor  # [..., N] as given
    logit: Tensor  # [..., N]
    boxes: Tensor  # [..., N, 4]
    mask: Tensor | None  # [..., N] bool, None when all are real


def presence_features(
    attention: Tensor,
    boxes: Tensor,
    weights: PresenceWeights,
    *,
    max_objects: int = 10,
    mask: Tensor | None = None,
    logits: bool = False,
    backend: Backend = "auto",
) -> Tensor:
    """Return the features of presence counting, ``[..., max_objects + 2]``: log-probabilities, expected count.

    ``attention [..., N]`` in [0, 1] (any real numbers with ``logits=True``), ``boxes [..., N, 4]`` corners in
    any unit, ``mask [..., N]`` True for a real proposal. The leading dimensions of the weights broadcast with
    theirs, so one call can evaluate many differently trained counters.

    >>> from tallybox.presence.weights import initial_weights
    >>> boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0], [2.0, 2.0, 3.0, 3.0]])
    >>> weights = PresenceWeights(*(weight[0] for weight in initial_weights(heads=1, segments=16)))
    >>> presence_features(torch.tensor([1.0, 1.0, 0.5]), boxes, weights, max_objects=3)[-1]  # two objects, or one
    tensor(1.5000)
    """
    check_weights(weights)
    proposals = checked_boxes(attention, boxes, mask, logits=logits, weights_leading=weights.leading)
    check_count("max_objects", max_objects)
    return count_features_of(*presence_and_distribution(proposals, weights, max_objects, backend))


def presence_and_distribution(
    proposals: ScoredBoxes, weights: PresenceWeights, max_objects: int, backend: Backend
) -> tuple[Tensor, Tensor]:
    """Return p ``[..., N]`` and P ``[..., max_objects + 1]`` of checked proposals."""
    logit = proposals.logit
    choice = choose_backend(backend, device=logit.device, dtype=logit.dtype, boxes=0)
    functions = _functions(weights, logit)
    if choice.backend != "reference":
        return fused_presence(logit, proposals.boxes, proposals.mask, functions, max_objects, choice.backend)
    quantities = _reference_quantities(proposals, functions, max_objects)
    return quantities.presence, quantities.distribution


def checked_boxes(
    attention: Tensor,
    boxes: Tensor,
    mask: Tensor | None,
    *,
    logits: bool,
    weights_leading: torch.Size | None = None,
) -> ScoredBoxes:
    """Check the inputs of a call and take the logits of their scores."""
    check_proposal_shapes(attention, boxes, mask, weight_leading=weights_leading or torch.Size())
    check_proposal_values(attention, boxes, mask, logits=logits)
    attention, boxes, mask, _ = prepare_proposals(attention, boxes, mask, max_objects=attention.shape[-1], logits=False)
    return ScoredBoxes(attention, score_logit(attention, logits=logits), boxes, mask)


def for_every_head(proposals: ScoredBoxes) -> ScoredBoxes:
    """Give the proposals a dimension for weights ``[heads, ...]`` to broadcast along."""
    attention, logit, boxes, mask = proposals
    return ScoredBoxes(
        attention.unsqueeze(-2),
        logit.unsqueeze(-2),
        boxes.unsqueeze(-3),
        None if mask is None else mask.unsqueeze(-2),
    )


def presence_trace(
    attention: Tensor,
    boxes: Tensor,
    weights: PresenceWeights,
    *,
    max_objects: int = 10,
    mask: Tensor | None = None,
    logits: bool = False,
) -> PresenceTrace:
    """Return every intermediate quantity of `presence_features` for weights ``[heads, ...]``.

    Always computed by the reference, equation by equation.
    """
    shared = checked_boxes(attention, boxes, mask, logits=logits)
    q = _reference_quantities(for_every_head(shared), _functions(weights, shared.logit), max_objects)
    leading, number = q.presence.shape[:-2], q.presence.shape[-1]
    features = count_features_of(q.presence, q.distribution)
    mask = torch.ones(number, dtype=torch.bool, device=boxes.device) if shared.mask is None else shared.mask
    score = torch.where(mask, shared.attention.sigmoid(), 0) if logits else shared.attention
    count = features[..., -1]
    return PresenceTrace(
        attention=score.expand(*leading, number),
        boxes=shared.boxes.expand(*leading, number, 4),
        mask=mask.expand(*leading, number),
        overlap=box_iou(shared.boxes, shared.boxes).expand(*leading, number, number),
        evidence=q.evidence,
        calibrated=q.calibrated,
        suppression=q.suppression,
        presence=q.presence,
        distribution=q.distribution,
        count=count.squeeze(-1) if count.shape[-1] == 1 else count,
        features=features.flatten(-2),
    )


def check_weights(weights: PresenceWeights) -> None:
    """Raise unless each weight has the shape that `PresenceWeights` says."""
    leading, segments = weights.leading, weights.calibration.shape[-1:]
    table = (CELLS, CELLS + 1)
    expected = {"calibration": segments, "evidence": table, "overlap": table, "order": segments}
    for name, weight in weights._asdict().items():
        check_floating(f"weights.{name}", weight)
        shape = (*leading, *expected.get(name, ()))
        if weight.shape != shape:
            raise InputError(f"weights.{name} must have shape {list(shape)}, but got {list(weight.shape)}")


def _functions(weights: PresenceWeights, like: Tensor) -> PresenceFunctions:
    return PresenceFunctions.of(PresenceWeights(*(weight.to(like.dtype) for weight in weights)))


def _reference_quantities(proposals: ScoredBoxes, functions: PresenceFunctions, max_objects: int) -> PresenceQuantities:
    logit, boxes = proposals.logit, proposals.boxes
    return presence_quantities(
        logit, box_iou(boxes, boxes), precedes(logit, boxes), proposals.mask, functions, max_objects
    )
