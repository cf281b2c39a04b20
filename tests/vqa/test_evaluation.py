import pytest

from tallybox.vqa.evaluation import format_score, mean_and_deviation


def test_mean_and_sample_deviation_over_runs():
    four = [44.6, 44.7, 44.8, 44.9]
    assert mean_and_deviation(four) == (pytest.approx(44.75), pytest.approx((0.05 / 3) ** 0.5))
    assert (format_score(four), format_score(four[:1]), format_score([])) == ("44.75±0.1", "44.60", "–")
