import numpy as np
import pytest
from research.few_labels import measure

from tallybox.estimator.nms_counts import learn_nms_counts, preferred_share

K, LARGEST = 10, 20


def test_thresholds_that_explain_the_labels_are_used_with_their_errors():
    random = np.random.default_rng(0)
    truth = random.poisson(3, 400)
    good = np.where(random.uniform(size=400) < 0.9, truth, truth + 1)
    counts = np.column_stack((random.poisson(3, 400), good, truth * 0 + 2))
    learned = learn_nms_counts(counts, truth, K, LARGEST)
    assert learned.columns.tolist() == [1]
    probabilities = learned.probabilities(counts)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    np.testing.assert_allclose(learned.expected(counts), good)
    assert (probabilities.argmax(1) == good.clip(max=K)).all()
    assert probabilities[good == 3, 3].mean() == pytest.approx(0.9, abs=0.05)
    assert (probabilities[good == 3, 2] > probabilities[good == 3, 4]).all(), "its errors are too high counts"


def test_few_labels_average_thresholds_that_are_equally_good():
    truth = np.array([0, 1, 2, 3] * 3)
    learned = learn_nms_counts(np.column_stack((truth, truth, truth + 1)), truth, K, LARGEST)
    first, second = learned.tables[:2].sum(-1)[:, 0]
    assert first == pytest.approx(second)
    assert first > 0.3


@pytest.mark.parametrize(
    ("nms", "ensemble", "low", "high"), [(0.9, 0.2, 0.9, 1), (0.2, 0.9, 0, 0), (0.5, 0.5, 0.4, 0.6)]
)
def test_the_held_out_likelihood_decides_the_share_of_nms(nms, ensemble, low, high):
    assert low <= preferred_share(np.full(60, nms), np.full(60, ensemble)) <= high


def test_ten_labels_of_a_clean_detector_count_as_well_as_tuned_nms():
    found = [measure("clean", 10, seed) for seed in (5, 6)]
    assert sum(f["exact"] for f in found) >= sum(f["NMS exact"] for f in found) - 0.04
    assert all(f["share of NMS"] > 0.3 for f in found)
