"""Presence counting written a second time, from its equations alone: plain Python floats, plain loops, no tensors.

One image and one set of weights at a time. Slow, and meant to be obviously right.
"""

import math
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

from tests.support.oracle import Box, iou

ROUNDS = 2
LIMIT, BEND = 14.0, 2.0
FLOOR = 1e-6


class Answer(NamedTuple):
    """What the equations give for one image."""

    presence: list[float]  # 0 where masked
    distribution: list[float]
    features: list[float]
    count: float


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def coordinate(logit: float) -> float:
    """Where a score lies among the knots: straight in the logit's middle, flattening out, 0 at -14 and 1 at 14."""
    logit = max(-LIMIT, min(LIMIT, logit))
    return 0.5 + 0.5 * (logit / (abs(logit) + BEND)) / (LIMIT / (LIMIT + BEND))


def score_at(place: float) -> float:
    """The score that has a coordinate, by bisection; those of 0 and 1 are 0 and 1 themselves."""
    if place in (0, 1):
        return place
    low, high = -LIMIT, LIMIT
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if coordinate(middle) < place else (low, middle)
    return logistic(low)


def straight(x: float, at: list[float], values: list[float]) -> float:
    """A function that is straight between the places where its values are given."""
    for k in range(len(at) - 1):
        if x <= at[k + 1] or k == len(at) - 2:
            part = (x - at[k]) / (at[k + 1] - at[k])
            return values[k] + min(max(part, 0.0), 1.0) * (values[k + 1] - values[k])
    raise AssertionError


def rising(rises: list[float], whole: float) -> list[float]:
    """Values that start at 0 and rise by shares of a whole."""
    values = [0.0]
    for rise in rises:
        values.append(values[-1] + abs(rise) / whole)
    return values


def calibration(rises: list[float]) -> Callable[[float], float]:
    """φ of a score."""
    segments = len(rises)
    whole = sum(abs(rise) for rise in rises)
    values = rising(rises, whole) if whole > 0 else [k / segments for k in range(segments + 1)]
    at = [score_at(k / segments) for k in range(segments + 1)]
    return lambda score: straight(score, at, values)


def order_function(rises: list[float], step: float) -> tuple[Callable[[float], float], float]:
    """τ without its step, and its step."""
    segments = len(rises)
    whole = sum(abs(rise) for rise in rises) + abs(step)
    if whole == 0:
        return lambda _: 0.0, 1.0
    values = rising(rises, whole)
    at = [k / segments for k in range(segments + 1)]
    return lambda x: straight(x, at, values), abs(step) / whole


def two_numbers(table: list[list[float]]) -> Callable[[float, float], float]:
    """A function of two numbers in [0, 1], bilinear between the entries of a square table."""
    at = [k / (len(table) - 1) for k in range(len(table))]
    return lambda x, y: straight(x, at, [straight(y, at, row) for row in table])


def overlap_function(rises: list[list[float]], headroom: float) -> Callable[[float, float], float]:
    """η(IoU, 1 - coordinate of the score): at an entry, everything above and left of it has risen."""
    whole = sum(abs(rise) for row in rises for rise in row) + abs(headroom)
    size = len(rises[0])
    table = [[0.0] * size]
    for e in range(1, len(rises) + 1):
        row = []
        for f in range(size):
            risen = sum(abs(rises[u][v]) for u, v in product(range(e), range(f + 1)))
            row.append(risen / whole if whole > 0 else 0.0)
        table.append(row)
    return two_numbers(table)


def precedes(j: int, i: int, logit: list[float], boxes: list[Box]) -> bool:
    """The higher score first, then the smaller x1, y1, x2, y2, then as they stand."""
    return (-logit[j], *boxes[j], j) < (-logit[i], *boxes[i], i)


def distribution_of(presence: list[float], max_objects: int) -> list[float]:
    """Add one proposal after the other; what goes beyond the last entry stays in it."""
    probability = [1.0] + [0.0] * max_objects
    for p in presence:
        after = [0.0] * (max_objects + 1)
        for k, before in enumerate(probability):
            after[k] += before * (1 - p)
            after[min(k + 1, max_objects)] += before * p
        probability = after
    return probability


def answer(
    attention: list[float],
    boxes: list[Box],
    weights: dict[str, Any],
    *,
    max_objects: int,
    mask: list[bool] | None = None,
    logits: bool = False,
) -> Answer:
    """Follow the equations for one image; ``weights`` are lists and numbers by the names of `PresenceWeights`."""
    real = [i for i in range(len(attention)) if mask is None or mask[i]]
    least = logistic(-LIMIT)
    scores = [attention[i] if logits else min(max(attention[i], least), 1 - least) for i in real]
    logit = [min(max(a, -LIMIT), LIMIT) if logits else math.log(a / (1 - a)) for a in scores]
    b = [tuple(boxes[i]) for i in real]
    n = len(real)

    phi = calibration(weights["calibration"])
    kappa = two_numbers([[0.0] * 9, *weights["evidence"]])
    eta = overlap_function(weights["overlap"], weights["headroom"])
    tau, step = order_function(weights["order"], weights["step"])

    calibrated = []
    for i in range(n):
        z = weights["slope"] * logit[i] + weights["shift"]
        for j in range(n):
            if j != i:
                z += kappa(iou(b[i], b[j]), coordinate(logit[j]))
        calibrated.append(phi(logistic(z)))

    def stands_for(j: int, i: int) -> float:
        ahead = tau(logistic(weights["sharpness"] * (logit[j] - logit[i])))
        ahead += step if precedes(j, i, logit, b) else 0.0
        return eta(iou(b[i], b[j]), 1 - coordinate(logit[i])) * ahead

    presence = calibrated
    for _ in range(ROUNDS):
        survived = list(calibrated)
        for i in range(n):
            for j in range(n):
                if j != i:
                    survived[i] *= 1 - stands_for(j, i) * presence[j]
        presence = survived

    distribution = distribution_of(presence, max_objects)
    of_all = [0.0] * len(attention)
    for i, p in zip(real, presence, strict=True):
        of_all[i] = p
    count = sum(presence)
    return Answer(of_all, distribution, [*(math.log(p + FLOOR) for p in distribution), count], count)
