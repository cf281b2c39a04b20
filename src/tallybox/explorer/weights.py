"""Sets of weights that the explorer can count with, by name: untrained, learned on the toy task, the photo estimator's.

A set is plain data: ``{"name", "label", "weights"}``; the weights of the paper's component are the knots of
its activations, those of presence counting the fields of `PresenceWeights` for one head.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tallybox.activation import activation_knots
from tallybox.counter.module import Counter
from tallybox.errors import InputError
from tallybox.estimator.estimator import CountEstimator
from tallybox.explorer.toy_weights import TOY_WEIGHTS
from tallybox.presence.module import PresenceCounter
from tallybox.presence.weights import PresenceWeights, initial_weights

WeightSet = dict[str, Any]

UNTRAINED = "untrained"
SEGMENTS = 16


def weight_sets(estimator: CountEstimator | None) -> dict[str, list[WeightSet]]:
    """Return all sets by component, the untrained first; the estimator's heads are of its own component only."""
    untrained = initial_weights(1, SEGMENTS)
    sets: dict[str, list[WeightSet]] = {
        "paper": [_named(UNTRAINED, "untrained", activation_knots(torch.ones(8, SEGMENTS)).tolist())],
        "presence": [_named(UNTRAINED, "untrained", _of_head(untrained, 0))],
    }
    for setting in json.loads(TOY_WEIGHTS.read_text()):
        side_length, noise = f"{setting['side_length']:g}", f"{setting['noise']:g}"
        name, label = f"toy-{side_length}-{noise}", f"toy task, l = {side_length}, q = {noise}"
        sets["paper"].append(_named(name, label, setting["activations"]))
        for head, weights in enumerate(setting["presence"], start=1):
            sets["presence"].append(_named(f"{name}-{head}", f"{label}, head {head}", weights))
    if estimator is not None:
        component = estimator.fitted.config.component
        for number, member in enumerate(estimator.fitted.members, start=1):
            for head in range(estimator.fitted.config.heads):
                name, label = f"photo-{number}-{head + 1}", f"photo estimator, model {number}, head {head + 1}"
                learned = member.component
                weights = (
                    activation_knots(learned.weight.detach()[head]).tolist()
                    if isinstance(learned, Counter)
                    else _of_head(learned.weights, head)
                )
                sets[component].append(_named(name, label, weights))
    return sets


def paper_component(knots: Sequence[Sequence[float]], max_objects: int) -> Counter:
    """Return the paper's component with activations that pass through ``knots [8, S + 1]``."""
    if len({len(activation) for activation in knots}) > 1:
        lengths = [len(activation) for activation in knots]
        raise InputError(f"activations must all have as many knots, but got {lengths}")
    heights = torch.tensor(knots, dtype=torch.float32)
    if heights.dim() != 2 or heights.shape[0] != 8 or heights.shape[1] < 2:
        raise InputError(f"activations must have shape [8, segments + 1], but got {list(heights.shape)}")
    rises = heights.diff()
    if not (heights[:, 0] == 0).all() or not (heights[:, -1] == 1).all() or not (rises >= 0).all():
        raise InputError("activations must rise from 0 to 1 and never fall, but got others; see docs/method.md")
    counter = Counter(max_objects, segments=rises.shape[1])
    with torch.no_grad():
        counter.weight.copy_(rises.unsqueeze(0))
    return counter


def presence_component(weights: Mapping[str, Any], max_objects: int) -> PresenceCounter:
    """Return presence counting with one head of these weights."""
    presence = PresenceCounter(max_objects, segments=len(weights["calibration"]))
    with torch.no_grad():
        for name in PresenceWeights._fields:
            getattr(presence, name).copy_(torch.tensor(weights[name]).unsqueeze(0))
    return presence


def _of_head(weights: PresenceWeights, head: int) -> dict[str, Any]:
    return {name: weight.detach()[head].tolist() for name, weight in weights._asdict().items()}


def _named(name: str, label: str, weights: Any) -> WeightSet:
    return {"name": name, "label": label, "weights": weights}
