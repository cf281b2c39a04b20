"""One counting: what a component makes of boxes and scores, as the pages draw it and as the service sends it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tallybox.boxes import nms
from tallybox.counter.module import Counter
from tallybox.detections.baselines import Thresholds
from tallybox.estimator.explanation import merge_boxes, suppression_of
from tallybox.explain.steps import Step, component_steps
from tallybox.explain.traces import HeadTrace, head_trace
from tallybox.presence.module import PresenceCounter

# NMS + threshold where nobody tuned it.
DEFAULT_THRESHOLDS = Thresholds(overlap=0.5, score=0.5)


@dataclass(frozen=True)
class Baselines:
    """What simpler methods count."""

    sum: float = field(metadata={"description": "The sum of the scores."})
    nms: int = field(metadata={"description": "The boxes that NMS and a score threshold keep."})
    nms_kept: list[int] = field(metadata={"description": "Which boxes those are."})
    iou_threshold: float
    score_threshold: float


@dataclass(frozen=True)
class Counting(HeadTrace):
    """Everything that was computed on the way to a count."""

    boxes: list[list[float]]
    scores: list[float]
    count: float
    confidence: float | None = field(metadata={"description": "Of the paper's component."})
    distribution: list[float] = field(
        metadata={"description": "Of counts 0, 1 ...; for the paper's component its features."}
    )
    presence: list[float] = field(metadata={"description": "How far each box counts."})
    merged_into: list[int] = field(
        metadata={"description": "Which counted box stands for each: itself, another, or -1."}
    )
    baselines: Baselines
    steps: list[Step] = field(metadata={"description": "How the count came about, in words."})


def count_with_component(
    boxes: NDArray[np.float32],
    scores: NDArray[np.float32],
    component: Counter | PresenceCounter,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
) -> Counting:
    """Count boxes ``[N, 4]`` with scores ``[N]``, or logits where the component takes those, by its first head.

    >>> counting = count_with_component(np.zeros((2, 4), np.float32), np.ones(2, np.float32), Counter(3))
    >>> round(counting.count, 4), counting.merged_into
    (1.0, [0, 0])
    """
    with torch.no_grad():
        trace = component.explain(torch.from_numpy(scores), torch.from_numpy(boxes))
    if component.logits:
        scores = torch.from_numpy(scores).sigmoid().numpy()
    head = head_trace(trace, component, 0)
    quantities: dict[str, Any] = head.trace
    presence = _box_shares(head, len(boxes)) if head.component == "counter" else quantities["presence"]
    whole_count = int(quantities["count"] + 0.5)
    merged = merge_boxes(np.array(presence, np.float32), suppression_of(trace, len(boxes)), whole_count).tolist()
    return Counting(
        **vars(head),
        boxes=boxes.tolist(),
        scores=scores.tolist(),
        count=quantities["count"],
        confidence=quantities.get("confidence"),
        distribution=quantities["features" if head.component == "counter" else "distribution"],
        presence=presence,
        merged_into=merged,
        baselines=count_with_baselines(boxes, scores, thresholds),
        steps=component_steps(head, scores.tolist(), merged),
    )


def count_with_baselines(boxes: NDArray[np.float32], scores: NDArray[np.float32], thresholds: Thresholds) -> Baselines:
    """Count by adding up the scores, and by NMS + threshold."""
    kept = nms(boxes, scores, [thresholds.overlap])[0] & (scores >= np.float32(thresholds.score))
    return Baselines(
        sum=float(scores.sum()),
        nms=int(kept.sum()),
        nms_kept=np.flatnonzero(kept).tolist(),
        iou_threshold=thresholds.overlap,
        score_threshold=thresholds.score,
    )


def _box_shares(head: HeadTrace, boxes: int) -> list[float]:
    """Return how far each box counts in the paper's component: its self-loop, shared among its copies."""
    shares = [0.0] * boxes
    for row, box in enumerate(head.indices):
        shares[box] = head.trace["relevance"][row][row] * head.trace["scale"][row]
    return shares
