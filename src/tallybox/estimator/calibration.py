"""Learned from photos that a model did not learn from: how wide intervals must be, and how rare objects are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tallybox.detections.labels import ABSENT_SCORE_ABOVE
from tallybox.estimator.prediction import Floats, IntervalLevels, interval, with_tail

COVERAGE = 0.9
# Aimed at for each group of true counts on its own; less where all are held too often otherwise.
LEAST_COVERAGES = (0.86, 0.84, 0.82, 0.8)
GROUPS = ((0, 0), (1, 1), (2, 4), (5, np.inf))  # as `IntervalLevels` has them
# Pairs that tell a group's coverage. With 30 photos few hold 5 or more of a category: asking for 20 pairs left 0.46 of
# such counts inside (four random draws of 30 training photos, 700 others), asking for 5 leaves more, in wider ones.
LEAST_GROUP = 5
LEAST_LOG_LEVEL = -12.0
SLACK = 0.005  # of the coverage of all


def interval_levels(probabilities: Floats, excess: Floats, true_counts: NDArray[np.int64]) -> IntervalLevels:
    """Choose how probable counts in intervals must be, so that 90 % of the true counts are held, in each group enough.

    Conformal prediction by groups: one level for all counts holds 90 % of all; a group that it holds too seldom gets
    a lower level of its own, and the one for all rises in turn.
    """
    if not len(true_counts):  # nothing is known: as wide as can be
        return _levels(np.full(len(GROUPS), LEAST_LOG_LEVEL), 0.0)
    written_out = with_tail(probabilities, excess)
    groups = [(true_counts >= least) & (true_counts <= most) for least, most in GROUPS]
    told = [index for index, group in enumerate(groups) if group.sum() >= LEAST_GROUP]
    own, common = np.zeros(len(GROUPS)), 0.0  # logarithms of levels
    for least in LEAST_COVERAGES:
        own, common = np.zeros(len(GROUPS)), 0.0
        for _ in range(3):  # each depends on the others, a little: all settle in so many rounds
            common = _largest(partial(_coverage, written_out, true_counts, own, None), COVERAGE)
            for index in told:
                group = groups[index]
                limits = np.minimum(own, common)
                own[index] = _largest(partial(_coverage, written_out[group], true_counts[group], limits, index), least)
        if _coverage(written_out, true_counts, own, None, common) <= COVERAGE + SLACK:
            break
    return _levels(own, common)


def _coverage(
    written_out: Floats, true_counts: NDArray[np.int64], own: Floats, index: int | None, level: float
) -> float:
    """Return the share of intervals that hold the truth, with ``level`` for one group, or as a limit for all."""
    own, limit = (own, level) if index is None else (np.where(np.arange(len(own)) == index, level, own), 0.0)
    low, high = interval(written_out, _levels(own, limit))
    return float(((low <= true_counts) & (true_counts <= high)).mean())


def _levels(own: Floats, common: float) -> IntervalLevels:
    return IntervalLevels(*(float(level) for level in np.exp(np.minimum(own, common))))


def _largest(coverage: Callable[[float], float], enough: float) -> float:
    """Return the largest logarithm of a level that holds enough, by bisection."""
    low, high = LEAST_LOG_LEVEL, 0.0
    if coverage(high) >= enough:
        return high
    for _ in range(14):
        middle = (low + high) / 2
        low, high = (middle, high) if coverage(middle) >= enough else (low, middle)
    return low


@dataclass(frozen=True)
class Prevalence:
    """How probable it is that a category is there at all, over every category of every photo.

    A model learns from pairs that were chosen by the truth: all that are there, and two that are not. So it believes
    that a category without a single good box is there, or nobody would ask. Over all categories hardly any is.
    """

    offset: float
    of_model: float  # factor of the model's logit that it is there
    of_score: float  # factor of the logit of the category's best score
    of_faint: float  # where that score is one at which no absent category was learned from
    undetected: float  # probability where there is no box at all

    def apply(self, probabilities: Floats, best_scores: Floats) -> Floats:
        """Return distributions over every category, ``[Q, K + 1]``; ``best_scores [Q]`` is 0 where there is no box."""
        weights = np.array([self.offset, self.of_model, self.of_score, self.of_faint])
        z = _features(probabilities, best_scores) @ weights
        present = np.where(best_scores > 0, _logistic(z), self.undetected)
        result = probabilities * (present / np.maximum(1 - probabilities[:, 0], 1e-12))[:, None]
        result[:, 0] = 1 - present
        return result


def learn_prevalence(
    probabilities: Floats, best_scores: Floats, present: NDArray[np.bool_], unseen: float
) -> Prevalence:
    """Fit a logistic regression to every detected pair; of the others, the share ``unseen`` is there."""
    features = _features(probabilities, best_scores)
    weights = np.array([0.0, 1.0, 0.0, -5.0])  # at first, what the model says, but not of faint boxes
    prior, stiffness = weights.copy(), np.array([0.1, 1.0, 1.0, 0.1])

    def loss(w: Floats) -> float:
        z = features @ w
        return float((np.logaddexp(0, z) - present * z).sum() + (stiffness * (w - prior) ** 2).sum() / 2)

    for _ in range(30):  # Newton's method, with shorter steps where a whole one goes too far
        chance = _logistic(features @ weights)
        gradient = features.T @ (chance - present) + stiffness * (weights - prior)
        curvature = (features * (chance * (1 - chance))[:, None]).T @ features + np.diag(stiffness)
        step = np.linalg.solve(curvature, gradient)
        before = loss(weights)
        while np.abs(step).max() > 1e-6 and loss(weights - step) > before:
            step /= 2
        weights = weights - step
    offset, of_model, of_score, of_faint = (float(weight) for weight in weights)
    return Prevalence(offset, of_model, of_score, of_faint, undetected=unseen)


def _logistic(z: Floats) -> Floats:
    return 0.5 * (1 + np.tanh(z / 2))


def _features(probabilities: Floats, best_scores: Floats) -> Floats:
    absent = probabilities[:, 0].clip(1e-3, 1 - 1e-3)
    score = np.asarray(best_scores, np.float64).clip(1e-3, 1 - 1e-3)
    faint = score <= ABSENT_SCORE_ABOVE
    return np.column_stack(
        (np.ones(len(score)), np.log((1 - absent) / absent), np.log(score / (1 - score)), faint.astype(np.float64))
    )
