"""Names of one's own, other words for COCO's names, and the list of both."""

import json

import pytest
from benchmarks.synthetic_photos import made_up_photos
from click.testing import CliRunner

from tallybox import CountEstimator, Detections
from tallybox.cli import cli
from tallybox.detections.parquet import write_parquet
from tallybox.errors import InputError
from tallybox.estimator import training
from tests.support.detection_sets import coco_results, write_json
from tests.support.estimators import small_estimator

PHOTOS, LABELS = made_up_photos(16, seed=11)
OWN = {1: "bolt", 2: "nut", 3: "gear", 17: "washer", 18: "spring", 44: "pin"}


def run(*arguments: object):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


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


def write_counts(path, columns: str, category) -> str:
    rows = [f"{i},{category(c)},{n}\n" for i, counts in LABELS.counts.items() for c, n in counts.items()]
    path.write_text(f"image_id,{columns},count\n" + "".join(rows))
    return path


@pytest.mark.parametrize("kind", ["names", "ids and names", "json"])
def test_own_names_from_detections_and_labels_to_counts(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(training, "MIN_STEPS", 20)
    columns, category = {
        "names": ("category", OWN.__getitem__),
        "ids and names": ("category_id,category", lambda key: f"{key},{OWN[key]}"),
        "json": ("category_id,category", lambda key: f"{key},{OWN[key]}"),
    }[kind]
    labels, out = write_counts(tmp_path / "counts.csv", columns, category), tmp_path / "own.estimator"
    if kind == "json":
        found = some = write_json(tmp_path / "found.json", coco_results(PHOTOS))
    else:
        found = write_detections(tmp_path / "found.csv", PHOTOS, columns, category)
        some = write_detections(tmp_path / "some.csv", PHOTOS[:3], columns, category)  # fewer categories, same ids
    fitted = run("fit", found, labels, "--out", out, "--json")
    assert fitted.exit_code == 0, fitted.output
    assert sorted(CountEstimator.load(out).fitted.categories.values()) == sorted(OWN.values())
    scored = run("evaluate", out, found, labels, "--category", "Bolts", "--json")
    assert scored.exit_code == 0, scored.output
    every, few = (
        json.loads(run("count", file, "--estimator", out, "--category", "bolt", "--json").stdout)["images"]
        for file in (found, some)
    )
    assert few[:3] == every[:3]
    assert list(few[0]["counts"]) == ["bolt"]
    listed = run("categories", out)
    assert [line.split()[1] for line in listed.stdout.splitlines()] == [
        name for _, name in sorted(CountEstimator.load(out).fitted.categories.items())
    ]


def test_own_names_that_the_estimator_does_not_know_are_an_error(tmp_path):
    found = write_detections(tmp_path / "found.csv", PHOTOS, "category", OWN.__getitem__)
    small_estimator().save(tmp_path / "coco.estimator")
    counted = run("count", found, "--estimator", tmp_path / "coco.estimator")
    assert counted.exit_code == 1
    assert "category must be one of the 6 known names" in counted.stderr


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_class_numbers_are_not_counted_as_ids_of_coco(tmp_path, kind):
    image = Detections([[0, 0, 9, 9]] * 3, [0.9] * 3, [0, 2, 12], image_id=7)
    found = tmp_path / f"found.{kind}"
    if kind == "json":
        write_json(found, coco_results([image]))
    elif kind == "csv":
        write_detections(found, [image], "category_id", str)
    else:
        write_parquet([image], found)
    for command in (("count", found), ("explain", found, "--out", tmp_path / "page.html")):
        ran = run(*command)
        assert ran.exit_code == 1
        assert (
            f"{found}, image 7: category ids must be COCO's, like those of the estimator, but got 0, 12;" in ran.stderr
        )
        assert "class numbers of a YOLO model?" in ran.stderr


def test_ids_that_a_file_names_itself_are_counted(tmp_path):
    image = Detections([[0, 0, 9, 9]] * 2, [0.9] * 2, [1, 100], image_id=7)
    write_parquet([image], tmp_path / "found.parquet", categories={1: "person", 100: "bolt"})
    counted = run("count", tmp_path / "found.parquet", "--json")
    assert counted.exit_code == 0, counted.output
    assert "person" in json.loads(counted.stdout)["images"][0]["counts"]


def test_own_ids_are_named_in_python():
    counts = {(i, c): n for i, named in LABELS.counts.items() for c, n in named.items()}
    estimator = CountEstimator(members=2).fit(PHOTOS, counts, category_names=OWN)
    assert estimator.predict(PHOTOS[0], ["bolt"]).by_name().keys() == {"bolt"}
    with pytest.raises(InputError, match="one of the 6 known names, but got 'person'"):
        estimator.predict(PHOTOS[0], ["person"])


def test_a_category_that_is_asked_for_twice_is_counted_once():
    image = Detections([[0, 0, 9, 9]], [0.9], [1], image_id=7)
    assert list(small_estimator().predict(image, [1, "person", 18]).by_name()) == ["person", "dog"]


def test_categories_are_listed():
    listed = run("categories")
    assert listed.exit_code == 0, listed.output
    assert listed.stdout.splitlines()[0] == "    1  person"
    assert len(listed.stdout.splitlines()) == 80
    assert json.loads(run("categories", "--json").stdout)["categories"][16] == {
        "id": 18,
        "name": "dog",
        "learned": True,
    }
