"""How a count came about, step by step in plain words, from the plain numbers of a counting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Step = dict[str, str]

# Pairs and boxes that a sentence names; the rest are in the pictures.
NAMED_AT_MOST = 4


def steps_of(counting: Mapping[str, Any], view: Mapping[str, Any]) -> list[Step]:
    """Tell how ``view`` counts a counting's ``boxes`` and ``scores``; a ``prediction`` has the last word."""
    if not counting["boxes"]:
        said = counting.get("prediction")
        return [_step("Nothing to count", "There is no box that shows any."), *([_prediction(said)] if said else [])]
    steps = [_proposals(counting)]
    steps += _presence_steps(counting, view) if view["component"] == "presence" else _paper_steps(counting, view)
    if counting.get("prediction"):
        steps.append(_prediction(counting["prediction"]))
    return steps


def _proposals(counting: Mapping[str, Any]) -> Step:
    scores = counting["scores"]
    if len(scores) == 1:
        return _step("One box", f"There is one box, with a score of {number(scores[0])}.")
    highest, lowest = number(max(scores)), number(min(scores))
    spread = f"All score {highest}." if highest == lowest else f"Scores go from {highest} down to {lowest}."
    return _step(
        f"{len(scores)} boxes",
        f"{spread} Adding them all up would say "
        f"{number(sum(scores))}: objects that were found twice would count twice, and weak boxes add a little each.",
    )


def _presence_steps(counting: Mapping[str, Any], view: Mapping[str, Any]) -> list[Step]:
    trace = view["trace"]
    alone, presence = trace["calibrated"], trace["presence"]
    best = max(range(len(alone)), key=alone.__getitem__)
    steps = [
        _step(
            "What each box is worth alone",
            "φ turns a score, with what the neighbours say, into the chance that the box shows an object. "
            f"Box {best + 1} is worth {number(alone[best])}; all of them together {number(sum(alone))}.",
        )
    ]
    merged = _groups(counting["merged_into"])
    if merged:
        steps.append(
            _step(
                "Who stands for whom",
                "Where boxes overlap, the one that is ahead takes over the others, as far as η (overlap) and τ (lead) "
                f"say: {_listed(merged)}.",
            )
        )
    else:
        steps.append(_step("Who stands for whom", "No box overlaps another so much that one would stand for both."))
    steps.append(
        _step(
            "What is left is counted",
            f"The presences that remain add up to {number(sum(presence))}. Each box is there or not, so this is also "
            "a distribution: how probable each count is.",
        )
    )
    return steps


def _paper_steps(counting: Mapping[str, Any], view: Mapping[str, Any]) -> list[Step]:
    trace = view["trace"]
    edges = sum(map(sum, trace["relevance"]))
    cut = sum(map(sum, trace["deduplicated"]))
    left = sum(map(sum, trace["count_matrix"]))
    copies = [1 / scale if scale > 0 else 0 for scale in trace["scale"]]
    most = max(range(len(copies)), key=copies.__getitem__)
    left_out = len(counting["boxes"]) - len(trace["attention"])
    taken = f" The {left_out} weakest boxes take no part." if left_out else ""
    merged = _groups(counting["merged_into"])
    alike = f" Copies of one another: {_listed(merged)}." if merged else ""
    return [
        _step(
            "A joins relevant boxes",
            f"Every pair of boxes is joined by an edge as strong as both weights together: {number(edges)} edges. "
            f"Their root, {number(edges**0.5)}, is no better than adding up the weights.{taken}",
        ),
        _step(
            "D cuts the edges within an object",
            f"Boxes at the same place have distance 0. Multiplying by D leaves {number(cut)} edges between objects.",
        ),
        _step(
            "Sim finds the copies",
            f"Boxes whose edges look alike show the same object, and share its count. Box {view['indices'][most] + 1} "
            f"is one of {number(copies[most])}, so each of its edges counts {number(trace['scale'][most])}.{alike}",
        ),
        _step(
            "C puts each object's edge to itself back",
            f"{number(left)} edges are left, and a graph of c objects has c² of them: c = √{number(left)} = "
            f"{number(trace['count'])}.",
        ),
        _step(
            "How sure",
            f"Weights and distances far from one half are sure. Here the confidence is {number(trace['confidence'])}; "
            "it scales the features that a classifier sees.",
        ),
    ]


def _prediction(said: Mapping[str, Any]) -> Step:
    about = "about " if said.get("at_least") else ""
    alone = said["low"] == said["high"]
    interval = f"{said['low']} alone" if alone else f"{said['low']} to {said['high']}"
    return _step(
        f"The answer: {about}{said['count']}",
        f"{said['members']} models were fitted to photos with known counts. From the presences, and from what "
        "thresholds would find, they predict how probable each count is. The median of that is "
        f"{about}{said['count']}, the most probable count {said['most_probable']} "
        f"({100 * said['probability']:.0f} %), the mean "
        f"{number(said['expected'])}. The interval is {interval}: nine of ten such intervals hold the true count.",
    )


def _groups(merged_into: Sequence[int]) -> list[str]:
    groups: dict[int, list[int]] = {}
    for box, standing in enumerate(merged_into):
        if standing not in (-1, box):
            groups.setdefault(standing, []).append(box + 1)
    return [
        f"box {standing + 1} for {'box' if len(boxes) == 1 else 'boxes'} {_joined(boxes)}"
        for standing, boxes in groups.items()
    ]


def _joined(boxes: Sequence[int]) -> str:
    named = [str(box) for box in boxes[:NAMED_AT_MOST]]
    if len(boxes) > NAMED_AT_MOST:
        return f"{', '.join(named)} and {len(boxes) - NAMED_AT_MOST} more"
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def _listed(sentences: Sequence[str]) -> str:
    more = f"; and {len(sentences) - NAMED_AT_MOST} more" if len(sentences) > NAMED_AT_MOST else ""
    return "; ".join(sentences[:NAMED_AT_MOST]) + more


def number(value: float) -> str:
    """Write a number with two decimals, fewer where they are zeros.

    >>> number(3.0), number(0.25), number(0.004)
    ('3', '0.25', '0.004')
    """
    if 0 < abs(value) < 0.01:
        return f"{value:.1g}" if abs(value) >= 1e-4 else "almost 0"
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _step(title: str, text: str) -> Step:
    return {"title": title, "text": text}
