import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallybox.detections.metrics import CategorySums, CountSums, CoverageSums
from tallybox.errors import InputError

triples = st.lists(
    st.tuples(st.sampled_from([1, 18, 44]), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=20
)


def test_sums_worked_out_by_hand():
    both = CountSums.of([3, 0], [3, 1]) + CountSums.of([2], [4])
    assert both.compute() == {"exact": 1 / 3, "mae": 1.0, "rmse": math.sqrt(5 / 3)}
    categories = CategorySums.of(category_ids=[1, 1, 18], means=[2.0, 0.0, 1.0], true_counts=[2, 1, 0])
    assert categories.compute(images=4, category_ids=[1, 18]) == {"mrmse": 0.5, "mrmse_nz": math.sqrt(1 / 2)}
    covered = CoverageSums.of(lows=[1, 0], highs=[2, 0], true_counts=[2, 7], grouped_by=[1, 0])
    assert covered.coverage() == 0.5
    assert covered.coverage_by_group() == covered.width_by_group() == {"0": 0.0, "1": 1.0}


def test_figures_of_a_hand_computed_case():
    assert CountSums.of([1, 2, 7], [1, 4, 3]).compute() == {"exact": 1 / 3, "mae": 2.0, "rmse": math.sqrt(20 / 3)}


def test_each_figure_takes_the_prediction_that_suits_it():
    sums = CountSums.of([1], [2], medians=[2], means=[2.5])
    assert sums.compute() == {"exact": 0.0, "mae": 0.0, "rmse": 0.5}


def test_a_number_that_is_not_whole_is_rounded_to_be_exact_only():
    assert CountSums.of([2.4, 2.5, 0.49], [2, 3, 0]).exact == 3
    assert CountSums.of([2.5], [2]).compute()["mae"] == 0.5


@given(triples, st.integers(0, 20))
def test_sums_of_parts_are_the_sums_of_the_whole(rows, cut):
    categories, counts, truth = (np.array(column) for column in zip(*rows, strict=True))
    whole = CountSums.of(counts, truth)
    assert CountSums.of(counts[:cut], truth[:cut]) + CountSums.of(counts[cut:], truth[cut:]) == whole
    parts = [CategorySums.of(categories[s], counts[s], truth[s]) for s in (slice(cut), slice(cut, None))]
    assert parts[0] + parts[1] == CategorySums.of(categories, counts, truth)
    lows, highs = counts - 1, counts + 2
    halves = (slice(cut), slice(cut, None))
    covered = [CoverageSums.of(lows[s], highs[s], truth[s], grouped_by=counts[s]) for s in halves]
    assert covered[0] + covered[1] == CoverageSums.of(lows, highs, truth, grouped_by=counts)


@given(triples)
def test_mrmse_is_the_mean_over_categories_of_a_dense_table(rows):
    images, categories = len(rows), [1, 18, 44, 90]
    truth, means = np.zeros((images, 4)), np.zeros((images, 4))  # one image for each row
    for image, (category_id, count, true_count) in enumerate(rows):
        means[image, categories.index(category_id)] = count
        truth[image, categories.index(category_id)] = true_count
    figures = CategorySums.of(*zip(*rows, strict=True)).compute(images, categories)
    assert figures["mrmse"] == pytest.approx(np.sqrt(((means - truth) ** 2).mean(0)).mean())
    nonzero = [np.sqrt(((means - truth) ** 2)[truth[:, c] > 0, c].mean()) for c in range(4) if (truth[:, c] > 0).any()]
    assert figures["mrmse_nz"] == pytest.approx(np.mean(nonzero)) if nonzero else math.isnan(figures["mrmse_nz"])


def test_coverage_and_width_are_grouped_by_the_true_or_the_predicted_count():
    lows, highs, truth = [0, 1, 2, 3, 9], [0, 1, 3, 3, 9], [0, 1, 2, 4, 8]
    by_truth = CoverageSums.of(lows, highs, truth, grouped_by=truth)
    assert by_truth.coverage() == 0.6
    assert by_truth.coverage_by_group() == {"0": 1.0, "1": 1.0, "2-4": 0.5, "5+": 0.0}
    by_prediction = CoverageSums.of(lows, highs, truth, grouped_by=[0, 0, 2, 3, 9])
    assert by_prediction.coverage_by_group() == {"0": 1.0, "2-4": 0.5, "5+": 0.0}
    assert by_prediction.width_by_group() == {"0": 0.0, "2-4": 0.5, "5+": 0.0}


def test_no_pairs_have_no_figures():
    assert all(math.isnan(value) for value in CountSums().compute().values())
    assert math.isnan(CoverageSums().coverage())
    assert CoverageSums().coverage_by_group() == CoverageSums().width_by_group() == {}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CountSums.of([1, 2], [1]), r"true_counts must have shape \[2\], one for each pair, but got \[1\]"),
        (lambda: CountSums.of([[1]], [1]), r"counts must have shape \[P\]"),
        (lambda: CountSums.of([float("nan")], [1]), "counts must be numbers, but got NaN at index 0"),
        (lambda: CategorySums.of([1, 2], [1], [1]), r"category_ids must have shape \[1\]"),
        (
            lambda: CategorySums.of([1], [1], [1]).compute(3, [2]),
            "hold every category that was added, but 1 is missing",
        ),
        (lambda: CategorySums().compute(0, [2]), "must not be empty, but got 0 and 1"),
    ],
)
def test_wrong_shapes_and_numbers_are_an_error(call, message):
    with pytest.raises(InputError, match=message):
        call()
