import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tallybox.cli import COMMANDS
from tallybox.detections.readers import read_detections
from tallybox.detections.writers import write_parquet
from tallybox.photos import sample_photos
from tests.support.commands import run


def test_help_names_every_command_and_needs_no_torch():
    code = (
        "import sys; from tallybox.cli import cli\n"
        "try: cli(['--help'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in COMMANDS:
        assert f"  {name}" in done.stdout


@pytest.mark.parametrize(("words", "meant"), [(["coutn"], "count"), (["vqa", "trian"], "train")])
def test_an_unknown_command_gets_a_suggestion(words, meant):
    result = run(*words)
    assert result.exit_code == 2
    assert f"'{meant}'" in result.stderr


def test_an_output_is_never_an_input(tmp_path):
    boxes, labels = tmp_path / "boxes.json", tmp_path / "labels.csv"
    boxes.write_text('[{"image_id": 7, "category_id": 1, "bbox": [10, 10, 200, 300], "score": 0.9}]')
    labels.write_text("image_id,category,count\n7,person,1\n")
    (tmp_path / "photos").mkdir()
    photo = Path(shutil.copy(sample_photos()[1], tmp_path / "photos" / "a.jpg"))
    (tmp_path / "tables").mkdir()
    table = tmp_path / "tables" / "a.parquet"
    write_parquet(read_detections(boxes), table)
    inputs = (boxes, labels, photo, table)
    before = [path.read_bytes() for path in inputs]
    for words in (
        ["count", boxes, "--csv", boxes],
        ["explain", boxes, "--out", boxes],
        ["fit", boxes, labels, "--out", labels],
        ["detect", photo.parent, "--out", photo],
        ["fit", photo.parent, labels, "--out", photo],
        ["fit", photo.parent / "*.jpg", labels, "--out", photo],
        ["count", photo.parent, "--out", photo],
        ["count", photo.parent, "--report", photo],
        ["count", photo, "--estimator", boxes, "--out", boxes],
        ["count", table, "--out", table],
    ):
        result = run(*map(str, words))
        assert result.exit_code != 0
        assert re.search("is an input|--(out|report) takes", result.stderr), words
    assert [path.read_bytes() for path in inputs] == before


def test_the_demo_leads_with_photos_and_their_true_counts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("demo")
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["suitcases", "12", "14", "11–15", "8", "20.3"] in lines
    assert result.stdout.index("suitcases") < result.stdout.index("3.00")  # the cats come after the photos
    assert max(len(line) for line in result.stdout.splitlines() if "file://" not in line) <= 80
    for name in ("buses_in_the_rain", "riders_on_a_beach", "lobby_with_suitcases"):
        page = tmp_path / "runs" / "demo" / f"{name}.html"
        assert page.as_uri() in result.stdout
        assert f"How many in {name}.jpg?" in page.read_text()
