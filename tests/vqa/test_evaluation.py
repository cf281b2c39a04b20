import pytest

from tallybox.cli.vqa.evaluate import table_rows
from tallybox.vqa.evaluation import mean_and_deviation

FOUR = [{"number": 44.6 + n / 10, "count": 51.5, "all": 64.8, "pair_all": 36.0 + n} for n in range(4)]


def test_mean_and_sample_deviation_over_runs():
    assert mean_and_deviation([44.6, 44.7, 44.8, 44.9]) == (pytest.approx(44.75), pytest.approx((0.05 / 3) ** 0.5))
    rows = table_rows({"baseline": FOUR, "counter": FOUR[:1]})
    assert rows[0] == ["Baseline", "44.75±0.1", "51.50±0.0", "64.80±0.0", "–", "–", "37.50±1.3"]
    assert rows[1] == ["+ counter", "44.60", "51.50", "64.80", "–", "–", "36.00"]
