from __future__ import annotations

import numpy as np
import pytest

from tallybox.estimator.calibration import interval_levels, learn_prevalence
from tallybox.estimator.prediction import IntervalLevels, interval, read_off, with_tail

EVEN = IntervalLevels(0.1, 0.1, 0.1, 0.1)


def test_mode_median_mean_and_interval_of_a_distribution():
    (said,) = read_off(np.array([[0.02, 0.4, 0.28, 0.3]]), np.array([0.0]), EVEN).each()
    assert (said.count, said.median, said.low, said.high, said.at_least) == (1, 2, 1, 3, 0)
    assert said.expected == pytest.approx(0.4 + 0.56 + 0.9)


def test_counts_beyond_the_largest_are_counted_and_said_to_be_at_least():
    (said,) = read_off(np.array([[0.0, 0.1, 0.9]]), np.array([5.3]), EVEN).each()
    assert said.at_least == 2
    assert said.count == 2 + 5
    assert said.said == "at least 2, about 7"
    assert said.expected == pytest.approx(0.1 + 0.9 * (2 + 5.3))
    assert said.high > said.median >= 2
    assert said.to_dict()["at_least"] == 2


def test_the_tail_keeps_all_probability_and_its_mean():
    probabilities = np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])
    tail = with_tail(probabilities, np.array([3.0, 0.2]))
    np.testing.assert_allclose(tail.sum(1), 1)
    assert tail[0, 2:] @ np.arange(tail.shape[1] - 2) == pytest.approx(0.5 * 3, rel=0.02)


def test_an_interval_holds_the_most_probable_count_whatever_the_levels():
    low, high = interval(np.array([[0.2, 0.5, 0.3]]), IntervalLevels(1, 1, 1, 1))
    assert (low[0], high[0]) == (1, 1)


def poisson_answers(random, pairs):
    """Distributions as they are, of counts drawn from them."""
    rates = random.choice([0.05, 0.5, 1.5, 4.0, 9.0], pairs, p=[0.35, 0.2, 0.2, 0.15, 0.1])
    counts = np.arange(21)
    log_factorial = np.concatenate(([0], np.log(np.arange(1, 21)).cumsum()))
    table = np.exp(counts * np.log(rates)[:, None] - rates[:, None] - log_factorial)
    table /= table.sum(1, keepdims=True)
    truth = np.array([random.choice(21, p=row) for row in table])
    return table, truth


def test_intervals_hold_nine_of_ten_on_unseen_pairs_and_enough_of_each_group():
    random = np.random.default_rng(0)
    table, truth = poisson_answers(random, 4000)
    levels = interval_levels(table, np.zeros(len(table)), truth)
    unseen, unseen_truth = poisson_answers(random, 4000)
    low, high = interval(with_tail(unseen, np.zeros(len(unseen))), levels)
    held = (low <= unseen_truth) & (unseen_truth <= high)
    assert held.mean() == pytest.approx(0.9, abs=0.025)
    for least, most in ((1, 1), (2, 4), (5, 99)):
        assert held[(unseen_truth >= least) & (unseen_truth <= most)].mean() > 0.8


def test_few_pairs_still_give_levels():
    levels = interval_levels(np.array([[0.5, 0.5], [0.1, 0.9]]), np.zeros(2), np.array([0, 1]))
    assert all(0 <= level <= 1 for level in levels)


def test_prevalence_takes_back_what_choosing_pairs_by_the_truth_suggests():
    random = np.random.default_rng(1)
    score = random.uniform(0.01, 0.99, 2000)
    present = random.uniform(size=2000) < score**2
    believed = np.column_stack((1 - np.full(2000, 0.9), np.full(2000, 0.9)))  # always "there"
    prevalence = learn_prevalence(believed, score, present, unseen=0.002)
    mended = prevalence.apply(believed, score)
    np.testing.assert_allclose(mended.sum(1), 1)
    assert 1 - mended[score < 0.2, 0].mean() < 0.15
    assert 1 - mended[score > 0.9, 0].mean() > 0.75
    assert prevalence.apply(believed[:1], np.zeros(1))[0, 0] == pytest.approx(0.998)


def test_prevalence_stays_finite_where_scores_separate_perfectly():
    score = np.array([0.1, 0.2, 0.8, 0.9])
    believed = np.column_stack((1 - score, score))
    mended = learn_prevalence(believed, score, score > 0.5, unseen=0.01).apply(believed, score)
    assert np.isfinite(mended).all()
    assert (mended >= 0).all()


def test_without_a_pair_to_learn_from_intervals_are_as_wide_as_can_be():
    levels = interval_levels(np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64))
    low, high = interval(np.array([[0.9, 0.05, 0.04, 0.01]]), levels)
    assert (low[0], high[0]) == (0, 3)
