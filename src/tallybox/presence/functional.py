"""Presence counting as functions: presences and their distribution, features, and the trace of one call."""

from typing import NamedTuple

import torch
from torch import Tensor

from tallybox.boxes import box_iou
from tallybox.checks import check_count, check_device, check_floating
from tallybox.errors import InputError, InputTypeError
from tallybox.kernels.dispatch import Backend, choose_backend, fused_limit
from tallybox.kernels.operators import Component, Inputs, call_fused
from tallybox.kernels.proposals import Proposals, checked_proposals
from tallybox.presence.reference import (
    PresenceQuantities,
    count_features_of,
    precedes,
    presence_quantities,
    score_logit,
)
from tallybox.presence.trace import PresenceTrace
from tallybox.presence.weights import CELLS, PresenceFunctions, PresenceWeights


def presence_features(
    attention: Tensor,
    boxes: Tensor | None,
    weights: PresenceWeights,
    *,
    max_objects: int = 10,
    mask: Tensor | None = None,
    distance: Tensor | None = None,
    logits: bool = False,
    backend: Backend = "auto",
) -> Tensor:
    """Return the features of presence counting, ``[..., max_objects + 2]``: log-probabilities, expected count.

    ``attention [..., N]`` in [0, 1] (any real numbers with ``logits=True``), ``boxes [..., N, 4]`` corners in
    any unit, ``mask [..., N]`` True for a real proposal. The leading dimensions of the weights broadcast with
    theirs, so one call can evaluate many differently trained counters. With ``boxes=None``, one minus
    ``distance [..., N, N]`` in [0, 1] replaces the IoU; equal scores are then ordered by index.

    >>> from tallybox.presence.weights import initial_weights
    >>> boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0], [2.0, 2.0, 3.0, 3.0]])
    >>> weights = PresenceWeights(*(weight[0] for weight in initial_weights(heads=1, segments=16)))
    >>> presence_features(torch.tensor([1.0, 1.0, 0.5]), boxes, weights, max_objects=3)[-1]  # two objects, or one
    tensor(1.5000)
    """
    check_weights(weights, attention)
    check_count("max_objects", max_objects)
    proposals = checked_proposals(attention, boxes, mask, distance, weight_leading=weights.slope.shape, logits=logits)
    return presence_results(proposals, weights, max_objects=max_objects, logits=logits, backend=backend).features


class PresenceResults(NamedTuple):
    """The results of one call."""

    features: Tensor  # [..., max_objects + 2]
    presence: Tensor  # p [..., N]
    distribution: Tensor  # P [..., max_objects + 1]

    @property
    def counts(self) -> Tensor:
        """The expected count ``[...]``."""
        return self.presence.sum(-1)


def result_shapes(logit: Tensor, max_objects: int) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of features, presence and distribution for ``logit [I, N]``."""
    images, number = logit.shape
    return (images, max_objects + 2), (images, number), (images, max_objects + 1)


FUSED = Component("presence", result_shapes)


def presence_results(
    proposals: Proposals, weights: PresenceWeights, *, max_objects: int, logits: bool, backend: Backend
) -> PresenceResults:
    """Count checked proposals by the backend that serves them."""
    attention, boxes, mask, _, distance = proposals
    weights = PresenceWeights(*(weight.to(attention.dtype) for weight in weights))
    limit = fused_limit(attention, boxes, mask, *weights, distance=distance)
    chosen = choose_backend(backend, device=attention.device, dtype=attention.dtype, limit=limit)
    if chosen == "reference" or boxes is None:
        q = _reference_quantities(proposals, weights, max_objects, logits=logits)
        return PresenceResults(count_features_of(q.presence, q.distribution), q.presence, q.distribution)
    if chosen == "triton":  # where small operations cost more than on a CPU, kernels begin with the scores and weights
        inputs = Inputs(attention, boxes, mask, weights, max_objects, logits)
    else:
        table = PresenceFunctions.of(weights).table()
        inputs = Inputs(score_logit(attention, logits=logits), boxes, mask, [table], max_objects, logits=True)
    return PresenceResults(*call_fused(FUSED, inputs, weights.slope.shape, chosen))


def presence_trace(shared: Proposals, weights: PresenceWeights, *, max_objects: int, logits: bool) -> PresenceTrace:
    """Return every intermediate quantity of `presence_features` for weights ``[heads, ...]``.

    Always computed by the reference, equation by equation.
    """
    q = _reference_quantities(shared.for_every_head(), weights, max_objects, logits=logits)
    leading, number = q.presence.shape[:-2], q.presence.shape[-1]
    features = count_features_of(q.presence, q.distribution)
    count = features[..., -1]
    given = shared.expanded(leading)
    if logits:
        given["attention"] = torch.where(given["mask"], given["attention"].sigmoid(), 0)
    return PresenceTrace(
        **given,
        overlap=overlap_of(shared).expand(*leading, number, number),
        **q._asdict(),
        count=count.squeeze(-1) if count.shape[-1] == 1 else count,
        features=features.flatten(-2),
    )


def check_weights(weights: PresenceWeights, attention: Tensor) -> None:
    """Raise unless each weight has its shape in `PresenceWeights` and is on the device of the attention."""
    if not isinstance(weights, PresenceWeights):
        raise InputTypeError(f"weights must be PresenceWeights, but got {type(weights).__name__}")
    named = dict(zip(PresenceWeights._fields, weights, strict=True))  # torch 2.7 cannot compile `weights._asdict()`
    for name, weight in named.items():
        check_floating(f"weights.{name}", weight)
        check_device(f"weights.{name}", weight, attention)
    segments = (max((1, *weights.calibration.shape[-1:])),)
    table = (CELLS, CELLS + 1)
    expected = {"calibration": segments, "evidence": table, "overlap": table, "order": segments}
    for name, weight in named.items():
        shape = (*weights.slope.shape, *expected.get(name, ()))
        if weight.shape != shape:
            raise InputError(f"weights.{name} must have shape {list(shape)}, but got {list(weight.shape)}")


def overlap_of(proposals: Proposals) -> Tensor:
    """Return the IoU of every pair of boxes, or one minus their distance, ``[..., N, N]``."""
    if proposals.boxes is not None:
        return box_iou(proposals.boxes, proposals.boxes)
    assert proposals.distance is not None
    return 1 - proposals.distance


def _reference_quantities(
    proposals: Proposals, weights: PresenceWeights, max_objects: int, *, logits: bool
) -> PresenceQuantities:
    logit = score_logit(proposals.attention, logits=logits)
    overlap, before = overlap_of(proposals), precedes(logit, proposals.boxes)
    f = PresenceFunctions.of(PresenceWeights(*(weight.to(logit.dtype) for weight in weights)))
    return presence_quantities(logit, overlap, before, proposals.mask, f, max_objects)
