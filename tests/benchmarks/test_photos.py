import pytest
import torch

from benchmarks import photos as bench
from tallybox import PhotoCounter
from tallybox.errors import TallyboxError
from tests.support.photos import embedded_detector


@pytest.mark.slow
def test_every_stage_is_measured():
    rows = {row.case: row for row in bench.bench_photos(torch.device("cpu"), seconds=0.01, number=1)}
    assert {"network", "candidates and NMS", "count", "end to end"} <= rows.keys()
    assert all(row.median_ms > 0 for row in rows.values())


def test_other_counts_than_on_a_cpu_are_an_error(tmp_path):
    class MixedUp:
        def detect(self, photos):
            return embedded_detector().detect(photos[::-1])

    paths = bench.made_from_samples(tmp_path, 2)
    for check in (bench.check_detections, bench.check_counts):
        with pytest.raises(TallyboxError, match="CPU"):
            check(PhotoCounter(MixedUp()), paths)
