"""Which boxes were counted, and which of the others they stand for: the grouping that pictures and pages show."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallybox.counter.trace import CountTrace
from tallybox.estimator.estimator import CountExplanation
from tallybox.presence.trace import PresenceTrace

Floats = NDArray[Any]

# A box below this presence is not pointed at: the count then says more than the boxes show.
LEAST_PRESENCE = 0.1
# From this on a counted box stands for another; below it, that one is a leftover.
STANDS_FOR = 0.5


def merged_into(explanation: CountExplanation) -> NDArray[np.int64]:
    """Return for each box of an explanation which counted one it stands for, ``[N]``: itself, another, or -1.

    Numbers are places in ``explanation.indices``. A counted box stands for itself; -1 is a faint leftover. As many
    boxes are counted as the prediction says, or fewer where the detector shows fewer: some were overlooked then.
    """
    return merge_boxes(explanation.presence, standing_for(explanation), explanation.prediction.count)


def merge_boxes(presence: NDArray[np.float32], suppression: Floats, count: int) -> NDArray[np.int64]:
    """Do the same for boxes with ``presence [N]`` and ``suppression [N, N]``, of which ``count`` are counted."""
    present: Floats = presence.astype(np.float64)
    counted = _counted(present, suppression, count)
    merged = np.full(len(presence), -1, np.int64)
    if len(counted):
        strength = suppression[:, counted]  # [N, counted]
        merged = np.where(strength.max(1) >= STANDS_FOR, counted[strength.argmax(1)], -1)
        merged[counted] = counted
    return merged


def standing_for(explanation: CountExplanation) -> Floats:
    """Return how much j, if it is there, stands for i too, ``[N, N]``, the mean of all members and heads."""
    number = len(explanation.indices)
    total = np.zeros((number, number))
    for trace in explanation.traces:
        total += suppression_of(trace, number) / len(explanation.traces)
    return total


def suppression_of(trace: PresenceTrace | CountTrace, number: int) -> Floats:
    """Return how much box j stands for box i in a trace of ``number`` boxes, ``[N, N]``, the mean of all heads."""
    if number == 0:
        return np.zeros((0, 0))
    if isinstance(trace, PresenceTrace):
        mean: Floats = trace.suppression.reshape(-1, *trace.suppression.shape[-2:]).mean(0).double().numpy()
        return mean[:number, :number]
    # The paper's component scales copies down together, whoever is ahead; the overlap says who they are copies of.
    pairs = np.zeros((number, number))
    kept = trace.indices.reshape(-1, trace.indices.shape[-1])[0].numpy()
    real = trace.mask.reshape(-1, trace.mask.shape[-1])[0].numpy()
    overlap = 1 - trace.distance.reshape(-1, *trace.distance.shape[-2:])[0].double().numpy()
    pairs[np.ix_(kept[real], kept[real])] = overlap[np.ix_(real, real)]
    np.fill_diagonal(pairs, 0)
    return pairs


def _counted(presence: Floats, suppression: Floats, count: int) -> NDArray[np.int64]:
    """Choose boxes one by one, the most present first, each time given that those chosen are there.

    A presence holds a factor 1 - s p for every other box; once that is known to be there, it is 1 - s.
    """
    left = presence.copy()
    chosen: list[int] = []
    while len(chosen) < min(count, len(presence)):
        best = int(left.argmax())
        if left[best] < LEAST_PRESENCE:
            break
        chosen.append(best)
        before = 1 - suppression[:, best] * presence[best]
        left *= np.divide(1 - suppression[:, best], before, out=np.zeros_like(before), where=before > 0)
        left[chosen] = -1
    return np.array(chosen, np.int64)
