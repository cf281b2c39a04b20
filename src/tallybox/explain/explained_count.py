"""Explained counts: every quantity behind a count, as pages draw it and as the service sends it."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tallybox.boxes import nms
from tallybox.counter.module import Counter
from tallybox.detections.baselines import Thresholds
from tallybox.detections.detections import Detections
from tallybox.estimator.estimator import CountEstimator
from tallybox.estimator.explanation import CLEAR_PRESENCE, CountExplanation, merge_boxes, merged_into, suppression_of
from tallybox.explain.traces import HeadTrace, head_trace
from tallybox.presence.module import PresenceCounter

DEFAULT_THRESHOLDS = Thresholds(overlap=0.5, score=0.5)  # of NMS, if nobody tuned it


@dataclass(frozen=True)
class BaselineCounts:
    """Counts of simpler methods."""

    sum: float = field(metadata={"description": "The sum of the scores."})
    nms: int = field(metadata={"description": "The number of boxes that NMS and a score threshold keep."})
    iou_threshold: float
    score_threshold: float


@dataclass(frozen=True)
class ExplainedCount(HeadTrace):
    """A count with every quantity behind it."""

    boxes: list[list[float]]
    scores: list[float]
    count: float
    confidence: float | None = field(metadata={"description": "Of the paper's counter."})
    distribution: list[float] = field(metadata={"description": "Of counts 0, 1 ...; for the counter its features."})
    presence: list[float] = field(metadata={"description": "The share of an object that each box counts as."})
    duplicate_of: list[int] = field(
        metadata={"description": "The counted box of the same object: itself, another, or -1 if none is counted."}
    )
    baselines: BaselineCounts | None = field(metadata={"description": "None without tuned thresholds."})
    low: int | None = field(default=None, metadata={"description": "Of the estimator's 90 % interval."})
    high: int | None = None


def explain_component(
    boxes: NDArray[np.float32],
    scores: NDArray[np.float32],
    component: Counter | PresenceCounter,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
) -> ExplainedCount:
    """Count boxes ``[N, 4]`` with scores ``[N]`` (logits if the component takes those) by a component's first head.

    >>> explained = explain_component(np.zeros((2, 4), np.float32), np.ones(2, np.float32), Counter(3))
    >>> round(explained.count, 4), explained.duplicate_of
    (1.0, [0, 0])
    """
    with torch.no_grad():
        trace = component.explain(torch.from_numpy(scores), torch.from_numpy(boxes))
    if component.logits:
        scores = torch.from_numpy(scores).sigmoid().numpy()
    head = head_trace(trace, component, 0)
    quantities: dict[str, Any] = head.trace
    presence = _box_shares(head, len(boxes)) if head.component == "counter" else quantities["presence"]
    count = int(quantities["count"] + 0.5)
    merged = merge_boxes(np.array(presence, np.float32), suppression_of(trace, len(boxes)), count)
    return ExplainedCount(
        **vars(head),
        boxes=boxes.tolist(),
        scores=scores.tolist(),
        count=quantities["count"],
        confidence=quantities.get("confidence"),
        distribution=quantities["features" if head.component == "counter" else "distribution"],
        presence=presence,
        duplicate_of=merged.tolist(),
        baselines=count_with_baselines(boxes, scores, thresholds),
    )


def explain_estimate(
    estimator: CountEstimator,
    image: Detections,
    category_id: int,
    explanation: CountExplanation,
    *,
    first_boxes: int | None = None,
) -> tuple[ExplainedCount, list[HeadTrace]]:
    """Return an estimator's count of one category, and the trace of each of its models.

    Counted boxes come first, so that the number of a box is the number of its object. With ``first_boxes``, the
    category's boxes are the first ones of the image, and keep their order.
    """
    fitted, predicted, merged = estimator.fitted, explanation.prediction, merged_into(explanation)
    if first_boxes is None:
        order = np.argsort(merged != np.arange(len(merged)), kind="stable")
        sources, rank = explanation.indices[order], np.argsort(order)
    else:
        sources, rank = np.arange(first_boxes), explanation.indices
    presence, duplicate_of = np.zeros(len(sources)), np.full(len(sources), -1)
    presence[rank] = explanation.presence
    duplicate_of[rank] = np.where(merged < 0, -1, rank[merged])
    components = zip(explanation.traces, fitted.ensemble.components(), strict=True)
    heads = [head_trace(trace, component, 0) for trace, component in components]
    heads = [replace(head, indices=rank[head.indices].tolist()) for head in heads]
    tuned = fitted.baselines.get("nms")
    thresholds = tuned and tuned["exact"].by_category.get(category_id, tuned["exact"].overall)
    boxes, scores = image.boxes[explanation.indices], image.scores[explanation.indices]
    explained = ExplainedCount(
        **vars(heads[0]),
        boxes=image.boxes[sources].tolist(),
        scores=image.scores[sources].tolist(),
        count=predicted.count,
        confidence=None,
        distribution=predicted.probabilities.tolist(),
        presence=presence.tolist(),
        duplicate_of=duplicate_of.tolist(),
        baselines=count_with_baselines(boxes, scores, thresholds) if thresholds else None,
        low=predicted.low,
        high=predicted.high,
    )
    return explained, heads


def count_with_baselines(
    boxes: NDArray[np.float32], scores: NDArray[np.float32], thresholds: Thresholds
) -> BaselineCounts:
    """Count by the sum of the scores, and by NMS with a score threshold."""
    kept = nms(boxes, scores, [thresholds.overlap])[0] & (scores >= np.float32(thresholds.score))
    return BaselineCounts(float(scores.sum()), int(kept.sum()), thresholds.overlap, thresholds.score)


def clear_and_doubtful(explained: ExplainedCount) -> tuple[list[int], list[int]]:
    """Return the counted boxes that have a presence of at least 0.5, and the others."""
    counted = [box for box, into in enumerate(explained.duplicate_of) if into == box]
    clear = [box for box in counted if explained.presence[box] >= CLEAR_PRESENCE]
    return clear, [box for box in counted if box not in clear]


def _box_shares(head: HeadTrace, boxes: int) -> list[float]:
    """Return each box's share of an object in the paper's counter: its self-edge, divided among its duplicates."""
    shares = [0.0] * boxes
    for row, box in enumerate(head.indices):
        shares[box] = head.trace["relevance"][row][row] * head.trace["scale"][row]
    return shares
