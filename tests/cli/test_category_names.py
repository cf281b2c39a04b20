"""Categories of one's own, from detections and labels to counts, in the commands and in Python."""

import json
from pathlib import Path

import pytest
from benchmarks.synthetic_photos import made_up_photos

from tallybox import CountEstimator, Detections
from tallybox.detections.writers import write_parquet
from tallybox.errors import InputError
from tests.support.commands import run
from tests.support.detection_sets import coco_results, write_counts, write_json

PHOTOS, LABELS = made_up_photos(16, seed=11)
OWN = {1: "bolt", 2: "nut", 3: "gear", 17: "washer", 18: "spring", 44: "pin"}
RENUMBERED = dict(enumerate(sorted(OWN.values(), reverse=True)))  # as another detector numbers them


def write_detections(path, images, columns: str, category) -> str:
    rows = [
        f"{image.image_id},{category(key)},{','.join(map(str, box))},{score}\n"
        for image in images
        for key, box, score in zip(
            image.category_ids.tolist(), image.boxes.tolist(), image.scores.tolist(), strict=True
        )
    ]
    path.write_text(f"image_id,{columns},x1,y1,x2,y2,score\n" + "".join(rows))
    return path


def counts_of_labels(path, columns: str, category) -> Path:
    rows = [(i, category(c), n) for i, counts in LABELS.counts.items() for c, n in counts.items()]
    return write_counts(path, rows, columns)


def other_number(key: int) -> int:
    return next(number for number, name in RENUMBERED.items() if name == OWN[key])


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """An estimator, and the scores of what it was fitted to, by number of the first detector."""
    folder = tmp_path_factory.mktemp("own")
    found = write_detections(folder / "found.csv", PHOTOS, "category_id,category", lambda key: f"{key},{OWN[key]}")
    labels, out = counts_of_labels(folder / "counts.csv", "category", OWN.__getitem__), folder / "own.safetensors"
    made = run("fit", found, labels, "--out", out, "--json")
    assert made.exit_code == 0, made.output
    return out, labels, run("count", found, "--estimator", out, "--json").stdout


@pytest.mark.parametrize("kind", ["names", "yaml", "results", "parquet"])
def test_a_detector_with_other_numbers_is_matched_by_name(tmp_path, fitted, kind):
    out, labels, expected = fitted
    options = []
    (tmp_path / "data.yaml").write_text(f"names: {json.dumps(list(RENUMBERED.values()))}")
    numbered = [image.renumbered({key: other_number(key) for key in OWN}, RENUMBERED) for image in PHOTOS]
    if kind == "names":
        found = write_detections(tmp_path / "found.csv", PHOTOS, "category", OWN.__getitem__)
    elif kind == "yaml":
        found = write_detections(tmp_path / "found.csv", PHOTOS, "class", other_number)
        options = ["--names", tmp_path / "data.yaml"]
    elif kind == "results":
        found = write_json(tmp_path / "found.json", coco_results(numbered))
        options = ["--names", tmp_path / "data.yaml"]
    else:
        found = tmp_path / "found.parquet"
        write_parquet(numbered, found, categories=RENUMBERED)
    counted = run("count", found, "--estimator", out, "--json", *options)
    assert counted.exit_code == 0, counted.output
    by_image = {image["image"]: image["counts"] for image in json.loads(counted.stdout)["images"]}
    assert by_image == {image["image"]: image["counts"] for image in json.loads(expected)["images"]}
    scored = run("evaluate", out, found, labels, "--json", *options)
    assert scored.exit_code == 0, scored.output
    assert json.loads(scored.stdout)["estimator"]["mae"] < 1
    again = run("fit", found, labels, "--out", tmp_path / "again.safetensors", *options)
    assert again.exit_code == 0, again.output
    estimator = CountEstimator.load(tmp_path / "again.safetensors").fitted
    assert {estimator.categories[key] for key in estimator.category_ids} == set(OWN.values())


def test_own_ids_are_named_in_python():
    counts = {(i, c): n for i, named in LABELS.counts.items() for c, n in named.items()}
    estimator = CountEstimator(members=2).fit(PHOTOS, counts, category_names=OWN)
    assert estimator.predict(PHOTOS[0], ["bolt"]).by_name().keys() == {"bolt"}
    with pytest.raises(InputError, match="'person'"):
        estimator.predict(PHOTOS[0], ["person"])


def test_own_names_of_labels_need_names_of_the_detections(tmp_path):
    found = write_json(tmp_path / "found.json", coco_results(PHOTOS))
    labels, out = counts_of_labels(tmp_path / "counts.csv", "category", OWN.__getitem__), tmp_path / "own.safetensors"
    refused = run("fit", found, labels, "--out", out)
    assert refused.exit_code == 1
    assert "--names" in refused.stderr
    both = counts_of_labels(tmp_path / "both.csv", "category_id,category", lambda key: f"{key},{OWN[key]}")
    assert run("fit", found, both, "--out", out).exit_code == 0
    assert sorted(CountEstimator.load(out).fitted.categories.values()) == sorted(OWN.values())


def test_class_numbers_are_not_counted_as_ids_of_coco(tmp_path):
    image = Detections([[0, 0, 9, 9]] * 3, [0.9] * 3, [0, 2, 12], image_id=7)
    found = write_json(tmp_path / "found.json", coco_results([image]))
    for command in (("count", found), ("explain", found, "--out", tmp_path / "page.html")):
        ran = run(*command)
        assert ran.exit_code == 1
        assert "[0, 12]" in ran.stderr
