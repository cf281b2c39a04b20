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

    doubt: float  # in nats: the entropy of the counts of all categories
    image_id: ImageId | None
    category: str
    prediction: CountPrediction


def doubtful_images(
    estimator: CountEstimator, detections: Iterable[Detections], number: int, categories: Categories = None
) -> list[Suggestion]:
    """Return the images in whose counts there is the most doubt, the most doubtful first.

    Doubt is the entropy of the distribution of the count, over the categories given, or over those that the estimator
    learned from and that may be there.
    """
    learned = set(estimator.fitted.category_ids)
    found = []
    for image, predictions in estimator.predict_each((i.of_categories(learned) for i in detections), categories):
        names = dict(zip(predictions, predictions.by_name(), strict=True))
        doubts = {key: _entropy(prediction) for key, prediction in predictions.items() if key in learned}
        if doubts:
            worst = max(doubts, key=lambda key: doubts[key])
            found.append(Suggestion(sum(doubts.values()), image.image_id, names[worst], predictions[worst]))
    return nlargest(number, found, key=lambda suggestion: suggestion.doubt)


def _entropy(prediction: CountPrediction) -> float:
    probabilities = np.asarray(prediction.probabilities)
    return float(-(probabilities * np.log(probabilities.clip(1e-12))).sum())
