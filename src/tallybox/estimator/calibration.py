"""Calibration on held-out photos: how far intervals grow, and how probable it is that a category is there at all."""

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from tallybox.detections.labels import ABSENT_SCORE_ABOVE
from tallybox.detections.metrics import groups_of
from tallybox.estimator.inputs import SUMMARY
from tallybox.estimator.prediction import Floats, IntervalLevels, levels_needed, medians_of, write_out_tail

COVERAGE = 0.9
# Pairs that a group of predicted counts needs to be calibrated by itself; with fewer, all pairs are taken.
MIN_GROUP = 40
# A category is listed for an image unless it is 90 % certain that there is none.
LISTED_PROBABILITY = 1 - COVERAGE
SUMMARY_STIFFNESS = 2.0  # prior precision of the summary's weights: with few photos they stay near 0
EVERYTHING = 1.0  # level of an interval that holds every count
SLACK = 1e-9  # above the level that was needed


def interval_levels(probabilities: Floats, beyond: Floats, true_counts: NDArray[np.int64]) -> IntervalLevels:
    """Choose how far intervals grow so that 90 % of them hold the true count, for each group of predicted counts.

    Split conformal prediction by groups of predicted counts (0, 1, 2 to 4, 5 and more), on distributions
    ``[P, K + 1]`` that were predicted without knowing the true counts ``[P]``: the level is the 0.9 quantile of the
    levels that intervals would have needed.
    """
    with_tail = write_out_tail(probabilities, beyond)
    medians = medians_of(with_tail)
    needed = levels_needed(with_tail, medians, true_counts)
    groups = groups_of(medians)
    by_group = [needed[groups == group] for group in range(len(IntervalLevels._fields))]
    return IntervalLevels(*(_conformal_quantile(n if len(n) >= MIN_GROUP else needed) for n in by_group))


def _conformal_quantile(needed: Floats) -> float:
    """Return the level that holds a further pair with a probability of at least 0.9, given those of earlier pairs."""
    rank = ceil(COVERAGE * (len(needed) + 1))
    if rank > len(needed):
        return EVERYTHING
    return min(float(np.partition(needed, rank - 1)[rank - 1]) + SLACK, EVERYTHING)


@dataclass(frozen=True)
class Prevalence:
    """How probable it is that a category is there at all, over every category of every photo.

    A model learns from pairs that were chosen by their true counts: all categories that are there, and two that are
    not. It therefore overestimates the probability that a category with only weak boxes is there. A logistic regression
    on the model's probability and on the category's boxes corrects that.
    """

    weights: tuple[float, ...]  # of the columns of `_features`
    undetected: float  # probability where there is no box at all

    def apply(self, probabilities: Floats, best_scores: Floats, summary: Floats) -> Floats:
        """Return distributions over every category, ``[P, K + 1]``.

        ``best_scores [P]`` is 0 where there is no box; ``summary [P, S]`` is what a model sees of a category.
        """
        z = _features(probabilities, best_scores, summary) @ np.array(self.weights)
        present = np.where(best_scores > 0, _logistic(z), self.undetected)
        result = probabilities * (present / np.maximum(1 - probabilities[:, 0], 1e-12))[:, None]
        result[:, 0] = 1 - present
        return result


SCORE_FEATURES = 4  # the columns of `_features` before the summary
# Keeps the model's probabilities.
AS_PREDICTED = Prevalence((0.0, 1.0, *[0.0] * (SCORE_FEATURES - 2 + SUMMARY)), undetected=0.0)


def learn_prevalence(
    probabilities: Floats, best_scores: Floats, summary: Floats, present: NDArray[np.bool_], unseen: float
) -> Prevalence:
    """Fit a logistic regression to all detected pairs; of the undetected pairs, the share ``unseen`` is there."""
    features = _features(probabilities, best_scores, summary)
    # The summary's columns have different units: they are standardised here, and the weights scaled back below.
    mean, scale = np.zeros(features.shape[1]), np.ones(features.shape[1])
    mean[SCORE_FEATURES:] = features[:, SCORE_FEATURES:].mean(0)
    scale[SCORE_FEATURES:] = features[:, SCORE_FEATURES:].std(0).clip(min=0.1)
    features = (features - mean) / scale
    prior = np.zeros(features.shape[1])
    prior[:SCORE_FEATURES] = (0.0, 1.0, 0.0, -5.0)  # the model's probability, lowered for faint boxes
    stiffness = np.array([0.1, 1.0, 1.0, 0.1, *[SUMMARY_STIFFNESS] * (features.shape[1] - SCORE_FEATURES)])
    weights = prior.copy()

    def loss(w: Floats) -> float:
        z = features @ w
        return float((np.logaddexp(0, z) - present * z).sum() + (stiffness * (w - prior) ** 2).sum() / 2)

    for _ in range(30):  # Newton's method; a step that increases the loss is halved
        chance = _logistic(features @ weights)
        gradient = features.T @ (chance - present) + stiffness * (weights - prior)
        curvature = (features * (chance * (1 - chance))[:, None]).T @ features + np.diag(stiffness)
        step = np.linalg.solve(curvature, gradient)
        before = loss(weights)
        while np.abs(step).max() > 1e-6 and loss(weights - step) > before:
            step /= 2
        weights = weights - step
        if np.abs(step).max() <= 1e-6:
            break
    weights = weights / scale
    weights[0] -= mean @ weights
    return Prevalence(tuple(weights.tolist()), undetected=unseen)


def _logistic(z: Floats) -> Floats:
    return 0.5 * (1 + np.tanh(z / 2))


def _features(probabilities: Floats, best_scores: Floats, summary: Floats) -> Floats:
    """Return 1, the model's logit, the best score's logit, whether it is faint, and the summary: ``[P, 4 + S]``."""
    absent = probabilities[:, 0].clip(1e-3, 1 - 1e-3)
    score = np.asarray(best_scores, np.float64).clip(1e-3, 1 - 1e-3)
    faint = score <= ABSENT_SCORE_ABOVE
    logit, score_logit = np.log((1 - absent) / absent), np.log(score / (1 - score))
    return np.column_stack((np.ones(len(score)), logit, score_logit, faint.astype(np.float64), summary))
