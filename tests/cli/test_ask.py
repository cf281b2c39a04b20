import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

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
    assert list(said) == ["answer", "probability", "others", "unknown_words"]
    assert isinstance(said["answer"], str)
    assert 0 < said["probability"] <= 1
    assert all(isinstance(answer, str) and 0 <= share <= said["probability"] for answer, share in said["others"])
    assert said["unknown_words"] == ["zebus"]
    assert done.stderr == "It does not know: 'zebus'. It answers from the others: take that as a guess.\n"


def test_people_read_the_answer_first():
    ran = run(RIDERS, "How many horses are there?", "--model", SHIPPED_MODEL)
    assert ran.exit_code == 0, ran.output
    assert ran.stderr == ""
    first, *others = ran.stdout.splitlines()
    assert first.split()[0] == "2"
    assert first.split()[2] == "%"
    assert len(others) <= 4
    assert max(map(len, ran.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("photo", "question", "said"),
    [
        (RIDERS, "", "QUESTION must be in words"),
        (RIDERS, "zebu?", "it does not know 'zebu'"),
        (RIDERS, "how " * 2000, "at most 40 words, but got 2000"),
        (RIDERS, "\x1b[31mzebu\x07", "it does not know"),
        ("missing.jpg", PEOPLE, "there is no such file"),
        (RIDERS.parent, PEOPLE, "it is a folder"),
        (__file__, PEOPLE, "it is no image"),
    ],
)
def test_mistakes_are_one_line(photo, question, said):
    ran = run(photo, question, "--json")
    assert ran.exit_code == 1
    assert ran.stdout == ""
    assert said in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert "\x1b" not in ran.stderr


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (SHIPPED_ESTIMATOR, "must be a checkpoint of tallybox vqa train"),
        (BUSES, "must be a checkpoint"),
        (BUSES.parent, "has no"),
    ],
)
def test_what_is_no_model_is_refused(model, said):
    ran = run(BUSES, PEOPLE, "--model", model)
    assert ran.exit_code == 1
    assert said in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_a_page_is_written_beside_the_answer(tmp_path):
    page = tmp_path / "new" / "page.html"
    ran = run(BUSES, "How many buses are there?", "--json", "--explain", page)
    assert ran.exit_code == 0, ran.output
    json.loads(ran.stdout)
    assert page.read_text().startswith("<!doctype html>")
    assert str(BUSES.parent) not in page.read_text()
    assert "how it came to that" in ran.stderr


def test_a_page_that_cannot_be_written_is_said_before_an_answer():
    ran = run(BUSES, PEOPLE, "--json", "--explain", BUSES / "page.html")
    assert ran.exit_code == 1
    assert ran.stdout == ""
    assert "must be a file that can be written, but: File exists" in ran.stderr


def test_bytes_that_are_no_text_are_named(tmp_path):
    command = [sys.executable, "-m", "tallybox", "ask", str(BUSES), b"How many \xff\x1bdogs?", "--json"]
    command += ["--explain", str(tmp_path / "page.html")]
    done = subprocess.run(command, capture_output=True, check=True)
    assert json.loads(done.stdout)["unknown_words"] == []
    assert "How many ��dogs?" in (tmp_path / "page.html").read_text()
