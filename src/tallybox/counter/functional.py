"""The counting component as functions: features, the plain count, and the trace of one call."""

from typing import NamedTuple

import torch
from torch import Tensor

from tallybox.checks import check_count, check_weight
from tallybox.counter.reference import Quantities, count_quantities, proposal_distance
from tallybox.counter.trace import CountTrace
from tallybox.kernels.dispatch import Backend, choose_backend, fused_limit
from tallybox.kernels.operators import Component, Inputs, call_fused
from tallybox.kernels.proposals import Proposals, checked_proposals


class CountResults(NamedTuple):
    """The results of one call."""

    features: Tensor  # [..., max_objects + 1]
    counts: Tensor  # c [...]


def result_shapes(attention: Tensor, max_objects: int) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of features and count for ``attention [I, N]``."""
    images = attention.shape[0]
    return (images, max_objects + 1), (images,)


FUSED = Component("counter", result_shapes)


def count_features(
    attention: Tensor,
    boxes: Tensor | None,
    weight: Tensor,
    *,
    max_objects: int = 10,
    mask: Tensor | None = None,
    distance: Tensor | None = None,
    logits: bool = False,
    backend: Backend = "auto",
) -> Tensor:
    """Return the counting features of the paper (section 4), ``[..., max_objects + 1]``.

    ``attention [..., N]`` in [0, 1] (any real numbers with ``logits=True``), ``boxes [..., N, 4]`` corners in any
    unit, ``mask [..., N]`` True for a real proposal, ``weight [..., 8, segments]`` one row for each activation. All
    leading dimensions broadcast, so one call can evaluate many differently trained counters: ``weight [M, 1, 8, 16]``
    with ``attention [M, B, N]``.

    With ``boxes=None``, ``distance [..., N, N]`` in [0, 1] says how dissimilar two proposals are: one minus the IoU of
    masks or of spans of time, for example. A proposal's distance to itself is 0. It is computed by the reference.

    >>> boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0], [2.0, 2.0, 3.0, 3.0]])
    >>> count_features(torch.ones(3), boxes, torch.ones(8, 16), max_objects=3)  # two objects, one seen twice
    tensor([0., 0., 1., 0.])
    """
    check_count("max_objects", max_objects)
    check_weight(weight, attention)
    leading = weight.shape[:-2]
    proposals = checked_proposals(
        attention, boxes, mask, distance, weight_leading=leading, max_objects=max_objects, logits=logits
    )
    return count_results(proposals, weight, max_objects, backend).features


def count_results(proposals: Proposals, weight: Tensor, max_objects: int, backend: Backend) -> CountResults:
    """Count prepared proposals by the backend that serves them."""
    attention, boxes, mask, _, distance = proposals
    limit = fused_limit(attention, boxes, mask, weight, distance=distance)
    number = attention.shape[-1]
    chosen = choose_backend(backend, device=attention.device, dtype=attention.dtype, boxes=number, limit=limit)
    if chosen == "reference" or boxes is None:
        quantities = reference_quantities(proposals, weight, max_objects)
        return CountResults(quantities.features, quantities.count.squeeze((-2, -1)))
    inputs = Inputs(attention, boxes, mask, [weight.to(attention.dtype)], max_objects, logits=False)
    return CountResults(*call_fused(FUSED, inputs, weight.shape[:-2], chosen))


def reference_quantities(proposals: Proposals, weight: Tensor, max_objects: int) -> Quantities:
    """Follow the equations of the paper for prepared proposals."""
    attention, mask = proposals.attention, proposals.mask
    return count_quantities(attention, distance_of(proposals), weight.to(attention.dtype), mask, max_objects)


def distance_of(proposals: Proposals) -> Tensor:
    """Return D ``[..., n, n]``, as given or from the boxes."""
    if proposals.boxes is not None:
        return proposal_distance(proposals.boxes, proposals.mask)
    assert proposals.distance is not None
    return proposals.distance


def count_trace(shared: Proposals, weight: Tensor, max_objects: int) -> CountTrace:
    """Return every intermediate quantity of `count_features` for ``weight [heads, 8, segments]``.

    Always computed by the reference, equation by equation.
    """
    q = reference_quantities(shared.for_every_head(), weight, max_objects)
    leading = q.features.shape[:-2]
    number = shared.attention.shape[-1]

    def of_heads(quantity: Tensor) -> Tensor:
        """Drop the dimension of heads if there is one head only."""
        quantity = quantity.expand(*leading, len(weight), *quantity.shape[len(leading) + 1 :])
        return quantity.squeeze(len(leading)) if len(weight) == 1 else quantity

    indices = torch.arange(number, device=shared.attention.device) if shared.indices is None else shared.indices
    return CountTrace(
        **shared.expanded(leading),
        indices=indices.expand(*leading, number),
        relevance=q.relevance.squeeze(-3).expand(*leading, number, number),
        distance=distance_of(shared).expand(*leading, number, number),
        deduplicated=of_heads(q.deduplicated),
        similarity=of_heads(q.similarity),
        scale=of_heads(q.scale.squeeze(-1)),
        count_matrix=of_heads(q.count_matrix),
        count=of_heads(q.count.squeeze((-2, -1))),
        confidence=of_heads(q.confidence.squeeze((-2, -1))),
        features=q.features.flatten(-2),
    )
