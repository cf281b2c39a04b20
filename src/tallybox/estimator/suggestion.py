"""Which images to label next, those with the most doubtful counts, and what accuracy more labels would bring."""

import math
from collections.abc import Iterable, Sequence
from heapq import nlargest
from typing import NamedTuple

import numpy as np

from tallybox.detections.container import Detections, ImageId
from tallybox.errors import InputError
from tallybox.estimator.estimator import Categories, CountEstimator
from tallybox.estimator.inference import CurvePoint
from tallybox.estimator.prediction import CountPrediction


class Suggestion(NamedTuple):
    """One image, with its most doubtful category."""

    doubt: int  # the sum of the widths of all categories' intervals
    entropy: float  # of their counts, in nats, to order images with the same doubt
    image_id: ImageId | None
    category: str
    prediction: CountPrediction


def doubtful_images(
    estimator: CountEstimator, detections: Iterable[Detections], number: int, categories: Categories = None
) -> list[Suggestion]:
    """Return the images with the most doubtful counts, the most doubtful first.

    Doubt is how wide the intervals of ``categories`` are, by default of those that the estimator learned from and that
    may be there. Others have no intervals that hold what they promise.
    """
    for category in categories or ():
        if estimator.category_id(category) not in estimator.fitted.category_ids:
            raise InputError(
                f"categories must be ones that the estimator learned from, but it never learned from {category!r}; "
                "label some photos of it and fit again"
            )
    suggestions = []
    for image, predictions in estimator.predict_each(detections, categories):
        doubts = {name: (p.high - p.low, _entropy(p)) for name, p in predictions.by_name().items() if p.calibrated}
        if doubts:
            worst = max(doubts, key=lambda name: doubts[name])
            width, entropy = sum(width for width, _ in doubts.values()), sum(entropy for _, entropy in doubts.values())
            suggestions.append(Suggestion(width, entropy, image.image_id, worst, predictions[worst]))
    return nlargest(number, suggestions, key=lambda suggestion: suggestion[:2])


def expected_at(points: Sequence[CurvePoint], photos: int) -> CurvePoint:
    """Return what a fit to so many photos would reach, from the two points of a learning curve.

    The error is assumed to fall with one over the square root of the number of photos, down to an error that more
    labels do not remove.

    >>> expected_at([CurvePoint(25, 0.4, 0.8), CurvePoint(100, 0.5, 0.7)], 400)
    CurvePoint(photos=400, exact=0.55, mae=0.65)
    """
    exact = 1 - _extrapolated([(point.photos, 1 - point.exact) for point in points], photos)
    mae = _extrapolated([(point.photos, point.mae) for point in points], photos)
    return CurvePoint(photos, round(exact, 4), round(mae, 4))


def _extrapolated(errors: Sequence[tuple[int, float]], photos: int) -> float:
    """Continue two errors by a + b / sqrt(photos), b at least 0."""
    (fewer, higher), (more, lower) = errors
    per_photo = [math.sqrt(1 / number) for number in (fewer, more, photos)]
    slope = max((higher - lower) / max(per_photo[0] - per_photo[1], 1e-9), 0.0)
    return max(lower + slope * (per_photo[2] - per_photo[1]), 0.0)


def _entropy(prediction: CountPrediction) -> float:
    probabilities = prediction.probabilities
    return float(-(probabilities * np.log(probabilities.clip(1e-12))).sum())
