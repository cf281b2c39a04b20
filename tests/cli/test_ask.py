import json
import subprocess
import sys

import pytest
from click.testing import CliRunner
from PIL import Image

from tallybox.cli import cli
from tallybox.photos import sample_photos
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


def test_a_photo_without_regions_and_bytes_that_are_no_text_have_an_answer(tmp_path):
    Image.new("RGB", (9000, 2)).save(tmp_path / "line.png")
    command = [sys.executable, "-m", "tallybox", "ask", str(tmp_path / "line.png"), b"What \xff\x1bcolor?", "--json"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert json.loads(done.stdout)["unknown_words"] == []
