import json
import subprocess
import sys
from functools import partial

import pytest

from tallybox.photos import sample_photos
from tests.support import commands

run = partial(commands.run, "ask")
BUSES, RIDERS, _ = sample_photos()
PEOPLE = "How many people are there?"


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
