"""The whole path of a user with photos and a spreadsheet: fit, evaluate, and count with totals."""

import json

import pytest

from tallybox import read_counts
from tests.support import commands
from tests.support.shared_data import data_folder

COLUMNS = {"person": 1, "car": 3, "chair": 62, "Bottle": 44, "cup": 47}
LABELLED = 60  # photos to learn from; the other 40 are scored


def run(*arguments: object):
    result = commands.run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def write_table(path, photos, truth):
    ids = {name.rpartition("/")[2]: key for key, name in truth.file_names.items()}
    rows = [["photo", *COLUMNS]]
    for photo in photos:
        key = ids[photo.name]
        cells = ["" if (key, c) in truth.unknown else truth.count(key, c) for c in COLUMNS.values()]
        rows.append([photo.stem, *cells])
    path.write_text("\n".join(";".join(map(str, row)) for row in rows))
    return {c: sum(truth.count(ids[photo.name], c) for photo in photos) for c in COLUMNS.values()}


@pytest.mark.slow
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
    assert f"{LABELLED} labelled images" in fitted.stderr
    assert (tmp_path / "own.detections").is_dir()

    scores = json.loads(run("evaluate", estimator, tmp_path / "others", tmp_path / "other_counts.csv", "--json").stdout)
    assert scores["estimator"]["mae"] < scores["nms"]["mae"]
    assert scores["estimator"]["exact"] > 0.6
    assert 0.8 < scores["coverage90"] <= 1

    other = ("--estimator", estimator, "--detector", "tests.support.photos:embedded_detector")
    refused = commands.run("count", tmp_path / "others", *other)
    assert refused.exit_code == 1
    assert "--detector picodet" in refused.stderr

    arguments = ("count", tmp_path / "others", "--estimator", estimator, "--category", "person", "--total")
    printed = json.loads(run(*arguments, "--json").stdout)
    total = printed["totals"]["person"]
    assert total["low"] <= totals[1] <= total["high"]
    assert total["images"] == len(printed["images"]) == len(photos) - LABELLED
