"""Which images are worth labelling next: those in whose counts the estimator has the most doubt."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from typing import NamedTuple

import numpy as np

from tallybox.detections.container import Detections, ImageId
from tallybox.estimator.estimator import Categories, CountEstimator
from tallybox.estimator.prediction import CountPrediction


class Suggestion(NamedTuple):
    """One image, with what is most doubtful in it."""

    doubt: int  # how wide the intervals of all categories are together
    entropy: float  # of their counts in nats, which distinguishes images of the same width
    image_id: ImageId | None
    category: str
    prediction: CountPrediction


def doubtful_images(
    estimator: CountEstimator, detections: Iterable[Detections], number: int, categories: Categories = None
) -> list[Suggestion]:
    """Return the images in whose counts there is the most doubt, the most doubtful first.

    Doubt is how wide the intervals are, of the categories given, or of those that the estimator learned from and that
    may be there.
    """
    learned = set(estimator.fitted.category_ids)
    found = []
    for image, predictions in estimator.predict_each((i.of_categories(learned) for i in detections), categories):
        doubts = {name: (p.high - p.low, _entropy(p)) for name, p in predictions.by_name().items() if p.calibrated}
        if doubts:
            worst = max(doubts, key=lambda name: doubts[name])
            width, entropy = sum(width for width, _ in doubts.values()), sum(entropy for _, entropy in doubts.values())
            found.append(Suggestion(width, entropy, image.image_id, worst, predictions[worst]))
    return nlargest(number, found, key=lambda suggestion: suggestion[:2])


def _entropy(prediction: CountPrediction) -> float:
    probabilities = prediction.probabilities
    return float(-(probabilities * np.log(probabilities.clip(1e-12))).sum())
