"""Answer a request to explain: boxes and weights through one component, as the library computes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tallybox.counter.module import Counter
from tallybox.detections.baselines import Thresholds
from tallybox.detections.container import Detections
from tallybox.errors import InputError
from tallybox.explorer.counting import counting_of_component
from tallybox.explorer.schemas import ExplainRequest
from tallybox.explorer.weights import UNTRAINED, WeightSet, paper_component, presence_component
from tallybox.presence.module import PresenceCounter

Sets = Mapping[str, list[WeightSet]]


def explained(request: ExplainRequest, sets: Sets) -> dict[str, Any]:
    """Return the fields of `ExplainAnswer`."""
    # Checks boxes and weights as every other way in does.
    checked = Detections(request.boxes, request.attention, np.zeros(len(request.attention), np.int64))  # type: ignore[arg-type]  # lists are taken
    thresholds = Thresholds(request.nms.iou, request.nms.score)
    counting = counting_of_component("", checked.boxes, checked.scores, _component(request, sets), thresholds)
    view = counting["views"][0]
    return {
        "component": request.component,
        **{name: counting[name] for name in ("count", "distribution", "presence", "merged_into", "baselines", "steps")},
        "confidence": view["trace"].get("confidence"),
        **{name: view[name] for name in ("indices", "trace", "functions")},
    }


def warm_up(sets: Sets) -> None:
    """Explain once with each component: what is loaded and made on first use (2 s) need not wait for a visitor."""
    for component in ("paper", "presence"):
        asked = {"component": component, "boxes": [[0.0, 0.0, 1.0, 1.0]], "attention": [1.0]}
        explained(ExplainRequest.model_validate(asked), sets)


def _component(request: ExplainRequest, sets: Sets) -> Counter | PresenceCounter:
    if request.activations is not None:
        if request.component != "paper" or request.weights != UNTRAINED:
            raise InputError("activations must come with component 'paper' and without weights, but got both")
        return paper_component(request.activations, request.max_objects)
    found = next((one for one in sets[request.component] if one["name"] == request.weights), None)
    if found is None:
        known = ", ".join(one["name"] for one in sets[request.component][:6])
        raise InputError(f"weights must be a set that GET /v1/weights lists ({known} ...), but got another name")
    make = paper_component if request.component == "paper" else presence_component
    return make(found["weights"], request.max_objects)
