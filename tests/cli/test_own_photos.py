"""The whole path of a user with photos and a spreadsheet: fit, evaluate, suggest, and count with totals."""

import csv
import json
import re

import pytest
from click.testing import CliRunner

from tallybox import read_counts
from tallybox.cli import cli
from tests.support.shared_data import data_folder

COLUMNS = {"people": 1, "car": 3, "chairs": 62, "Bottle": 44, "cup": 47}
LABELLED = 60  # photos to learn from; the other 40 are scored


def run(*arguments: object):
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result


def write_table(path, photos, truth):
    ids = {name.rpartition("/")[2]: key for key, name in truth.file_names.items()}
    rows = [["photo", *COLUMNS, "remarks"]]
    for photo in photos:
        key = ids[photo.name]
        cells = ["" if (key, c) in truth.unknown else truth.count(key, c) for c in COLUMNS.values()]
        rows.append([photo.stem, *cells, "indoors, I think" if truth.count(key, 62) else ""])
    path.write_text("\n".join(";".join(map(str, row)) for row in rows))
    return {c: sum(truth.count(ids[photo.name], c) for photo in photos) for c in COLUMNS.values()}


@pytest.mark.slow
@pytest.mark.filterwarnings("always:.*remarks")
def test_from_photos_and_a_spreadsheet_to_totals(tmp_path):
    photos = sorted(data_folder("coco-photos").glob("*.jpg"))
    truth = read_counts(data_folder("coco-count") / "instances_val.json.gz")
    for folder, some in (("labelled", photos[:LABELLED]), ("others", photos[LABELLED:])):
        (tmp_path / folder).mkdir()
        for photo in some:
            (tmp_path / folder / photo.name).symlink_to(photo)
    write_table(tmp_path / "counts.csv", photos[:LABELLED], truth)
    totals = write_table(tmp_path / "other_counts.csv", photos[LABELLED:], truth)
    estimator = tmp_path / "own.safetensors"

    fitted = run("fit", tmp_path / "labelled", tmp_path / "counts.csv", "--out", estimator)
    assert "column 'remarks' holds text and is no category; it is left out" in fitted.stderr
    assert f"detections of {LABELLED} photos are kept in {tmp_path / 'own.detections'}" in fitted.stderr
    assert f"labels: {LABELLED} photos, 5 categories (person, car, bottle, cup, chair);" in fitted.stderr
    assert "left out: 75 categories that the labels never name (bicycle, motorcycle, airplane ...)" in fitted.stderr
    assert re.search(r"how often the count is right there, by its interval:\n  one number \d+ %", fitted.stdout)

    scores = json.loads(run("evaluate", estimator, tmp_path / "others", tmp_path / "other_counts.csv", "--json").stdout)
    assert scores["estimator"]["mae"] < scores["nms"]["mae"]
    assert scores["estimator"]["exact"] > 0.6
    assert 0.8 < scores["coverage90"] <= 1

    labels = ("--labels", tmp_path / "counts.csv")
    suggested = run("suggest", estimator, data_folder("coco-photos"), *labels, "--number", 20)
    assert "the 20 of 40 images that are worth labelling next" in suggested.stdout
    assert not any(photo.name in suggested.stdout for photo in photos[:LABELLED])
    assert re.search(
        rf"Learned from {LABELLED} photos: \d+ % of the counts are right on photos left out", suggested.stdout
    )

    other = ("--estimator", estimator, "--detector", "tests.support.photos:embedded_detector")
    refused = CliRunner().invoke(cli, [str(argument) for argument in ("count", tmp_path / "others", *other)])
    assert refused.exit_code == 1
    assert "the estimator learned from what --detector picodet detects, but got --detector tests." in refused.stderr

    arguments = ("count", tmp_path / "others", "--estimator", estimator, "--category", "people", "--total")
    printed = json.loads(run(*arguments, "--csv", tmp_path / "wide.csv", "--wide", "--json").stdout)
    total = printed["totals"]["people"]
    assert total["low"] <= totals[1] <= total["high"]
    assert total["images"] == len(printed["images"]) == len(photos) - LABELLED
    with (tmp_path / "wide.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["image", "people"]
    assert rows[-1] == ["total", str(round(total["expected"]))]
    assert len(rows) == len(photos) - LABELLED + 2
