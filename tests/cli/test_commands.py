import subprocess
import sys

import pytest
from click.testing import CliRunner

from tallybox.cli import COMMANDS, cli


def run(*arguments: str):
    return CliRunner().invoke(cli, arguments)


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
    before = boxes.read_bytes(), labels.read_bytes()
    for words in (
        ["count", boxes, "--csv", boxes],
        ["explain", boxes, "--out", boxes],
        ["fit", boxes, labels, "--out", labels],
        ["detect", boxes, "--out", boxes],
    ):
        assert run(*map(str, words)).exit_code != 0
    assert (boxes.read_bytes(), labels.read_bytes()) == before


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


def test_a_mistake_ends_in_one_line_and_status_1(tmp_path):
    result = run("explain", str(tmp_path), "--out", str(tmp_path / "page.html"))
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert len(result.stderr.splitlines()) == 1
