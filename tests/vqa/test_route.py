"""The whole way at the paper's sizes of a photo, as a user types it, killed once in each of its long steps.

TALLYBOX_ROUTE_PHOTOS=6000 is a twentieth of VQA v2; the default is small enough for every slow run.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from research.vqa_padding import with_clutter

from tallybox.runs import read_results
from tallybox.vqa.data.features import write_tsv
from tallybox.vqa.simulation.files import FEATURES
from tallybox.vqa.simulation.simulate import simulate
from tallybox.vqa.simulation.world import World

PHOTOS = int(os.environ.get("TALLYBOX_ROUTE_PHOTOS", "300"))
PROPOSALS, FEATURES_OF_A_PROPOSAL = 100, 2048
EPOCHS = 3


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tallybox", "vqa", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(*arguments: object) -> str:
    with start(*arguments) as process:
        written, said = process.communicate()
    assert process.returncode == 0, said
    return written


def kill(reached: Callable[[], bool], *arguments: object) -> None:
    """Start a command and kill it when something is reached."""
    with start(*arguments) as process:
        while process.poll() is None and not reached():
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL, "the command ended before it was killed"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_from_official_files_to_results_killed_once_in_each_step(tmp_path):
    files = tmp_path / "files"
    shares = {"train_photos": PHOTOS * 6 // 10, "val_photos": PHOTOS * 3 // 10, "test_photos": PHOTOS // 10}
    world = World(**shares, features=FEATURES_OF_A_PROPOSAL)
    simulate(files, world)
    write_tsv(files / "photos.tsv", with_clutter(files / FEATURES, world, PROPOSALS))
    (files / FEATURES).unlink()
    asked = next(files.glob("*test2015_questions.json*"))
    shutil.copy(asked, asked.with_name(asked.name.replace("test2015", "test-dev2015")))
    given = (files, "--features", files / "photos.tsv", "--vocabulary-from", "trainval", "--verify", "--json")

    journal = tmp_path / "prepared" / "photos.unfinished" / "journal.jsonl"
    kill(lambda: journal.exists() and journal.stat().st_size > 0, "prepare", *given, "--out", tmp_path / "prepared")
    done = json.loads(run("prepare", *given, "--out", tmp_path / "prepared"))
    assert done["photos"] == sum(shares.values())
    assert set(done["questions"]) == {"train", "val", "test", "test-dev"}
    run("prepare", *given, "--out", tmp_path / "whole")
    assert contents(tmp_path / "prepared") == contents(tmp_path / "whole")

    training = ("train", tmp_path / "prepared", "--device", "cpu", "--epochs", EPOCHS, "--json", "--out")
    killed, whole = tmp_path / "killed", tmp_path / "run"
    kill((killed / "checkpoint.safetensors").exists, *training, killed)
    for folder in (killed, whole):
        assert json.loads(run(*training, folder))["epochs"] == EPOCHS
    for name in ("checkpoint.safetensors", "best.safetensors", "validation.jsonl"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes(), name

    scores = json.loads(run("evaluate", whole, "--device", "cpu", "--json"))["model"]
    assert scores["all"] == read_results(whole / "validation.jsonl")[-1]["all"]
    run("predict", whole, "--split", "test-dev", "--device", "cpu", "--out", tmp_path / "results.json")
    answered = json.loads((tmp_path / "results.json").read_text())
    assert len(answered) == done["questions"]["test-dev"]
    assert all(set(one) == {"question_id", "answer"} for one in answered)
