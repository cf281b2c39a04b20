"""How accuracy grows with the number of labelled photos: measured while fitting, and what more labels would bring.

Members that learn from a quarter of the photos count in the others; each member of the estimator counts in the part
that it left out. Error is taken to fall with one over the square root of the number of photos, down to what no number
of labels would remove.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from tallybox.detections.metrics import CountSums
from tallybox.estimator.inference import CurvePoint, distributions, infer
from tallybox.estimator.prediction import IntervalLevels, PredictionArrays, summarise
from tallybox.estimator.training import LabelledInputs, epochs_for, train_member

SHARE = 0.25  # of the photos; half of them as well took twice the time and gave the same slope
MEMBERS = 2  # which learn from different photos
MIN_PHOTOS = 40  # of a fit, so that a quarter has something to learn from


def learning_curve(
    labelled: LabelledInputs, held_out: PredictionArrays, *, excess: float, levels: IntervalLevels, seed: int
) -> tuple[CurvePoint, ...]:
    """Return two points, of a share of the photos and of the estimator's own members; none for few photos.

    ``held_out`` is the prediction of each pair by the member that left its photo out.
    """
    image_index, truth = labelled.pairs.image_index, labelled.true_counts.numpy()
    photos = int(image_index.max(initial=-1)) + 1
    if photos < MIN_PHOTOS:
        return ()
    order = np.random.default_rng(seed).permutation(photos)
    number, sums = round(SHARE * photos), CountSums()
    for member in range(MEMBERS):
        learns = np.isin(image_index, order[member * number : (member + 1) * number])
        split = replace(labelled, parts=torch.from_numpy(learns.astype(np.int64)))  # it leaves part 0 out
        model = train_member(split, 0, seed=seed * 1000 + 500 + member, epochs=epochs_for(int(learns.sum())))
        rows = split.of_part(0)
        found = summarise(*distributions([infer(model, labelled.inputs, rows)], excess), levels)
        sums += found.sums(truth[rows.numpy()])
    learned_from = round(photos * (1 - 1 / labelled.config.members))
    return _point(number, sums), _point(learned_from, held_out.sums(truth))


def expected_at(points: Sequence[CurvePoint], photos: int) -> CurvePoint:
    """Return what a fit to so many photos would reach.

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


def _point(photos: int, sums: CountSums) -> CurvePoint:
    figures = sums.compute()
    return CurvePoint(photos, round(figures["exact"], 4), round(figures["mae"], 4))
