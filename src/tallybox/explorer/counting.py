"""One counting as a page shows it: boxes, views, the count, who stood for whom, the baselines, the steps in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tallybox.boxes import nms
from tallybox.counter.module import Counter
from tallybox.counter.trace import CountTrace
from tallybox.detections.baselines import Thresholds
from tallybox.detections.container import Detections
from tallybox.estimator.estimator import CountEstimator
from tallybox.estimator.explanation import CountExplanation, merged_into
from tallybox.estimator.prediction import CountPrediction
from tallybox.explorer.story import steps_of
from tallybox.explorer.views import View, paper_view, presence_view
from tallybox.presence.module import PresenceCounter
from tallybox.presence.trace import PresenceTrace

Counting = dict[str, Any]

# What NMS + threshold would say where nobody tuned it.
USUAL_THRESHOLDS = Thresholds(overlap=0.5, score=0.5)


def counting_of_estimate(
    estimator: CountEstimator, image: Detections, category_id: int, explanation: CountExplanation
) -> Counting:
    """Show what a fitted estimator says about one category of an image, with a view for each head of each member."""
    fitted = estimator.fitted
    boxes, scores = image.boxes[explanation.indices], image.scores[explanation.indices]
    views = [
        {**_view(trace, member.component, head), "name": f"model {number}, head {head + 1}"}
        for number, (trace, member) in enumerate(zip(explanation.traces, fitted.members, strict=True), start=1)
        for head in range(fitted.config.heads)
    ]
    typical = _mean_view(views)
    said = explanation.prediction
    thresholds = fitted.baselines["nms"]["exact"]
    chosen = thresholds.by_category.get(category_id, thresholds.overall)
    counting = {
        "name": estimator.category_name(category_id),
        "boxes": boxes.tolist(),
        "scores": scores.tolist(),
        "views": views,
        "count": said.count,
        "distribution": said.probabilities.tolist(),
        "presence": explanation.presence.tolist(),
        "merged_into": merged_into(explanation).tolist(),
        "baselines": baselines(boxes, scores, chosen),
        "prediction": {
            **said.to_dict(),
            "probability": float(said.probabilities.max()),
            "members": fitted.config.members,
            "heads": fitted.config.heads,
        },
    }
    return {**counting, "steps": steps_of(counting, typical)}


def counting_of_component(
    name: str,
    boxes: NDArray[np.float32],
    scores: NDArray[np.float32],
    component: Counter | PresenceCounter,
    thresholds: Thresholds = USUAL_THRESHOLDS,
) -> Counting:
    """Show what a component with one head says about boxes ``[N, 4]`` and scores ``[N]`` as they are.

    A component that takes logits is given those, and shown with the scores that they stand for.

    >>> counting = counting_of_component("cat", np.zeros((2, 4), np.float32), np.ones(2, np.float32), Counter(3))
    >>> round(counting["count"], 4), counting["merged_into"]
    (1.0, [0, 0])
    """
    with torch.no_grad():
        trace = component.explain(torch.from_numpy(scores), torch.from_numpy(boxes))
    if component.logits:
        scores = torch.from_numpy(scores).sigmoid().numpy()
    view = {**_view(trace, component, 0), "name": ""}
    quantities = view["trace"]
    is_paper = isinstance(component, Counter)
    presence = _paper_presence(view, len(boxes)) if is_paper else quantities["presence"]
    counting = {
        "name": name,
        "boxes": boxes.tolist(),
        "scores": scores.tolist(),
        "views": [view],
        "count": quantities["count"],
        "distribution": quantities["features" if is_paper else "distribution"],
        "presence": presence,
        "merged_into": _merged(trace, presence, quantities["count"]),
        "baselines": baselines(boxes, scores, thresholds),
        "prediction": None,
    }
    return {**counting, "steps": steps_of(counting, view)}


def baselines(boxes: NDArray[np.float32], scores: NDArray[np.float32], thresholds: Thresholds) -> dict[str, Any]:
    """Return what adding up and NMS + threshold say, and which boxes the latter keeps."""
    kept = nms(boxes, scores, [thresholds.overlap])[0] & (scores >= np.float32(thresholds.score))
    return {
        "sum": float(scores.sum()),
        "nms": int(kept.sum()),
        "nms_kept": np.flatnonzero(kept).tolist(),
        "iou_threshold": thresholds.overlap,
        "score_threshold": thresholds.score,
    }


def _view(trace: CountTrace | PresenceTrace, component: Counter | PresenceCounter, head: int) -> View:
    if isinstance(component, Counter):
        assert isinstance(trace, CountTrace)
        return paper_view(trace, component.weight, head)
    assert isinstance(trace, PresenceTrace)
    return presence_view(trace, component.weights, head)


def _paper_presence(view: View, boxes: int) -> list[float]:
    """Return how far each box counts for the paper's component: what is left after sharing among its copies."""
    presence = [0.0] * boxes
    trace = view["trace"]
    for row, box in enumerate(view["indices"]):
        presence[box] = trace["relevance"][row][row] * trace["scale"][row]
    return presence


def _merged(trace: CountTrace | PresenceTrace, presence: list[float], count: float) -> list[int]:
    """Group boxes as `merged_into` does for an estimator, taking the component's own count for the prediction."""
    if not presence:
        return []
    whole = int(count + 0.5)
    said = CountPrediction(whole, whole, count, whole, whole, 0, np.zeros(1))
    explanation = CountExplanation(said, np.arange(len(presence)), np.array(presence, np.float32), (trace,))
    return [int(into) for into in merged_into(explanation)]


def _mean_view(views: list[View]) -> View:
    """Return the mean of presence counting's heads; those of the paper keep different boxes, so there the first."""
    if views[0]["component"] == "paper":
        return views[0]
    names = ("calibrated", "presence", "suppression")
    mean = {name: np.mean([view["trace"][name] for view in views], axis=0).tolist() for name in names}
    return {**views[0], "trace": mean}
