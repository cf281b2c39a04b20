"""Calibration on held-out photos: how far intervals grow, and how probable it is that a category is there at all."""

from dataclasses import dataclass
from math import ceil

import numpy as np
import torch
from numpy.typing import NDArray

from tallybox.detections.labels import ABSENT_SCORE_ABOVE
from tallybox.detections.metrics import COUNT_GROUPS, groups_of
from tallybox.estimator.inputs import SUMMARY, logit
from tallybox.estimator.prediction import Floats, Integers, IntervalLevels, levels_needed, medians_of, write_out_tail

COVERAGE = 0.9
# A group of predicted counts with fewer pairs is calibrated by the larger of its own level and that of all pairs.
MIN_GROUP_PAIRS = 40
# A category is listed for an image unless it is 90 % certain that there is none.
LISTED_PROBABILITY = 1 - COVERAGE
SUMMARY_STIFFNESS = 2.0  # prior precision of the summary's weights: with few photos they stay near 0
EVERYTHING = 1.0  # level of an interval that covers every count
SLACK = 1e-9  # above the level that was needed


def interval_levels(probabilities: Floats, tail_mean: Floats, true_counts: Integers) -> IntervalLevels:
    """Choose how far intervals grow so that 90 % of them cover the true count, for each group of predicted counts.

    Split conformal prediction by groups of predicted counts (0, 1, 2 to 4, 5 and more), on distributions
    ``[P, K + 1]`` that were predicted without knowing the true counts ``[P]``: the level is the 0.9 quantile of the
    levels that intervals would have needed.
    """
    with_tail = write_out_tail(probabilities, tail_mean)
    medians = medians_of(with_tail)
    needed = levels_needed(with_tail, medians, true_counts)
    groups = groups_of(medians)
    levels = []
    for group in range(len(COUNT_GROUPS)):
        own = np.sort(needed[groups == group])
        level = _conformal_quantile(own if len(own) >= MIN_GROUP_PAIRS else np.sort(needed))
        if 0 < len(own) < MIN_GROUP_PAIRS:
            level = max(level, _conformal_quantile(own, at_most=own[-1]))
        levels.append(level)
    return tuple(levels)


def _conformal_quantile(ordered: Floats, at_most: float = EVERYTHING) -> float:
    """Return the level that covers a further pair with a probability of at least 0.9, given those of earlier pairs.

    With fewer than nine there is none; then it is ``at_most``.
    """
    rank = ceil(COVERAGE * (len(ordered) + 1))
    return min((float(ordered[rank - 1]) if rank <= len(ordered) else at_most) + SLACK, EVERYTHING)


@dataclass(frozen=True)
class Prevalence:
    """How probable it is that a category is there at all, over every category of every photo.

    The ensemble is trained on pairs that were chosen by their true counts: all categories that are there, and two that
    are not. It therefore overestimates the probability that a category with only weak boxes is there. A logistic
    regression on its probability and on the category's boxes corrects that.
    """

    weights: tuple[float, ...]  # of 1, the model's logit, and the columns of `_evidence`
    undetected: float  # probability if there is no box at all

    def apply(self, probabilities: Floats, best_scores: Floats, summary: Floats) -> Floats:
        """Return distributions over every category, ``[..., P, K + 1]``.

        ``best_scores [P]`` is 0 if there is no box; ``summary [P, S]`` is what the ensemble sees of a category.
        """
        bias, slope, *others = self.weights
        z = bias + slope * logit(1 - probabilities[..., 0]) + _evidence(best_scores, summary) @ np.array(others)
        present = np.where(best_scores > 0, 0.5 * (1 + np.tanh(z / 2)), self.undetected)
        result = probabilities * (present / np.maximum(1 - probabilities[..., 0], 1e-12))[..., None]
        result[..., 0] = 1 - present
        return result


# Keeps the model's probabilities.
AS_PREDICTED = Prevalence((0.0, 1.0, *[0.0] * (2 + SUMMARY)), undetected=0.0)


def learn_prevalence(
    probabilities: Floats, best_scores: Floats, summary: Floats, present: NDArray[np.bool_], unseen: float
) -> Prevalence:
    """Fit a logistic regression to all detected pairs; of the undetected pairs, the share ``unseen`` is there."""
    plain = np.column_stack((np.ones(len(present)), logit(1 - probabilities[:, 0]), _evidence(best_scores, summary)))
    # The summary's columns have different units: they are standardised here, and the weights scaled back below.
    mean, scale = plain.mean(0), plain.std(0).clip(min=0.1)
    mean[: -summary.shape[1]], scale[: -summary.shape[1]] = 0, 1
    features, truth = torch.from_numpy((plain - mean) / scale), torch.from_numpy(present.astype(np.float64))
    prior = torch.zeros(features.shape[1], dtype=torch.float64)
    prior[:4] = torch.tensor((0.0, 1.0, 0.0, -5.0))  # the model's probability, lowered for faint boxes
    stiffness = torch.full_like(prior, SUMMARY_STIFFNESS)
    stiffness[:4] = torch.tensor((0.1, 1.0, 1.0, 0.1))
    weights = prior.clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [weights],
        max_iter=300,
        tolerance_grad=1e-5,
        tolerance_change=1e-10,
        history_size=60,
        line_search_fn="strong_wolfe",
    )

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        fit = torch.nn.functional.binary_cross_entropy_with_logits(features @ weights, truth, reduction="sum")
        total = fit + (stiffness * (weights - prior) ** 2).sum() / 2
        total.backward()
        return total

    optimiser.step(loss)
    found = weights.detach().numpy() / scale
    found[0] -= mean @ found
    return Prevalence(tuple(found.tolist()), undetected=unseen)


def _evidence(best_scores: Floats, summary: Floats) -> Floats:
    """Return the best score's logit, whether it is faint, and the summary: ``[P, 2 + S]``."""
    faint = best_scores <= ABSENT_SCORE_ABOVE
    return np.column_stack((logit(np.asarray(best_scores, np.float64)), faint, summary))
