import csv
import json

import pytest
from benchmarks.synthetic_photos import made_up_photos

from tallybox.detections.detections import Detections
from tallybox.detections.writers import write_parquet
from tallybox.estimator import training
from tests.support.commands import run
from tests.support.detection_sets import coco_results, write_counts, write_json

PHOTOS, LABELS = made_up_photos(16, seed=11)
METRICS = {"exact", "mae", "rmse"}


@pytest.fixture
def detections(tmp_path):
    return write_json(tmp_path / "detections.json.gz", coco_results(PHOTOS))


@pytest.fixture
def labels(tmp_path):
    rows = [(i, LABELS.categories[c], n) for i, named in LABELS.counts.items() for c, n in named.items()]
    return write_counts(tmp_path / "counts.csv", rows)


def test_fit_refuses_what_it_cannot_write(tmp_path, detections, labels):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    result = run("fit", detections, labels, "--out", tmp_path / "file" / "own.estimator")
    assert result.exit_code == 1
    assert str(tmp_path / "file" / "own.estimator") in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert run("fit", detections, labels, "--out", tmp_path / "folder").exit_code == 2


def test_fit_then_evaluate_then_count(tmp_path, monkeypatch, detections, labels):
    monkeypatch.setattr(training, "MIN_STEPS", 20)
    out = tmp_path / "new" / "own.estimator"
    fitted = run("fit", detections, labels, "--out", out, "--json")
    assert fitted.exit_code == 0, fitted.output
    said = json.loads(fitted.stdout)
    assert said["pairs"] >= 16
    assert said["seconds"] > 0
    assert said["train"].keys() == METRICS

    scored = run("evaluate", out, detections, labels, "--json")
    assert scored.exit_code == 0, scored.output
    found = json.loads(scored.stdout)
    assert {"pairs", "estimator", "nms", "nms_per_category", "coverage90"} <= found.keys()
    assert all(found[name].keys() == METRICS for name in ("estimator", "nms", "nms_per_category"))
    assert found["estimator"] == pytest.approx(said["train"])
    assert 0 <= found["coverage90"] <= 1

    counted = run("count", detections, "--estimator", out, "--json")
    assert counted.exit_code == 0, counted.output
    images = json.loads(counted.stdout)["images"]
    assert [image["image"] for image in images] == [photo.image_id for photo in PHOTOS]
    for image in images:
        for number in image["counts"].values():
            assert {"count", "expected", "low", "high"} <= number.keys()
            assert number["low"] <= number["count"] <= number["high"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("count", "{detections}", "--estimator", "{labels}"), "not an estimator"),
        (("count", "{labels}", "--estimator", "{estimator}"), "counts.csv"),
        (("count", "{photo}", "--estimator", "{estimator}"), "photo.jpg"),
        (("count", "{detections}", "--estimator", "{estimator}", "--category", "dogg"), "'dog'"),
        (("fit", "{labels}", "{labels}", "--out", "{out}"), "counts.csv"),
        (("evaluate", "{labels}", "{detections}", "{labels}"), "not an estimator"),
    ],
)
def test_a_mistake_is_one_line_and_status_1(tmp_path, detections, labels, estimator, arguments, said):
    photo = tmp_path / "photo.jpg"
    photo.write_bytes(b"\xff\xd8")
    places = {"detections": detections, "labels": labels, "estimator": estimator, "photo": photo, "out": tmp_path / "x"}
    result = run(*(argument.format(**places) for argument in arguments))
    assert result.exit_code == 1, result.output
    assert said in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_every_image_has_its_row_in_the_csv(tmp_path, estimator):
    found, table = tmp_path / "found.parquet", tmp_path / "counts.csv"
    write_parquet([*PHOTOS[:3], Detections.empty(99)], found)
    assert run("count", found, "--estimator", estimator, "--csv", table).exit_code == 0
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["image"] for row in rows][-1] == "99"
    assert (rows[-1]["category"], rows[-1]["count"]) == ("", "0")
