"""Explained counts: every quantity behind a count, as pages draw it and as the service sends it."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from tallybox.activation import activation_knots
from tallybox.boxes import nms
from tallybox.counter.module import Counter
from tallybox.counter.trace import CountTrace
from tallybox.detections.baselines import Thresholds
from tallybox.detections.detections import Detections, Floats
from tallybox.estimator.estimator import CountEstimator
from tallybox.estimator.explanation import CountExplanation, merge_boxes, merged_into, suppression_of
from tallybox.presence.module import PresenceCounter
from tallybox.presence.reference import calibrated_score
from tallybox.presence.trace import PresenceTrace
from tallybox.presence.weights import PresenceFunctions, PresenceWeights

# Quantities of a trace with one and with two dimensions that run over proposals; the others have none.
OF_PROPOSALS = {"attention", "boxes", "mask", "indices", "scale", "calibrated", "presence"}
OF_PAIRS = {"relevance", "distance", "deduplicated", "similarity", "count_matrix", "overlap", "evidence", "suppression"}
OF_HEADS = {"evidence", "calibrated", "suppression", "presence", "distribution"}  # with a dimension for the one head

PHI_POINTS = 65  # scores at which φ is drawn
DEFAULT_THRESHOLDS = Thresholds(overlap=0.5, score=0.5)  # of NMS, if nobody tuned it


@dataclass(frozen=True)
class HeadTrace:
    """What one head of a component computed. The service's OpenAPI document shows the descriptions of fields."""

    component: Literal["counter", "presence"]
    indices: list[int] = field(metadata={"description": "Which box each row of the trace is."})
    trace: dict[str, Any] = field(metadata={"description": "The CountTrace or PresenceTrace of the library."})
    functions: dict[str, Any] = field(metadata={"description": "The learned functions, as points to draw."})


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
    duplicate_of: list[int] = field(metadata={"description": "The counted box of the same object; -1 if none is."})
    baselines: BaselineCounts | None = field(metadata={"description": "None without tuned thresholds."})
    low: int | None = field(default=None, metadata={"description": "Of the estimator's 90 % interval."})
    high: int | None = None


def explain_component(
    boxes: Floats, scores: Floats, component: Counter | PresenceCounter, thresholds: Thresholds = DEFAULT_THRESHOLDS
) -> ExplainedCount:
    """Count boxes ``[N, 4]`` with scores ``[N]`` by a component with one head."""
    with torch.no_grad():
        trace = component.explain(torch.from_numpy(scores), torch.from_numpy(boxes))
    head = head_trace(trace, component)
    quantities: dict[str, Any] = head.trace
    presence = quantities.get("presence", [0.0] * len(boxes))
    if head.component == "counter":  # a box's share of an object is its self-edge, divided among its duplicates
        for row, box in enumerate(head.indices):
            presence[box] = quantities["relevance"][row][row] * quantities["scale"][row]
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
    traces = map(head_trace, explanation.traces, fitted.ensemble.components())
    heads = [replace(head, indices=rank[head.indices].tolist()) for head in traces]
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


def count_with_baselines(boxes: Floats, scores: Floats, thresholds: Thresholds) -> BaselineCounts:
    """Count by the sum of the scores, and by NMS with a score threshold."""
    kept = nms(boxes, scores, [thresholds.overlap])[0] & (scores >= np.float32(thresholds.score))
    return BaselineCounts(float(scores.sum()), int(kept.sum()), thresholds.overlap, thresholds.score)


def head_trace(trace: CountTrace | PresenceTrace, component: Counter | PresenceCounter) -> HeadTrace:
    """Return the trace, without leading dimensions, of a component with one head; masked proposals are left out."""
    quantities: dict[str, Any] = {}
    for name, quantity in vars(trace).items():
        value: Tensor = quantity.detach()
        if name in OF_HEADS:
            value = value[0]
        if name in OF_PROPOSALS | OF_PAIRS:
            value = value[trace.mask]
        if name in OF_PAIRS:
            value = value[:, trace.mask]
        quantities[name] = value.tolist()
    if isinstance(component, Counter):
        knots = activation_knots(component.weight.detach()[0]).tolist()
        return HeadTrace("counter", quantities["indices"], quantities, {"activations": knots})
    functions = PresenceFunctions.of(PresenceWeights(*(weight.detach()[0] for weight in component.weights)))
    return HeadTrace("presence", [*range(len(quantities["presence"]))], quantities, presence_curves(functions))


def presence_curves(functions: PresenceFunctions) -> dict[str, Any]:
    """Return the functions of one head as points: φ and τ as (x, y), η and κ as tables by overlap and score."""
    scores = torch.linspace(0, 1, PHI_POINTS, dtype=functions.slope.dtype)
    phi = calibrated_score(scores.clamp(1e-6, 1 - 1e-6).logit(), scores.new_zeros(PHI_POINTS, 1), functions)
    lead = torch.linspace(0, 1, len(functions.order), dtype=functions.order.dtype)
    below = torch.stack((lead, functions.order), -1)[lead <= 0.5]
    above = torch.stack((lead, functions.order + functions.step), -1)[lead >= 0.5]  # the step at equal scores
    return {
        "phi": torch.stack((scores, phi), -1).tolist(),
        "tau": torch.cat((below, above)).tolist(),
        "eta": functions.overlap.tolist(),
        "kappa": functions.evidence.tolist(),
        **{name: getattr(functions, name).item() for name in ("slope", "shift", "sharpness", "step")},
    }
