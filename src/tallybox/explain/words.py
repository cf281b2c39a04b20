"""Counts in words: "6 cars", and the headline of a page."""

import numpy as np

from tallybox.detections.categories import named, quantity
from tallybox.estimator.prediction import CountPrediction, Floats


def headline(name: str, predicted: CountPrediction) -> str:
    """Return what is probable: the shortest range of counts that has at least half of the probability.

    >>> probabilities = np.array([0, 0, 0.06, 0.06, 0.2, 0.23, 0.2, 0.1, 0.15])
    >>> headline("car", CountPrediction(6, 5, 5.9, 3, 9, False, probabilities))
    'Probably 4 to 6 cars'
    """
    low, high = likely_range(predicted.probabilities)
    if predicted.saturated:
        return f"About {quantity(predicted.count, name)}"
    if low == high:
        return quantity(low, name)
    return f"Probably {named(f'{low} or {high}' if high == low + 1 else f'{low} to {high}', name)}"


def likely_range(probabilities: Floats) -> tuple[int, int]:
    """Return the shortest range with at least half of the probability; of equally short ones the most probable."""
    sums = np.concatenate(([0], np.cumsum(probabilities)))
    for width in range(1, len(probabilities) + 1):
        inside = sums[width:] - sums[:-width]
        if inside.max() >= 0.5:
            low = int(inside.argmax())
            return low, low + width - 1
    return 0, len(probabilities) - 1
