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


def test_the_demo_shows_computed_numbers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("demo")
    assert result.exit_code == 0, result.output
    assert "activate" not in result.stdout  # there is no environment here to activate
    assert "count = √(sum of C) = √9.00 = 3.00" in result.stdout
    assert "summing the weights would say 4.00" in result.stdout
    assert "(0, 0, 0, 1, 0)" in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    assert "riders_on_a_beach.jpg  640 x 424" in result.stdout
    for name in ("buses_in_the_rain", "riders_on_a_beach", "lobby_with_suitcases"):
        assert f"runs/demo/{name}_counted.jpg" in result.stdout
        assert (tmp_path / "runs" / "demo" / f"{name}_counted.jpg").read_bytes().startswith(b"\xff\xd8")
    page = (tmp_path / "runs" / "demo" / "buses_in_the_rain.html").read_text()
    assert "How many in buses_in_the_rain.jpg?" in page


def test_the_demo_keeps_pictures_that_were_there_before_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    earlier = tmp_path / "runs" / "demo" / "buses_in_the_rain_counted.jpg"
    earlier.parent.mkdir(parents=True)
    earlier.write_bytes(b"\xff\xd8 drawn by version 0.1")
    result = run("demo")
    assert result.exit_code == 0, result.output
    assert "buses_in_the_rain_counted.jpg  another picture, which was there before and is kept" in result.stdout
    assert earlier.read_bytes() == b"\xff\xd8 drawn by version 0.1"
    assert (earlier.parent / "riders_on_a_beach_counted.jpg").exists()


def test_the_demo_of_make_names_the_environment_to_activate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")  # as before activating
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "activate").touch()
    assert "source .venv/bin/activate" in run("demo").stdout


@pytest.mark.parametrize("name", ["cats.svg", "cats.png"])
def test_the_demo_draws_its_picture(tmp_path, name):
    result = run("demo", "--figure", str(tmp_path / name), "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    content = (tmp_path / name).read_bytes()
    assert content.startswith(b"\x89PNG") if name.endswith("png") else b"<svg" in content


def test_a_mistake_ends_in_one_line_and_status_1(tmp_path):
    result = run("demo", "--figure", str(tmp_path / "cats.bmp"), "--out", str(tmp_path))
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert "cats.bmp" in result.stderr
    assert len(result.stderr.splitlines()) == 1
