"""Count the boxes of a request with one component, and keep every intermediate quantity."""

from __future__ import annotations

import numpy as np

from tallybox.counter.module import Counter
from tallybox.detections.baselines import Thresholds
from tallybox.detections.container import Detections
from tallybox.drawing.counting import Counting, count_with_component
from tallybox.errors import InputError
from tallybox.presence.module import PresenceCounter
from tallybox.service.models import ExplainRequest
from tallybox.service.weights import UNTRAINED, WeightSets, counter_with_knots, presence_with_weights


def explain(request: ExplainRequest, sets: WeightSets) -> Counting:
    """Count boxes with the component and the weights that a request names."""
    # Checks boxes and weights by the rules that hold for every other input.
    checked = Detections(request.boxes, request.attention, np.zeros(len(request.attention), np.int64))  # type: ignore[arg-type]  # lists are taken
    thresholds = Thresholds(request.nms.iou, request.nms.score)
    return count_with_component(checked.boxes, checked.scores, _requested_component(request, sets), thresholds)


def warm_up(sets: WeightSets) -> None:
    """Explain once with each component: the first call loads and compiles for 2 s, which no visitor should wait for."""
    for component in ("paper", "presence"):
        request = {"component": component, "boxes": [[0.0, 0.0, 1.0, 1.0]], "attention": [1.0]}
        explain(ExplainRequest.model_validate(request), sets)


def _requested_component(request: ExplainRequest, sets: WeightSets) -> Counter | PresenceCounter:
    if request.activations is not None:
        if request.component != "paper" or request.weights != UNTRAINED:
            raise InputError("activations must come with component 'paper' and without weights, but got both")
        return counter_with_knots(request.activations, request.max_objects)
    found = next((one for one in sets[request.component] if one.name == request.weights), None)
    if found is None:
        known = ", ".join(one.name for one in sets[request.component][:6])
        raise InputError(f"weights must be a set that GET /v1/weights lists ({known} ...), but got another name")
    make = counter_with_knots if request.component == "paper" else presence_with_weights
    return make(found.weights, request.max_objects)
