import pytest
from benchmarks.synthetic_photos import made_up_photos

from benchmarks import detections as bench
from tallybox.errors import TallyboxError
from tests.support.estimators import small_estimator


def test_counting_is_timed_beside_supervision():
    rows = list(bench.compare_with_nms(small_estimator(), made_up_photos(20)[0], seconds=0.01))
    assert [row.case.split(", ")[1] for row in rows] == ["in memory", "from Parquet"]
    assert all(row.median_ms > 0 and row.reference_ms > 0 for row in rows)


def test_images_that_count_differently_among_others_are_not_timed():
    with pytest.raises(TallyboxError, match="batch"):
        bench.check_answers(small_estimator(), made_up_photos(3)[0], tolerance=0.0)
