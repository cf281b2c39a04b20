import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallybox.detections.metrics import category_errors, count_metrics, mean_by_group

triples = st.lists(
    st.tuples(st.sampled_from([1, 18, 44]), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=20
)


def test_figures_worked_out_by_hand():
    assert count_metrics([3, 0, 2], [3, 1, 4]) == {"exact": 1 / 3, "mae": 1.0, "rmse": math.sqrt(5 / 3)}
    assert count_metrics([1, 2, 7], [1, 4, 3]) == {"exact": 1 / 3, "mae": 2.0, "rmse": math.sqrt(20 / 3)}
    errors = category_errors([1, 1, 18], [2.0, 0.0, 1.0], [2, 1, 0], images=4, categories=[1, 18])
    assert errors == {"mrmse": 0.5, "mrmse_nz": math.sqrt(1 / 2)}


def test_each_figure_takes_the_prediction_that_suits_it():
    assert count_metrics([1], [2], medians=[2], means=[2.5]) == {"exact": 0.0, "mae": 0.0, "rmse": 0.5}


def test_a_number_that_is_not_whole_is_rounded_to_be_exact_only():
    assert count_metrics([2.4, 2.5, 0.49], [2, 3, 0])["exact"] == 1
    assert count_metrics([2.5], [2])["mae"] == 0.5


@given(triples)
def test_mrmse_is_the_mean_over_categories_of_a_dense_table(rows):
    images, categories = len(rows), [1, 18, 44, 90]
    truth, means = np.zeros((images, 4)), np.zeros((images, 4))  # one image for each row
    for image, (category_id, count, true_count) in enumerate(rows):
        means[image, categories.index(category_id)] = count
        truth[image, categories.index(category_id)] = true_count
    figures = category_errors(*zip(*rows, strict=True), images=images, categories=categories)
    assert figures["mrmse"] == pytest.approx(np.sqrt(((means - truth) ** 2).mean(0)).mean())
    nonzero = [np.sqrt(((means - truth) ** 2)[truth[:, c] > 0, c].mean()) for c in range(4) if (truth[:, c] > 0).any()]
    assert figures["mrmse_nz"] == (pytest.approx(np.mean(nonzero)) if nonzero else None)


def test_means_are_of_the_groups_that_there_are():
    assert mean_by_group([1, 1, 1, 0, 0], [0, 1, 2, 4, 8]) == {"0": 1.0, "1": 1.0, "2-4": 0.5, "5+": 0.0}
    assert mean_by_group([0, 0, 1, 0, 0], [0, 0, 2, 3, 9]) == {"0": 0.0, "2-4": 0.5, "5+": 0.0}
    assert mean_by_group([], []) == {}
