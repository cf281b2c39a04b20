import json

import pytest
from click.testing import CliRunner

from benchmarks import photo_counting
from tallybox.cli import cli
from tallybox.errors import TallyboxError
from tallybox.photos import read_photo
from tests.support.photos import embedded_detector


def test_every_stage_is_measured(monkeypatch):
    monkeypatch.setattr(photo_counting, "PHOTOS", 1)
    result = CliRunner().invoke(cli, ["bench", "photos", "--seconds", "0.01", "--device", "cpu", "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["rows"]
    assert [row["case"].split(",")[0] for row in rows] == ["read", "read and detect", "count", "end to end"]
    assert all(row["median_ms"] > 0 for row in rows)


def test_a_detector_that_mixes_up_a_batch_is_not_timed(tmp_path):
    class MixedUp:
        def detect(self, photos):
            detected = embedded_detector().detect(photos)
            return detected[1:] + detected[:1]

    photos = [read_photo(path) for path in photo_counting.made_from_samples(tmp_path, 2)]
    with pytest.raises(TallyboxError, match="must get the same scores alone and in a batch"):
        photo_counting.check_batch(MixedUp(), photos)
