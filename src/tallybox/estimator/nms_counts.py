"""Tuned NMS as a distribution of counts: thresholds weighted by how well they explain the labels, with their errors.

With few or clean labels it predicts better than a trained ensemble, so `fit` mixes both.

Legend: P pairs, G pairs of thresholds, K ``max_objects``, L the largest count of NMS.
"""

from typing import NamedTuple

import numpy as np

from tallybox.detections.metrics import COUNT_GROUPS, groups_of
from tallybox.estimator.prediction import Floats, Integers

MIN_WEIGHT = 1e-3  # of thresholds that are kept, relative to the best
PRIOR_PAIRS = 4.0  # with so many, the error rate of a group of counts is drawn towards that of all counts
SHARES = np.linspace(0, 1, 101)
MIN_SHARE = 0.1  # less is left out: held-out likelihoods are those of one member, and the ensemble is better


class NmsCounts(NamedTuple):
    """The distribution of true counts given the counts of NMS."""

    columns: Integers  # [E]: which pairs of thresholds are used
    tables: Floats  # [E, L + 1, K + 1]: the distribution for each count of NMS, times the weight of its thresholds

    def probabilities(self, counts: Integers) -> Floats:
        """Return distributions ``[P, K + 1]`` for counts of NMS ``[P, G]``."""
        used = counts[:, self.columns].clip(max=self.tables.shape[1] - 1)
        result: Floats = self.tables[np.arange(len(self.columns)), used].sum(1)
        return result

    def expected(self, counts: Integers) -> Floats:
        """Return the weighted mean of the counts of NMS, ``[P]``."""
        result: Floats = counts[:, self.columns] @ self.tables[:, 0].sum(-1)
        return result


def learn_nms_counts(counts: Integers, true_counts: Integers, max_objects: int, largest: int) -> NmsCounts:
    """Weight thresholds by their likelihood: counts ``[P, G]`` up to ``largest``, true counts ``[P]``."""
    truth = true_counts.clip(max=max_objects)
    tables = np.stack([_error_table(column, true_counts, max_objects, largest) for column in counts.T])
    likelihoods = [np.log(table[column, truth]).sum() for table, column in zip(tables, counts.T, strict=True)]
    weights = np.exp(np.array(likelihoods) - max(likelihoods))
    columns = np.flatnonzero(weights >= MIN_WEIGHT)
    weights = weights[columns] / weights[columns].sum()
    return NmsCounts(columns, tables[columns] * weights[:, None, None])


def _error_table(counts: Integers, true_counts: Integers, max_objects: int, largest: int) -> Floats:
    """Return the distribution of the true count for each count of NMS, ``[L + 1, K + 1]``.

    A count is right with a probability that depends on its group. If it is wrong, the error is geometric in either
    direction, with a spread that grows with the square root of the count.
    """
    n = np.arange(largest + 1)
    errors = true_counts - counts
    wrong, groups, number = errors != 0, groups_of(counts), len(COUNT_GROUPS)
    rate = (wrong.sum() + 0.5) / (len(counts) + 1)
    in_group, wrong_in_group = (np.bincount(groups, values, number) for values in (None, wrong))
    rates = (wrong_in_group + PRIOR_PAIRS * rate) / (in_group + PRIOR_PAIRS)
    may_fall = wrong & (counts > 0)
    falls = np.where(n > 0, ((errors < 0).sum() + 1) / (may_fall.sum() + 2), 0)[:, None]
    roots = np.sqrt(counts.clip(min=1))
    spread = ((np.abs(errors) - 1)[wrong].sum() + 0.5) / (roots[wrong].sum() + 1)
    mean = spread * np.sqrt(n.clip(min=1))[:, None]
    # Every true count up to twice the largest of NMS; larger ones have no probability worth mentioning.
    distance = np.arange(2 * largest + max_objects + 1) - n[:, None]  # [L + 1, T]
    size = (mean / (1 + mean)) ** (np.abs(distance) - 1.0)
    up, down = np.where(distance > 0, size, 0), np.where(distance < 0, size, 0)
    share_wrong = rates[groups_of(n)][:, None]
    table = share_wrong * (
        (1 - falls) * up / up.sum(1, keepdims=True) + falls * down / down.sum(1, keepdims=True).clip(min=1e-12)
    )
    table += (1 - share_wrong) * (distance == 0)
    table = table.clip(min=1e-12)
    table /= table.sum(1, keepdims=True)
    return np.concatenate((table[:, :max_objects], table[:, max_objects:].sum(1, keepdims=True)), axis=1)


def preferred_share(nms: Floats, ensemble: Floats) -> float:
    """Return the share of NMS in a mixture, its mean under the held-out likelihoods ``[P]`` of both."""
    mixed = SHARES[:, None] * nms + (1 - SHARES[:, None]) * ensemble
    log_likelihood = np.log(mixed.clip(min=1e-12)).sum(1)
    weights = np.exp(log_likelihood - log_likelihood.max())
    share = round(float(weights @ SHARES / weights.sum()), 4)
    return share if share >= MIN_SHARE else 0.0
