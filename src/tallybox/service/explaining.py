"""Count the boxes of a request with one component and a named set of weights, keeping every intermediate quantity."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import numpy as np
import torch

from tallybox.activation import activation_knots
from tallybox.counter.module import Counter
from tallybox.detections.baselines import Thresholds
from tallybox.detections.detections import Detections
from tallybox.errors import InputError
from tallybox.estimator.estimator import CountEstimator
from tallybox.explain.counting import Counting, count_with_component
from tallybox.presence.module import PresenceCounter
from tallybox.service.models import ExplainRequest

UNTRAINED = "untrained"


@dataclass(frozen=True)
class WeightSet:
    """A set of weights by its name."""

    name: str
    label: str
    weights: Any = field(
        metadata={"description": "Knots of the eight activations, or the fields of PresenceWeights for one head."}
    )


WeightSets = dict[str, list[WeightSet]]  # by component


def weight_sets(estimator: CountEstimator) -> WeightSets:
    """Return all sets: untrained, learned on the toy task, and (for its component) those of the estimator's heads."""
    sets = {
        "counter": [WeightSet(UNTRAINED, UNTRAINED, _head_weights(Counter(), 0))],
        "presence": [WeightSet(UNTRAINED, UNTRAINED, _head_weights(PresenceCounter(), 0))],
    }
    for setting in json.loads((files("tallybox.service") / "data" / "toy_weights.json").read_text()):
        side_length, noise = f"{setting['side_length']:g}", f"{setting['noise']:g}"
        name, label = f"toy-{side_length}-{noise}", f"toy task, l = {side_length}, q = {noise}"
        sets["counter"].append(WeightSet(name, label, setting["activations"]))
        for head, weights in enumerate(setting["presence"], start=1):
            sets["presence"].append(WeightSet(f"{name}-{head}", f"{label}, head {head}", weights))
    fitted = estimator.fitted
    for number, component in enumerate(fitted.ensemble.components(), start=1):
        name, label = f"photo-{number}", f"photo estimator, model {number}"
        sets[fitted.config.component].append(WeightSet(name, label, _head_weights(component, 0)))
    return sets


def explain(request: ExplainRequest, sets: WeightSets) -> Counting:
    """Count boxes with the component and the weights that a request names."""
    # Checks boxes and weights by the rules that hold for every other input.
    checked = Detections(request.boxes, request.attention, np.zeros(len(request.attention), np.int64))  # type: ignore[arg-type]  # lists are taken
    thresholds = Thresholds(request.nms.iou, request.nms.score)
    return count_with_component(checked.boxes, checked.scores, _requested_component(request, sets), thresholds)


def warm_up(sets: WeightSets) -> None:
    """Explain once with each component: the first call loads and compiles for 2 s, which no visitor should wait for."""
    for component in sets:
        request = {"component": component, "boxes": [[0.0, 0.0, 1.0, 1.0]], "attention": [1.0]}
        explain(ExplainRequest.model_validate(request), sets)


def _requested_component(request: ExplainRequest, sets: WeightSets) -> Counter | PresenceCounter:
    if request.activations is not None:
        if request.component != "counter" or request.weights != UNTRAINED:
            raise InputError("activations must come with component 'counter' and without weights, but got both")
        return counter_with_knots(request.activations, request.max_objects)
    by_name = {weight_set.name: weight_set.weights for weight_set in sets[request.component]}
    if request.weights not in by_name:
        first_names = ", ".join(list(by_name)[:6])
        raise InputError(f"weights must be a set that GET /v1/weights lists ({first_names} ...), but got another name")
    make = counter_with_knots if request.component == "counter" else presence_with_weights
    return make(by_name[request.weights], request.max_objects)


def counter_with_knots(knots: Sequence[Sequence[float]], max_objects: int) -> Counter:
    """Return the paper's component with activations that pass through ``knots [8, S + 1]``."""
    lengths = [len(activation) for activation in knots]
    if len(set(lengths)) > 1:
        raise InputError(f"activations must all have as many knots, but got {lengths}")
    heights = torch.tensor(knots, dtype=torch.float32)
    rises = heights.diff()
    if not (heights[:, 0] == 0).all() or not (heights[:, -1] == 1).all() or not (rises >= 0).all():
        raise InputError("activations must start at 0, never fall and end at 1, but got others")
    counter = Counter(max_objects, segments=rises.shape[1])
    counter.load_state_dict({"weight": rises.unsqueeze(0)})
    return counter


def presence_with_weights(weights: Mapping[str, Any], max_objects: int) -> PresenceCounter:
    """Return presence counting with one head of these weights."""
    presence = PresenceCounter(max_objects, segments=len(weights["calibration"]))
    presence.load_state_dict({name: torch.tensor(weight).unsqueeze(0) for name, weight in weights.items()})
    return presence


def _head_weights(component: Counter | PresenceCounter, head: int) -> Any:
    if isinstance(component, Counter):
        return activation_knots(component.weight.detach()[head]).tolist()
    return {name: weight.detach()[head].tolist() for name, weight in component.weights._asdict().items()}
