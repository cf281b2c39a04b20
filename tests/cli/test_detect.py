import json

import pytest

from tallybox.concurrency import single_threaded_torch
from tallybox.detections.readers import read_detections
from tallybox.estimator import training
from tests.support.commands import run
from tests.support.detection_sets import write_counts
from tests.support.onnx_models import write_onnx
from tests.support.small_photos import save_photos

FRUIT = {0: "pear", 1: "mug", 2: "fig"}
PHRASES = ("a red apple", "a cup")


@pytest.fixture
def spec(tmp_path):
    return f"onnx:{write_onnx(tmp_path / 'fruit.onnx', input_shape=('B', 3, 64, 64))}"


@pytest.fixture(autouse=True)
def few_steps_on_one_thread(monkeypatch):
    monkeypatch.setattr(training, "MIN_STEPS", 20)
    with single_threaded_torch():
        yield


def made_up_counts(path, photos, names):
    return write_counts(
        path, [(p.name, name, (i + k) % 3) for i, p in enumerate(photos) for k, name in enumerate(names)]
    )


def test_labels_are_checked_before_photos_are_detected(tmp_path, spec):
    photos = save_photos(tmp_path / "photos", 2)
    labels = made_up_counts(tmp_path / "counts.csv", photos, FRUIT.values())
    labels.write_text(labels.read_text().replace("image_id,category,count", "image_id,category,cuont"))
    fitted = run("fit", tmp_path / "photos", labels, "--detector", spec, "--out", tmp_path / "mine")
    assert fitted.exit_code == 1
    assert "count" in fitted.stderr
    assert not (tmp_path / "mine.detections").exists()


def test_detect_fit_count_with_a_detector_of_ones_own(tmp_path, spec):
    photos = save_photos(tmp_path / "photos", 12)
    found, mine = tmp_path / "found.parquet", tmp_path / "mine.safetensors"
    detected = run("detect", tmp_path / "photos", "--detector", spec, "--out", found)
    assert detected.exit_code == 0, detected.output
    assert detected.stdout.startswith(f"Wrote {found}: ")
    assert detected.stdout.endswith(" boxes in 12 photos\n")
    assert detected.stderr == ""

    labels = made_up_counts(tmp_path / "counts.csv", photos, FRUIT.values())
    fitted = run("fit", found, labels, "--out", mine)
    assert fitted.exit_code == 0, fitted.output

    counted = run("count", tmp_path / "photos", "--detector", spec, "--estimator", mine, "--category", "fig", "--json")
    assert counted.exit_code == 0, counted.output
    assert "Uncalibrated" not in counted.stderr
    images = json.loads(counted.stdout)["images"]
    assert [image["image"] for image in images] == [str(photo) for photo in photos]
    assert all(list(image["counts"]) == ["fig"] for image in images)

    from_file = run("count", found, "--estimator", mine, "--category", "fig", "--json")
    assert [image["counts"] for image in json.loads(from_file.stdout)["images"]] == [
        image["counts"] for image in images
    ]
    scored = run("evaluate", mine, found, labels, "--json")
    assert scored.exit_code == 0, scored.output


def test_the_whole_way_with_phrases(tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed")
    from tests.support.transformers_models import save_grounding_dino

    detector = ["--detector", f"transformers:{save_grounding_dino(tmp_path / 'dino')}"]
    for phrase in PHRASES:
        detector += ["--text", phrase]
    photos = save_photos(tmp_path / "photos", 6)
    found, mine = tmp_path / "found.parquet", tmp_path / "mine.safetensors"
    detected = run("detect", tmp_path / "photos", *detector, "--out", found)
    assert detected.exit_code == 0, detected.output
    assert next(read_detections(found)).category_names == dict(enumerate(PHRASES))
    fitted = run("fit", found, made_up_counts(tmp_path / "counts.csv", photos, PHRASES), "--out", mine)
    assert fitted.exit_code == 0, fitted.output
    counted = run("count", photos[0], *detector, "--estimator", mine, "--category", "a cup", "--json")
    assert counted.exit_code == 0, counted.output
    assert list(json.loads(counted.stdout)["images"][0]["counts"]) == ["a cup"]
    swapped = [detector[0], detector[1], "--text", PHRASES[1], "--text", PHRASES[0]]
    again = run("count", photos[0], *swapped, "--estimator", mine, "--category", "a cup", "--json")
    assert again.exit_code == 0, again.output
    assert list(json.loads(again.stdout)["images"][0]["counts"]) == ["a cup"]
