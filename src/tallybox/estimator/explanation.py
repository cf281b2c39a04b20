"""Explanations: which boxes were counted, and which boxes are their duplicates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tallybox.boxes import suppress
from tallybox.counter.trace import CountTrace
from tallybox.estimator.fitted import Fitted
from tallybox.estimator.inputs import ModelInputs
from tallybox.estimator.prediction import CountPrediction
from tallybox.kernels.proposals import checked_proposals
from tallybox.presence.functional import presence_trace
from tallybox.presence.trace import PresenceTrace
from tallybox.presence.weights import PresenceWeights

Floats = NDArray[Any]

# A box below this presence is not shown as counted: the count is then larger than what the boxes show.
MIN_PRESENCE = 0.1
CLEAR_PRESENCE = 0.5  # a counted box is clear from here on, doubtful below
# From this suppression on a box is a duplicate of a counted one; below it, it is a leftover.
MIN_SUPPRESSION = 0.5


@dataclass(frozen=True)
class CountExplanation:
    """Which boxes were counted."""

    prediction: CountPrediction
    indices: NDArray[np.int64]  # [N] boxes of the image that took part, the best score first
    presence: NDArray[np.float32]  # [N]: how far each counts as an object of its own, the mean of all heads
    traces: tuple[PresenceTrace, ...]  # every intermediate quantity, for each member


@torch.no_grad()
def explain_predictions(
    fitted: Fitted, inputs: ModelInputs, predictions: Mapping[int, CountPrediction]
) -> dict[int, CountExplanation]:
    """Return which boxes of an image count and why, for the categories of its inputs, which are those predicted."""
    ensemble = fitted.ensemble
    weights = PresenceWeights(**{name: tensor[:, None, None] for name, tensor in ensemble.component.items()})
    proposals = checked_proposals(ensemble.score_logit(inputs), inputs.boxes, inputs.mask, logits=True)
    trace = vars(presence_trace(proposals, weights, max_objects=ensemble.config.max_objects, logits=True))
    explanations = {}
    for row, (category_id, prediction) in enumerate(predictions.items()):
        real = inputs.mask[row].numpy()
        traces = tuple(
            PresenceTrace(**{name: quantity[member, row] for name, quantity in trace.items()})
            for member in range(ensemble.members)
        )
        presence = np.mean([trace.presence.mean(-2).numpy() for trace in traces], axis=0)[real]
        explanations[category_id] = CountExplanation(prediction, inputs.sources[row].numpy()[real], presence, traces)
    return explanations


def merged_into(explanation: CountExplanation) -> NDArray[np.int64]:
    """Return for each box of an explanation which counted box it is merged into, ``[N]``: itself, another, or -1.

    Numbers are indices into ``explanation.indices``. A counted box is merged into itself; -1 is a faint leftover. As
    many boxes are counted as the prediction says, or fewer where the detector found fewer.
    """
    suppression = np.mean([suppression_of(trace, len(explanation.indices)) for trace in explanation.traces], axis=0)
    return merge_boxes(explanation.presence, suppression, explanation.prediction.count)


def merge_boxes(presence: NDArray[np.float32], suppression: Floats, count: int) -> NDArray[np.int64]:
    """Return the same for boxes with ``presence [N]`` and ``suppression [N, N]``, of which ``count`` are counted.

    The most present boxes that NMS keeps are counted first, then the most present of the others.
    """
    order = np.argsort(-presence.astype(np.float64), kind="stable")
    kept = suppress(suppression[np.ix_(order, order)].T >= MIN_SUPPRESSION)
    counted = np.concatenate((order[kept], order[~kept]))
    counted = counted[presence[counted].astype(np.float64) >= MIN_PRESENCE][:count]
    merged = np.full(len(presence), -1, np.int64)
    if len(counted):
        strength = suppression[:, counted]  # [N, counted]
        merged = np.where(strength.max(1) >= MIN_SUPPRESSION, counted[strength.argmax(1)], -1)
        merged[counted] = counted
    return merged


def suppression_of(trace: PresenceTrace | CountTrace, number: int) -> Floats:
    """Return how much box j suppresses box i in a trace of ``number`` boxes, ``[N, N]``, the mean of all heads."""
    if number == 0:
        return np.zeros((0, 0))
    if isinstance(trace, PresenceTrace):
        mean: Floats = trace.suppression.reshape(-1, *trace.suppression.shape[-2:]).mean(0).double().numpy()
        return mean[:number, :number]
    # The paper's component scales all copies of an object down equally; the overlap shows which boxes are copies.
    pairs = np.zeros((number, number))
    kept = trace.indices.reshape(-1, trace.indices.shape[-1])[0].numpy()
    real = trace.mask.reshape(-1, trace.mask.shape[-1])[0].numpy()
    overlap = 1 - trace.distance.reshape(-1, *trace.distance.shape[-2:])[0].double().numpy()
    pairs[np.ix_(kept[real], kept[real])] = overlap[np.ix_(real, real)]
    np.fill_diagonal(pairs, 0)
    return pairs
