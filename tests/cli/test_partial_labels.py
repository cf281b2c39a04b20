"""Labels of some categories, and of some photos, are not zeros for the others."""

import json

import pytest
from benchmarks.synthetic_photos import made_up_photos

from tallybox import CountEstimator
from tallybox.estimator import training
from tests.support.commands import run
from tests.support.detection_sets import coco_results, write_counts, write_json
from tests.support.predictions import total_of

PHOTOS, LABELS = made_up_photos(24, seed=11)
SHOWN = [i for i, counts in LABELS.counts.items() if counts.get(1)]


@pytest.fixture
def people(tmp_path):
    """Counts of people in every photo, and nothing else."""
    return write_counts(tmp_path / "people.csv", [(i, "person", c.get(1, 0)) for i, c in LABELS.counts.items()])


@pytest.fixture
def detections(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "MIN_STEPS", 20)
    return write_json(tmp_path / "detections.json", coco_results(PHOTOS))


def test_only_the_category_that_labels_name_is_learned_and_scored(tmp_path, detections, people):
    out = tmp_path / "own.estimator"
    fitted = run("fit", detections, people, "--out", out, "--json")
    assert fitted.exit_code == 0, fitted.output
    found = json.loads(fitted.stdout)
    zeros = sum(1 for image in PHOTOS if image.image_id not in SHOWN and image.best_scores().get(1, 0) > 0.05)
    assert found["pairs"] == len(SHOWN) + zeros
    assert "24 labelled images; categories: person" in fitted.stderr
    assert json.loads(run("evaluate", out, detections, people, "--json").stdout)["pairs"] == found["pairs"]
    estimator = CountEstimator.load(out)
    assert estimator.fitted.category_ids == (1,)
    predicted = estimator.predict(PHOTOS[0], ["person", "dog"])
    assert (predicted["person"].calibrated, predicted["dog"].calibrated) == (True, False)
    assert not total_of(estimator, PHOTOS, ["dog"])["dog"].calibrated


def test_a_photo_without_a_row_is_unlabelled(tmp_path, detections):
    rows = [(i, "person", LABELS.count(i, 1)) for i in SHOWN]
    labels, out = write_counts(tmp_path / "shown.csv", rows), tmp_path / "own.estimator"
    fitted = run("fit", detections, labels, "--out", out, "--json")
    assert json.loads(fitted.stdout)["pairs"] == len(SHOWN)


def test_figures_that_do_not_exist_are_null(tmp_path, detections, people):
    """0.2 printed NaN, which is not JSON, for labels without a positive count."""
    out = tmp_path / "own.estimator"
    assert run("fit", detections, people, "--out", out).exit_code == 0
    zeros = write_counts(tmp_path / "zeros.csv", [(i, "person", 0) for i in LABELS.counts])

    def refuse(text: str) -> None:
        raise AssertionError(text)

    scored = json.loads(run("evaluate", out, detections, zeros, "--json").stdout, parse_constant=refuse)
    assert scored["mrmse_nz"] is None
    assert scored["mrmse"] >= 0
