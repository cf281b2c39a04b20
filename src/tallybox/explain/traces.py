"""From the traces of the components to plain lists and numbers, one head at a time."""

from dataclasses import dataclass, field, fields
from typing import Any, Literal

import torch
from torch import Tensor

from tallybox.activation import activation_knots
from tallybox.counter.module import Counter
from tallybox.counter.trace import CountTrace
from tallybox.presence.module import PresenceCounter
from tallybox.presence.reference import calibrated_score
from tallybox.presence.trace import PresenceTrace
from tallybox.presence.weights import PresenceFunctions, PresenceWeights

ComponentName = Literal["counter", "presence"]  # as in JSON, on the command line and in estimator files

# Quantities of a trace with one and with two dimensions that run over proposals; the others have none.
OF_PROPOSALS = {"attention", "boxes", "mask", "indices", "scale", "calibrated", "presence"}
OF_PAIRS = {"relevance", "distance", "deduplicated", "similarity", "count_matrix", "overlap", "evidence", "suppression"}
# Quantities that do not depend on the head, and so have no dimension for it.
SHARED_BY_HEADS = {"attention", "boxes", "mask", "indices", "relevance", "distance", "overlap"}

PHI_POINTS = 65  # scores at which φ is drawn


@dataclass(frozen=True)
class HeadTrace:
    """What one head of a component computed. The service's OpenAPI document shows the descriptions of fields."""

    component: ComponentName
    indices: list[int] = field(metadata={"description": "Which box each row of the trace is."})
    trace: dict[str, Any] = field(metadata={"description": "The CountTrace or PresenceTrace of the library."})
    functions: dict[str, Any] = field(metadata={"description": "The learned functions, as points to draw."})


def head_trace(trace: CountTrace | PresenceTrace, component: Counter | PresenceCounter, head: int) -> HeadTrace:
    """Return one head of a component's trace without leading dimensions, masked proposals left out."""
    if isinstance(component, Counter):
        quantities = _quantities(trace, head, component.weight.shape[0])
        knots = activation_knots(component.weight.detach()[head]).tolist()
        return HeadTrace("counter", quantities["indices"], quantities, {"activations": knots})
    quantities = _quantities(trace, head, component.weights.slope.shape[-1])
    weights = PresenceWeights(*(weight.detach()[head] for weight in component.weights))
    indices = list(range(len(quantities["presence"])))
    return HeadTrace("presence", indices, quantities, presence_curves(PresenceFunctions.of(weights)))


def _quantities(trace: CountTrace | PresenceTrace, head: int, heads: int) -> dict[str, Any]:
    """Return the quantities of one head by name."""
    by_name: dict[str, Any] = {}
    for name in (quantity.name for quantity in fields(trace)):
        value: Tensor = getattr(trace, name).detach()
        # With one head, the quantities of a presence trace keep their dimension for it.
        has_heads = heads > 1 or (isinstance(trace, PresenceTrace) and name != "count")
        if name == "features":
            value = value.unflatten(-1, (heads, -1))[head]
        elif has_heads and name not in SHARED_BY_HEADS:
            value = value[head]
        if name in OF_PROPOSALS | OF_PAIRS:
            value = value[trace.mask]
        if name in OF_PAIRS:
            value = value[:, trace.mask]
        by_name[name] = value.tolist()
    return by_name


def presence_curves(functions: PresenceFunctions) -> dict[str, Any]:
    """Return the functions of one head as points: φ and τ as (x, y), η and κ as tables by overlap and score."""
    scores = torch.linspace(0, 1, PHI_POINTS, dtype=functions.slope.dtype)
    phi = calibrated_score(scores.clamp(1e-6, 1 - 1e-6).logit(), scores.new_zeros(PHI_POINTS, 1), functions)
    lead = torch.linspace(0, 1, len(functions.order), dtype=functions.order.dtype)
    below = torch.stack((lead, functions.order), -1)[lead <= 0.5]
    above = torch.stack((lead, functions.order + functions.step), -1)[lead >= 0.5]  # the step at equal scores
    return {
        "phi": torch.stack((scores, phi), -1).tolist(),
        "tau": torch.cat((below, above)).tolist(),
        "eta": functions.overlap.tolist(),
        "kappa": functions.evidence.tolist(),
        **{name: getattr(functions, name).item() for name in ("slope", "shift", "sharpness", "step")},
    }
