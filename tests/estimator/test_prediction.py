import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallybox.detections.metrics import groups_of
from tallybox.estimator.calibration import interval_levels, learn_prevalence
from tallybox.estimator.inputs import SUMMARY
from tallybox.estimator.prediction import intervals, levels_needed, medians_of, summarise, write_out_tail

EVEN = (0.6,) * 4
NONE = np.zeros(1)


def test_median_mode_mean_and_interval_of_a_distribution():
    (prediction,) = summarise(np.array([[0.02, 0.4, 0.28, 0.3]]), NONE, EVEN).each()
    assert (prediction.count, prediction.most_probable, prediction.low, prediction.high) == (2, 1, 1, 3)
    assert not prediction.saturated
    assert prediction.expected == pytest.approx(0.4 + 0.56 + 0.9)
    assert prediction.probability_of_any == pytest.approx(0.98)


def test_the_median_is_the_answer_where_the_most_probable_count_is_far_from_the_mean():
    """Two clear ties, one chance in three that none is a tie: 0 is the most probable count, and 2 the answer."""
    (prediction,) = summarise(np.array([[0.34, 0.1, 0.3, 0.26]]), NONE, EVEN).each()
    assert (prediction.most_probable, prediction.count) == (0, 2)


def test_counts_beyond_the_largest_go_by_the_boxes_and_are_saturated():
    (prediction,) = summarise(np.array([[0.0, 0.1, 0.9]]), np.array([5.3]), EVEN).each()
    assert prediction.saturated
    assert prediction.most_probable == 2 + 5
    assert 2 < prediction.count < 8
    assert str(prediction) == f"about {prediction.count}"
    assert prediction.expected == pytest.approx(0.1 + 0.9 * (2 + 5.3))
    assert prediction.high > prediction.count
    assert prediction.to_dict()["saturated"]


def test_a_prediction_does_not_depend_on_those_beside_it():
    single, crowd = np.array([[0.3, 0.4, 0.3]]), np.array([[0.0, 0.0, 1.0]])
    wide = (1.0,) * 4
    alone = summarise(single, np.array([0.4]), wide).each()[0]
    beside = summarise(np.concatenate((single, crowd)), np.array([0.4, 50.0]), wide).each()[0]
    assert alone.to_dict() == beside.to_dict()


def test_the_tail_keeps_all_probability_and_its_mean():
    probabilities = np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])
    tail = write_out_tail(probabilities, np.array([3.0, 0.2]))
    np.testing.assert_allclose(tail.sum(1), 1)
    assert tail[0, 2:] @ np.arange(tail.shape[1] - 2) == pytest.approx(0.5 * 3, rel=0.02)


distributions = st.lists(st.integers(0, 50), min_size=2, max_size=12).filter(any)


@given(distributions, st.floats(-1, 1))
def test_an_interval_grows_from_the_median_by_the_more_probable_neighbour(weights, level):
    p = np.array([weights]) / sum(weights)
    (median,) = medians_of(p)
    low = high = median  # in plain steps
    while True:
        below = p[0, low - 1] if low > 0 else -1
        above = p[0, high + 1] if high < p.shape[1] - 1 else -1
        if max(below, above) < 0 or p[0, low : high + 1].sum() - max(below, above) >= level:
            break
        low, high = (low - 1, high) if below > above else (low, high + 1)
    (grown_low,), (grown_high,) = intervals(p, np.array([median]), np.array([level]))
    close = min(abs(p[0, low : high + 1].sum() - p[0, k] - level) for k in range(p.shape[1])) < 1e-9
    assert close or (grown_low, grown_high) == (low, high)  # sums in another order may differ at a level itself


@given(distributions, st.integers(0, 14))
def test_the_level_that_is_needed_is_where_the_interval_begins_to_hold_a_count(weights, count):
    p = np.array([weights]) / sum(weights)
    medians, truth = medians_of(p), np.array([count])
    (needed,) = levels_needed(p, medians, truth)
    if count >= p.shape[1]:
        assert needed == np.inf
        return
    for level, holds in ((needed - 1e-6, False), (needed + 1e-6, True)):
        (low,), (high,) = intervals(p, medians, np.array([level]))
        assert (low <= count <= high) == (holds or count == medians[0])


def poisson_predictions(random, pairs):
    """Distributions as they are, of counts drawn from them."""
    rates = random.choice([0.05, 0.5, 1.5, 4.0, 9.0], pairs, p=[0.35, 0.2, 0.2, 0.15, 0.1])
    counts = np.arange(21)
    log_factorial = np.concatenate(([0], np.log(np.arange(1, 21)).cumsum()))
    table = np.exp(counts * np.log(rates)[:, None] - rates[:, None] - log_factorial)
    table /= table.sum(1, keepdims=True)
    truth = np.array([random.choice(21, p=row) for row in table])
    return table, truth


@pytest.mark.parametrize("sharper", [1.0, 2.0], ids=["calibrated", "overconfident"])
def test_intervals_hold_nine_of_ten_unseen_pairs_whatever_is_predicted(sharper):
    random = np.random.default_rng(0)

    def predicted(pairs):
        table, truth = poisson_predictions(random, pairs)
        table = table**sharper
        return table / table.sum(1, keepdims=True), truth

    table, truth = predicted(6000)
    levels = interval_levels(table, np.zeros(len(table)), truth)
    unseen, unseen_truth = predicted(6000)
    predictions = summarise(unseen, np.zeros(len(unseen)), levels)
    held = (predictions.lows <= unseen_truth) & (unseen_truth <= predictions.highs)
    assert held.mean() == pytest.approx(0.9, abs=0.06)  # whole counts: an interval may hold more than it must
    for group in range(4):
        assert 0.87 < held[groups_of(predictions.counts) == group].mean() < 0.99
    if sharper > 1:  # levels for calibrated distributions would hold too little
        naive = summarise(unseen, np.zeros(len(unseen)), (0.85,) * 4)
        held = (naive.lows <= unseen_truth) & (unseen_truth <= naive.highs)
        assert held[naive.counts >= 2].mean() < 0.87


def test_a_group_with_few_pairs_is_calibrated_with_all():
    random = np.random.default_rng(3)
    table, truth = poisson_predictions(random, 300)
    few = medians_of(table) < 5
    levels = interval_levels(table[few], np.zeros(few.sum()), truth[few])
    needed = levels_needed(table[few], medians_of(table[few]), truth[few])
    assert levels[3] == pytest.approx(np.sort(needed)[int(np.ceil(0.9 * (len(needed) + 1))) - 1], abs=1e-6)
    assert levels[3] != pytest.approx(levels[0], abs=1e-3)  # of which there are enough


def test_a_group_with_few_pairs_is_never_narrower_than_its_own_pairs_ask_for():
    sure, large = np.zeros((300, 11)), np.full((20, 11), 0.001)
    sure[:, 0] = 1
    large[:, 8] = 1 - large[:, :8].sum(1) - large[:, 9:].sum(1)
    truth = np.concatenate((np.zeros(300, np.int64), np.tile([5, 6, 7, 8], 5)))
    table = np.concatenate((sure, large))
    predictions = summarise(table, np.zeros(320), interval_levels(table, np.zeros(320), truth)).at(slice(300, None))
    covered = (predictions.lows <= truth[300:]) & (truth[300:] <= predictions.highs)
    assert covered.mean() >= 0.9


def test_without_enough_pairs_to_learn_from_intervals_are_as_wide_as_can_be():
    for pairs in (0, 5):
        table = np.full((pairs, 4), 0.25)
        levels = interval_levels(table, np.zeros(pairs), np.zeros(pairs, np.int64))
        (prediction,) = summarise(np.array([[0.9, 0.05, 0.04, 0.01]]), NONE, levels).each()
        assert (prediction.low, prediction.high) == (0, 3)


def test_prevalence_takes_back_what_choosing_pairs_by_the_truth_suggests():
    random = np.random.default_rng(1)
    score = random.uniform(0.01, 0.99, 2000)
    present = random.uniform(size=2000) < score**2
    believed = np.column_stack((1 - np.full(2000, 0.9), np.full(2000, 0.9)))  # always "there"
    summary = np.zeros((2000, SUMMARY))
    prevalence = learn_prevalence(believed, score, summary, present, unseen=0.002)
    fixed = prevalence.apply(believed, score, summary)
    np.testing.assert_allclose(fixed.sum(1), 1)
    assert 1 - fixed[score < 0.2, 0].mean() < 0.15
    assert 1 - fixed[score > 0.9, 0].mean() > 0.75
    assert prevalence.apply(believed[:1], np.zeros(1), summary[:1])[0, 0] == pytest.approx(0.998)


def test_prevalence_stays_finite_where_scores_separate_perfectly():
    score = np.array([0.1, 0.2, 0.8, 0.9])
    believed = np.column_stack((1 - score, score))
    summary = np.zeros((4, SUMMARY))
    fixed = learn_prevalence(believed, score, summary, score > 0.5, unseen=0.01).apply(believed, score, summary)
    assert np.isfinite(fixed).all()
    assert (fixed >= 0).all()


def test_prevalence_uses_what_the_summary_tells():
    random = np.random.default_rng(2)
    summary = random.normal(3, 2, (3000, SUMMARY))
    present = summary[:, 5] + random.normal(0, 0.5, 3000) > 3
    believed, score = np.full((3000, 2), 0.5), np.full(3000, 0.5)
    prevalence = learn_prevalence(believed, score, summary, present, unseen=0.01)
    chance = 1 - prevalence.apply(believed, score, summary)[:, 0]
    assert ((chance > 0.5) == present).mean() > 0.85
