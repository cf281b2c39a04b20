import json

import pytest
from benchmarks.synthetic_photos import made_up_photos
from click.testing import CliRunner

from benchmarks import detections as bench
from tallybox.cli import cli
from tallybox.errors import TallyboxError
from tests.support.estimators import small_estimator


def test_counting_is_timed_beside_supervision(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "IMAGES", 20)
    file = tmp_path / "small.estimator"
    small_estimator().save(file)
    arguments = ["bench", "detections", "--estimator", str(file), "--seconds", "0.01", "--json"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["rows"]
    assert [row["case"].split(", ")[1] for row in rows] == ["in memory", "from Parquet"]
    assert all(row["median_ms"] > 0 and row["reference_ms"] > 0 for row in rows)


def test_suppression_that_differs_is_not_timed(monkeypatch):
    honest = bench.nms
    monkeypatch.setattr(bench, "nms", lambda *arguments: ~honest(*arguments))
    with pytest.raises(TallyboxError, match="both must keep the same boxes"):
        bench.check_nms(bench._supervision(), made_up_photos(3)[0])


def test_images_that_count_differently_among_others_are_not_timed(monkeypatch):
    monkeypatch.setattr(bench, "AGREEMENT", 0.0)
    with pytest.raises(TallyboxError, match="an image must get the same prediction alone and in a batch"):
        bench.check_answers(small_estimator(), made_up_photos(3)[0])
