"""Names that hold escape characters and line ends: printed as text, kept as they are in JSON and CSV."""

import csv
import json

import numpy as np
import pytest

from tallybox import Detections
from tallybox.detections.writers import write_parquet
from tests.support.commands import run
from tests.support.detection_sets import coco_results, write_json
from tests.support.photos import encoded, gradient

EVIL = "a\x1b[2J\x1b]0;title\x07\r\nError: forged \u202egpj.b"


def no_control_characters(text: str) -> bool:
    return all(character.isprintable() or character == "\n" for character in text)


def image(image_id) -> Detections:
    return Detections(np.array([[10, 10, 200, 300]]), [0.9], [1], (640, 480), image_id)


@pytest.mark.parametrize("suffix", ["json", "parquet"])
def test_image_ids_cannot_forge_lines(tmp_path, suffix):
    path = tmp_path / f"results.{suffix}"
    write_json(path, coco_results([image(EVIL)])) if suffix == "json" else write_parquet([image(EVIL)], path)
    result = run("count", path)
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 1
    assert no_control_characters(result.output)
    assert json.loads(run("count", path, "--json").stdout)["images"][0]["image"] == EVIL
    assert run("count", path, "--csv", tmp_path / "counts.csv").exit_code == 0
    with (tmp_path / "counts.csv").open(newline="") as file:
        assert next(csv.DictReader(file))["image"] == EVIL


def test_names_of_photos_and_errors_about_them_are_single_lines(tmp_path):
    (tmp_path / f"{EVIL}.jpg").write_bytes(encoded(gradient(90, 60), "JPEG"))
    (tmp_path / f"{EVIL}.png").write_bytes(b"no photo")
    result = run("count", tmp_path, "--save", tmp_path / f"out{EVIL}")
    assert result.exit_code == 1
    assert no_control_characters(result.output)
    assert len(result.stderr.splitlines()) == 2  # an error, and where the picture was written
    assert json.loads(run("count", tmp_path, "--json").stdout)["images"][0]["image"].endswith(f"{EVIL}.jpg")


def test_wrong_usage_does_not_repeat_control_characters(tmp_path):
    path = tmp_path / EVIL
    for arguments in (["count", path], ["fit", path, "x", "--out", "y"], [EVIL], ["count", f"--{EVIL}"]):
        result = run(*arguments)
        assert result.exit_code == 2
        assert no_control_characters(result.output)
        assert "\nError: forged" not in result.output
