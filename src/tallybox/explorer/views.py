"""From traces to what a page draws: plain lists and numbers, one view for each head.

A view is what one set of learned functions computed: ``component``, ``indices`` (which box each row of a matrix is),
``trace`` (the quantities of that head alone) and ``functions`` (what it learned, as points to draw).
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from tallybox.activation import activation_knots
from tallybox.counter.trace import CountTrace
from tallybox.presence.reference import calibrated_score
from tallybox.presence.trace import PresenceTrace
from tallybox.presence.weights import PresenceFunctions, PresenceWeights

View = dict[str, Any]

# Quantities of a trace that do not depend on the head, and so have no dimension for it.
SHARED_BY_HEADS = {"attention", "boxes", "mask", "indices", "relevance", "distance", "overlap"}

# Scores at which φ is drawn.
DRAWN_SCORES = 65


def trace_of_head(trace: CountTrace | PresenceTrace, head: int, heads: int) -> dict[str, Any]:
    """Return the quantities of one head of a trace without leading dimensions, masked proposals left out."""
    real = trace.mask.nonzero().squeeze(-1)
    taken: dict[str, Any] = {}
    for field in fields(trace):
        value: Tensor = getattr(trace, field.name).detach()
        if field.name == "features":
            value = value.unflatten(-1, (heads, -1))[head]
        elif field.name not in SHARED_BY_HEADS and _has_heads(trace, field.name, heads):
            value = value[head]
        for dimension in range(_proposal_dimensions(field.name)):
            value = value.index_select(dimension, real)
        taken[field.name] = value.tolist()
    return taken


def _has_heads(trace: CountTrace | PresenceTrace, name: str, heads: int) -> bool:
    """Say whether a quantity has a dimension for the heads: with one head, those of a presence trace keep it."""
    return heads > 1 or (isinstance(trace, PresenceTrace) and name != "count")


def _proposal_dimensions(name: str) -> int:
    if name in {"relevance", "distance", "deduplicated", "similarity", "count_matrix"}:
        return 2
    if name in {"overlap", "evidence", "suppression"}:
        return 2
    return int(name in {"attention", "boxes", "mask", "indices", "scale", "calibrated", "presence"})


def paper_view(trace: CountTrace, weight: Tensor, head: int = 0) -> View:
    """Return the view of one head of the paper's component; ``weight [heads, 8, segments]``."""
    quantities = trace_of_head(trace, head, weight.shape[0])
    return {
        "component": "paper",
        "indices": quantities["indices"],
        "trace": quantities,
        "functions": {"activations": activation_knots(weight.detach()[head]).tolist()},
    }


def presence_view(trace: PresenceTrace, weights: PresenceWeights, head: int = 0) -> View:
    """Return the view of one head of presence counting; weights ``[heads, ...]``."""
    quantities = trace_of_head(trace, head, weights.leading[-1])
    functions = PresenceFunctions.of(PresenceWeights(*(weight.detach()[head] for weight in weights)))
    return {
        "component": "presence",
        "indices": list(range(len(quantities["presence"]))),
        "trace": quantities,
        "functions": presence_curves(functions),
    }


def presence_curves(functions: PresenceFunctions) -> dict[str, Any]:
    """Return the functions of one head as points: φ and τ as (x, y), η and κ as tables by overlap and score."""
    scores = torch.linspace(0, 1, DRAWN_SCORES, dtype=functions.slope.dtype)
    worth = calibrated_score(scores.clamp(1e-6, 1 - 1e-6).logit(), scores.new_zeros(DRAWN_SCORES, 1), functions)
    order = functions.order
    ahead = torch.linspace(0, 1, len(order), dtype=order.dtype)
    before = [(x, y) for x, y in zip(ahead.tolist(), order.tolist(), strict=True) if x <= 0.5]
    after = [(x, y) for x, y in zip(ahead.tolist(), (order + functions.step).tolist(), strict=True) if x >= 0.5]
    return {
        "phi": [list(point) for point in zip(scores.tolist(), worth.tolist(), strict=True)],
        "tau": [list(point) for point in (*before, *after)],
        "eta": functions.overlap.tolist(),
        "kappa": functions.evidence.tolist(),
        "slope": functions.slope.item(),
        "shift": functions.shift.item(),
        "sharpness": functions.sharpness.item(),
        "step": functions.step.item(),
    }


def rounded(value: Any, digits: int = 5) -> Any:
    """Keep so many significant digits of every number of nested lists and dicts: pages stay small."""
    if isinstance(value, dict):
        return {key: rounded(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item, digits) for item in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value
