"""How a count came about, step by step in words."""

from collections.abc import Sequence
from dataclasses import dataclass

from tallybox.estimator.prediction import CountPrediction
from tallybox.explain.traces import HeadTrace

# Pairs and boxes that a sentence names; the rest are in the pictures.
MAX_NAMED = 4


@dataclass(frozen=True)
class Step:
    """One step of how the count came about."""

    title: str
    text: str


def component_steps(head: HeadTrace, scores: Sequence[float], merged_into: Sequence[int]) -> list[Step]:
    """Describe how a head counts boxes with ``scores``, of which each was merged into another, itself, or none (-1)."""
    if not scores:
        return [Step("Nothing to count", "There is no box that shows any.")]
    merged = _groups(merged_into)
    if head.component == "presence":
        return [_proposals_step(scores), *_presence_steps(head, merged)]
    return [_proposals_step(scores), *_counter_steps(head, len(scores), merged)]


def prediction_step(predicted: CountPrediction, members: int) -> Step:
    """Describe what an estimator with so many models predicts."""
    low, high = predicted.low, predicted.high
    return Step(
        f"The answer: {predicted}",
        f"{members} models were fitted to photos with known counts. From the presences, and from what thresholds would "
        f"find, they predict how probable each count is. The median of that is {predicted}, the most probable count "
        f"{predicted.most_probable} ({100 * predicted.probabilities.max():.0f} %), the mean "
        f"{number(predicted.expected)}. The interval is {f'{low} alone' if low == high else f'{low} to {high}'}: nine "
        "of ten such intervals hold the true count.",
    )


def _proposals_step(scores: Sequence[float]) -> Step:
    if len(scores) == 1:
        return Step("One box", f"There is one box, with a score of {number(scores[0])}.")
    highest, lowest = number(max(scores)), number(min(scores))
    spread = f"All score {highest}." if highest == lowest else f"Scores go from {highest} down to {lowest}."
    twice = "objects that were found twice would count twice, and weak boxes add a little each"
    return Step(f"{len(scores)} boxes", f"{spread} Adding them all up would say {number(sum(scores))}: {twice}.")


def _presence_steps(head: HeadTrace, merged: Sequence[str]) -> list[Step]:
    alone, presence = head.trace["calibrated"], head.trace["presence"]
    best = max(range(len(alone)), key=alone.__getitem__)
    stands_for = "No box overlaps another so much that one would stand for both."
    if merged:
        ahead = "Where boxes overlap, the one that is ahead takes over the others"
        stands_for = f"{ahead}, as far as η (overlap) and τ (lead) say: {_listed(merged)}."
    return [
        Step(
            "What each box is worth alone",
            "φ turns a score, with what the neighbours say, into the chance that the box shows an object. "
            f"Box {best + 1} is worth {number(alone[best])}; all of them together {number(sum(alone))}.",
        ),
        Step("Who stands for whom", stands_for),
        Step(
            "What is left is counted",
            f"The presences that remain add up to {number(sum(presence))}. Each box is there or not, so this is also "
            "a distribution: how probable each count is.",
        ),
    ]


def _counter_steps(head: HeadTrace, boxes: int, merged: Sequence[str]) -> list[Step]:
    trace = head.trace
    edges, between, counted = (sum(map(sum, trace[name])) for name in ("relevance", "deduplicated", "count_matrix"))
    copies = [1 / scale if scale > 0 else 0 for scale in trace["scale"]]
    row = max(range(len(copies)), key=copies.__getitem__)  # of the box with the most copies
    left_out = boxes - len(trace["attention"])
    return [
        Step(
            "A joins relevant boxes",
            f"Every pair of boxes is joined by an edge as strong as both weights together: {number(edges)} edges. "
            f"Their root, {number(edges**0.5)}, is no better than adding up the weights."
            + (f" The {left_out} weakest boxes take no part." if left_out else ""),
        ),
        Step(
            "D cuts the edges within an object",
            "Boxes at the same place have distance 0. "
            f"Multiplying by D leaves {number(between)} edges between objects.",
        ),
        Step(
            "Sim finds the copies",
            f"Boxes whose edges look alike show the same object, and share its count. Box {head.indices[row] + 1} "
            f"is one of {number(copies[row])}, so each of its edges counts {number(trace['scale'][row])}."
            + (f" Copies of one another: {_listed(merged)}." if merged else ""),
        ),
        Step(
            "C puts each object's edge to itself back",
            f"{number(counted)} edges are left, and a graph of c objects has c² of them: c = √{number(counted)} = "
            f"{number(trace['count'])}.",
        ),
        Step(
            "How sure",
            f"Weights and distances far from one half are sure. Here the confidence is {number(trace['confidence'])}; "
            "it scales the features that a classifier sees.",
        ),
    ]


def _groups(merged_into: Sequence[int]) -> list[str]:
    groups: dict[int, list[int]] = {}
    for box, counted in enumerate(merged_into):
        if counted not in (-1, box):
            groups.setdefault(counted, []).append(box + 1)
    return [
        f"box {counted + 1} for {'box' if len(boxes) == 1 else 'boxes'} {joined(boxes)}"
        for counted, boxes in groups.items()
    ]


def joined(boxes: Sequence[int]) -> str:
    """List boxes by number, the first few of many.

    >>> joined([1, 4]), joined([1, 2, 3, 4, 5, 6])
    ('1 and 4', '1, 2, 3, 4 and 2 more')
    """
    named = [str(box) for box in boxes[:MAX_NAMED]]
    if len(boxes) > MAX_NAMED:
        return f"{', '.join(named)} and {len(boxes) - MAX_NAMED} more"
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def _listed(sentences: Sequence[str]) -> str:
    more = f"; and {len(sentences) - MAX_NAMED} more" if len(sentences) > MAX_NAMED else ""
    return "; ".join(sentences[:MAX_NAMED]) + more


def number(value: float) -> str:
    """Write a number with two decimals, fewer where they are zeros.

    >>> number(3.0), number(0.25), number(0.004)
    ('3', '0.25', '0.004')
    """
    if 0 < abs(value) < 0.01:
        return f"{value:.1g}" if abs(value) >= 1e-4 else "almost 0"
    return f"{value:.2f}".rstrip("0").rstrip(".")
