import json
import subprocess
import sys

import pytest
from click.testing import CliRunner
from PIL import Image

from tallybox.cli import cli
from tallybox.photos import sample_photos
from tallybox.photos.shipped import SHIPPED_ESTIMATOR
from tallybox.vqa.answer import SHIPPED_MODEL

BUSES, RIDERS, _ = sample_photos()
PEOPLE = "How many people are there?"


def run(*arguments: object):
    return CliRunner().invoke(cli, ["ask", *(str(argument) for argument in arguments)])


def test_json_is_one_object_and_nothing_else():
    command = [sys.executable, "-m", "tallybox", "ask", str(BUSES), "How many buses and zebus are there?", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    assert list(said) == ["answer", "probability", "others", "unknown_words", "counts"]
    assert said["counts"]["bus"]["count"] in (2, 3)
    assert isinstance(said["answer"], str)
    assert 0 < said["probability"] <= 1
    assert all(isinstance(answer, str) and 0 <= share <= said["probability"] for answer, share in said["others"])
    assert said["unknown_words"] == ["zebus"]
    assert "'zebus'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_people_read_the_answer_first():
    ran = run(RIDERS, "How many horses are there?", "--model", SHIPPED_MODEL)
    assert ran.exit_code == 0, ran.output
    assert ran.stderr == ""
    first, *others, counted = ran.stdout.splitlines()
    assert counted == "tallybox count: 2 horses (90 %: 1–3)"
    assert first.split()[0] == "2"
    assert first.split()[2] == "%"
    assert len(others) <= 4
    assert max(map(len, ran.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("photo", "question", "said"),
    [
        (RIDERS, "", "QUESTION"),
        (RIDERS, "zebu?", "zebu"),
        (RIDERS, "\x1b[31mzebu\x07", "zebu"),
        ("missing.jpg", PEOPLE, "missing.jpg"),
        (RIDERS.parent, PEOPLE, "folder"),
        (__file__, PEOPLE, "test_ask.py"),
    ],
)
def test_mistakes_are_one_line(photo, question, said):
    ran = run(photo, question, "--json")
    assert ran.exit_code == 1
    assert ran.stdout == ""
    assert said in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert "\x1b" not in ran.stderr


@pytest.mark.parametrize("model", [SHIPPED_ESTIMATOR, BUSES, BUSES.parent])
def test_what_is_no_model_is_refused(model):
    ran = run(BUSES, PEOPLE, "--model", model)
    assert ran.exit_code == 1
    assert "checkpoint" in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_a_page_is_written_beside_the_answer(tmp_path):
    page = tmp_path / "new" / "page.html"
    ran = run(BUSES, "How many buses are there?", "--json", "--explain", page)
    assert ran.exit_code == 0, ran.output
    json.loads(ran.stdout)
    assert page.read_text().startswith("<!doctype html>")
    assert str(BUSES.parent) not in page.read_text()
    assert str(page) in ran.stderr


def test_a_page_that_cannot_be_written_is_said_before_an_answer():
    ran = run(BUSES, PEOPLE, "--json", "--explain", BUSES / "page.html")
    assert ran.exit_code == 1
    assert ran.stdout == ""
    assert "page.html" in ran.stderr


def test_bytes_that_are_no_text_are_named(tmp_path):
    command = [sys.executable, "-m", "tallybox", "ask", str(BUSES), b"How many \xff\x1bdogs?", "--json"]
    command += ["--explain", str(tmp_path / "page.html")]
    done = subprocess.run(command, capture_output=True, check=True)
    assert json.loads(done.stdout)["unknown_words"] == []
    assert "How many ��dogs?" in (tmp_path / "page.html").read_text()


def test_it_answers_without_msgspec():
    """As after pip install 'tallybox[cli,photos]'."""
    code = "import sys; sys.modules['msgspec'] = None; from tallybox.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "ask", str(RIDERS), "How many horses are there?", "--json"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["answer"] == "2"


def test_a_photo_without_regions_has_an_answer_and_an_explanation(tmp_path):
    Image.new("RGB", (9000, 2)).save(tmp_path / "line.png")
    ran = run(tmp_path / "line.png", "What color is it?", "--explain", tmp_path / "page.html")
    assert ran.exit_code == 0, ran.output
    assert (tmp_path / "page.html").exists()
