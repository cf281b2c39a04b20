import pytest
import torch

from benchmarks import photos as bench
from tallybox.errors import TallyboxError
from tallybox.photos import read_photo
from tests.support.photos import embedded_detector


def test_every_stage_is_measured():
    rows = list(bench.bench_photos(torch.device("cpu"), seconds=0.01, number=1))
    assert [row.case.split(",")[0] for row in rows] == ["read", "read and detect", "count", "end to end"]
    assert all(row.median_ms > 0 for row in rows)


def test_a_detector_that_mixes_up_a_batch_is_not_timed(tmp_path):
    class MixedUp:
        def detect(self, photos):
            detected = embedded_detector().detect(photos)
            return detected[1:] + detected[:1]

    photos = [read_photo(path) for path in bench.made_from_samples(tmp_path, 2)]
    with pytest.raises(TallyboxError, match="batch"):
        bench.check_batch(MixedUp(), photos)
