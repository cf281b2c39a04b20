"""Totals over many images: the expected sum of each category, with an interval from the joint distribution.

Images are independent given the estimator, so their variances add up. The estimator's own error is the same in all
images: it is the variance of the total between members, each of which left a part of the photos out, times M - 1 as in
a delete-group jackknife. Held-out photos tell by what factor totals are too low and by how much intervals must be
scaled; the more photos there are, the better these are known.

Legend: P pairs of an image and a category, M members, C categories.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallybox.detections.detections import Detections
from tallybox.estimator.calibration import COVERAGE, LISTED_PROBABILITY
from tallybox.estimator.fitted import Fitted, TotalCalibration, predict_moments
from tallybox.estimator.inputs import BATCH, IndexedPairs, pairs_of_images
from tallybox.estimator.prediction import Floats, Integers

NORMAL_QUANTILE = 1.6449  # of 0.95: an interval leaves out 5 % on each side
DRAWS, PHOTOS = 200, 50  # random sets of held-out photos that intervals are calibrated on
MIN_EXPECTED = 5.0  # of the totals to calibrate on: smaller intervals end at whole numbers and hold more than 90 %
MIN_TOTALS = 100  # to calibrate on; with fewer, intervals are not scaled
# With fewer photos, a scale stays nearer to 1 than to what was learned: 0.7 from 200 photos held 72 %, not 90.
FEW_PHOTOS = 500
PRIOR_OBJECTS = 50.0
SCALES = tuple(round(0.05 * step, 2) for step in range(12, 61))  # 0.6 to 3


@dataclass(frozen=True)
class TotalPrediction:
    """How many objects of one category there are in all images together."""

    expected: float  # the best number for a total; the sum of the counts, which are medians, is too low
    low: int  # nine of ten such intervals hold the true total
    high: int
    images: int
    calibrated: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; ``calibrated`` only where it is false."""
        values = {"expected": round(self.expected, 2), "low": self.low, "high": self.high, "images": self.images}
        return values if self.calibrated else {**values, "calibrated": False}


class Totals:
    """Adds up images one by one; by default, totals are of the categories that some image lists."""

    def __init__(self, fitted: Fitted, names: Mapping[int, str], category_ids: Iterable[int] | None = None) -> None:
        self._fitted, self._names = fitted, names
        self._category_ids = None if category_ids is None else sorted(set(category_ids))
        self.listed_ids = set[int](self._category_ids or ())
        self._images, self._waiting = 0, list[Detections]()
        self._sums: dict[int, Floats] = {}  # [3 + M] by category id, of `predict_moments`

    def add(self, image: Detections) -> None:
        """Add one image."""
        self._waiting.append(image)
        if len(self._waiting) == BATCH:
            self._flush()

    def _flush(self) -> None:
        batch, self._waiting = self._waiting, []
        if not batch:
            return
        self._images += len(batch)
        pairs = pairs_of_images(batch, self._category_ids)
        moments, absent = predict_moments(self._fitted, batch, pairs)
        if self._category_ids is None:
            self.listed_ids.update(pairs.category_ids[absent < 1 - LISTED_PROBABILITY].tolist())
        for category_id in np.unique(pairs.category_ids).tolist():
            added = moments[pairs.category_ids == category_id].sum(0)
            self._sums[category_id] = self._sums.get(category_id, 0) + added

    def compute(self) -> dict[str, TotalPrediction]:
        """Return the totals by the names of categories."""
        self._flush()
        chosen = sorted(self.listed_ids)
        nothing = np.zeros(3 + len(self._fitted.members))
        sums = np.array([self._sums.get(category_id, nothing) for category_id in chosen]).reshape(-1, len(nothing))
        factors = self._fitted.totals.factors_of(chosen)
        mean, variance = joint_moments(sums, self._images, self._fitted.prevalence.undetected, factors)
        lows, highs = total_intervals(mean, variance, self._fitted.totals.scale_for(self._images))
        rows = zip(chosen, mean.tolist(), lows.tolist(), highs.tolist(), strict=True)
        learned = set(self._fitted.category_ids)
        return {
            self._names.get(key, str(key)): TotalPrediction(expected, low, high, self._images, key in learned)
            for key, expected, low, high in rows
        }


def joint_moments(sums: Floats, images: int, undetected: float, factors: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance ``[C]`` of totals from the sums of `predict_moments` over their pairs, ``[C, 3 + M]``.

    Images without a pair have no box of the category: each has one object with the probability ``undetected``. Totals
    are multiplied by ``factors [C]``.
    """
    rest = (images - sums[:, 2]) * undetected
    members = sums[:, 3:]
    variance = sums[:, 1] + rest + (members.shape[1] - 1) * members.var(axis=1)
    return factors * (sums[:, 0] + rest), factors**2 * variance


def total_intervals(mean: Floats, variance: Floats, scale: float) -> tuple[Integers, Integers]:
    """Return 90 % intervals of totals, all ``[C]``, from a gamma distribution's quantiles (Wilson and Hilferty)."""
    shape = np.maximum(mean, 1e-9) ** 2 / np.maximum(scale**2 * variance, 1e-9)
    low, high = (
        mean * np.maximum(1 - 1 / (9 * shape) + z / (3 * np.sqrt(shape)), 0) ** 3
        for z in (-NORMAL_QUANTILE, NORMAL_QUANTILE)
    )
    lows, highs = np.ceil(low - 0.5).clip(0).astype(np.int64), np.floor(high + 0.5).astype(np.int64)
    return lows, np.maximum(lows, highs)


def learn_totals(
    moments: Floats, pairs: IndexedPairs, true_counts: Integers, images: int, undetected: float
) -> TotalCalibration:
    """Learn by what factors totals are too low, and what scale makes intervals hold 90 % of totals over random sets.

    Everything is learned from held-out photos. A category's factor is drawn towards that of all categories, and that
    towards 1, as if `PRIOR_OBJECTS` more objects had been counted with it.

    ``moments [P, 3 + M]`` are those of `predict_moments`, of every pair that was detected or is there.
    """
    random = np.random.default_rng(0)
    ids, column = np.unique(pairs.category_ids, return_inverse=True)
    everything = np.zeros((len(ids), moments.shape[1]))
    np.add.at(everything, column, moments)
    expected, _ = joint_moments(everything, images, undetected, np.ones(len(ids)))
    counted = np.bincount(column, true_counts, minlength=len(ids))
    factor = float((counted.sum() + PRIOR_OBJECTS) / (expected.sum() + PRIOR_OBJECTS))
    factors = ((counted + factor * PRIOR_OBJECTS) / (expected + PRIOR_OBJECTS)).round(4)
    by_category = dict(zip(ids.tolist(), factors.tolist(), strict=True))
    draws: list[tuple[Floats, Floats, Floats]] = []  # mean, variance and true total of each category, all [C]
    for _ in range(DRAWS):  # with replacement: sets of 50 of 100 photos would be too similar
        drawn = np.bincount(random.integers(images, size=PHOTOS), minlength=images)
        times = drawn[pairs.image_index].astype(np.float64)
        sums = np.zeros_like(everything)
        np.add.at(sums, column, moments * times[:, None])
        truth = np.bincount(column, true_counts * times, minlength=len(sums))
        draws.append((*joint_moments(sums, PHOTOS, undetected, factors), truth.astype(np.float64)))
    mean, variance, truth = (np.concatenate(values) for values in zip(*draws, strict=True))
    large = mean >= MIN_EXPECTED
    if large.sum() < MIN_TOTALS:
        return TotalCalibration(1.0, images, round(factor, 4), by_category)
    for scale in SCALES:
        lows, highs = total_intervals(mean[large], variance[large], scale)
        if ((lows <= truth[large]) & (truth[large] <= highs)).mean() >= COVERAGE:
            break
    scale = round(1 + (scale - 1) * images / (images + FEW_PHOTOS), 3)
    return TotalCalibration(scale, images, round(factor, 4), by_category)
