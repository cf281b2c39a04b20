"""Sets of weights to explain with, by name: untrained, learned on the toy task, the photo estimator's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import torch

from tallybox.activation import activation_knots
from tallybox.counter.module import Counter
from tallybox.errors import InputError
from tallybox.estimator.estimator import CountEstimator
from tallybox.presence.module import PresenceCounter
from tallybox.presence.weights import PresenceWeights

UNTRAINED = "untrained"
SEGMENTS = 16


@dataclass(frozen=True)
class WeightSet:
    """A set of weights by its name."""

    name: str
    label: str
    weights: Any = field(
        metadata={"description": "Knots of the eight activations, or the fields of PresenceWeights for one head."}
    )


WeightSets = Mapping[str, Sequence[WeightSet]]  # by component


def weight_sets(estimator: CountEstimator | None) -> dict[str, list[WeightSet]]:
    """Return all sets by component, the untrained first; the estimator's heads belong to its own component."""
    sets = {
        "paper": [WeightSet(UNTRAINED, "untrained", _head_weights(Counter(1, segments=SEGMENTS), 0))],
        "presence": [WeightSet(UNTRAINED, "untrained", _head_weights(PresenceCounter(1, segments=SEGMENTS), 0))],
    }
    for setting in json.loads((files("tallybox.service") / "data" / "toy_weights.json").read_text()):
        side_length, noise = f"{setting['side_length']:g}", f"{setting['noise']:g}"
        name, label = f"toy-{side_length}-{noise}", f"toy task, l = {side_length}, q = {noise}"
        sets["paper"].append(WeightSet(name, label, setting["activations"]))
        for head, weights in enumerate(setting["presence"], start=1):
            sets["presence"].append(WeightSet(f"{name}-{head}", f"{label}, head {head}", weights))
    if estimator is not None:
        fitted = estimator.fitted
        sets[fitted.config.component] += [
            WeightSet(
                f"photo-{number}-{head + 1}",
                f"photo estimator, model {number}, head {head + 1}",
                _head_weights(member.component, head),
            )
            for number, member in enumerate(fitted.members, start=1)
            for head in range(fitted.config.heads)
        ]
    return sets


def counter_with_knots(knots: Sequence[Sequence[float]], max_objects: int) -> Counter:
    """Return the paper's component with activations that pass through ``knots [8, S + 1]``."""
    if len({len(activation) for activation in knots}) > 1:
        lengths = [len(activation) for activation in knots]
        raise InputError(f"activations must all have as many knots, but got {lengths}")
    heights = torch.tensor(knots, dtype=torch.float32)
    if heights.dim() != 2 or heights.shape[0] != 8 or heights.shape[1] < 2:
        raise InputError(f"activations must have shape [8, segments + 1], but got {list(heights.shape)}")
    rises = heights.diff()
    if not (heights[:, 0] == 0).all() or not (heights[:, -1] == 1).all() or not (rises >= 0).all():
        raise InputError("activations must start at 0, never fall and end at 1, but got others")
    counter = Counter(max_objects, segments=rises.shape[1])
    with torch.no_grad():
        counter.weight.copy_(rises.unsqueeze(0))
    return counter


def presence_with_weights(weights: Mapping[str, Any], max_objects: int) -> PresenceCounter:
    """Return presence counting with one head of these weights."""
    presence = PresenceCounter(max_objects, segments=len(weights["calibration"]))
    with torch.no_grad():
        for name in PresenceWeights._fields:
            getattr(presence, name).copy_(torch.tensor(weights[name]).unsqueeze(0))
    return presence


def _head_weights(component: Counter | PresenceCounter, head: int) -> Any:
    if isinstance(component, Counter):
        return activation_knots(component.weight.detach()[head]).tolist()
    return {name: weight.detach()[head].tolist() for name, weight in component.weights._asdict().items()}
