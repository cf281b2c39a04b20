import json
from functools import partial

from tests.support import commands
from tests.support.vqa_files import small_set

run = partial(commands.run, "vqa")


def test_simulate_then_prepare(tmp_path):
    options = ("--train-photos", 12, "--val-photos", 8, "--test-photos", 2, "--features", 8)
    made = run("simulate", "--out", tmp_path / "made", *options, "--json")
    assert made.exit_code == 0, made.output
    said = json.loads(made.stdout)
    assert said["questions"].keys() == {"train", "val", "test"}
    prepared = run("prepare", tmp_path / "made", "--features", said["features"], "--out", tmp_path / "p", "--json")
    assert prepared.exit_code == 0, prepared.output
    found = json.loads(prepared.stdout)
    assert found["photos"] == 22
    assert found["questions"] == said["questions"]


def test_prepare_says_what_it_leaves_out(tmp_path):
    official = small_set(tmp_path / "official")
    lines = (official / "features.tsv").read_bytes().split(b"\n")
    (official / "features.tsv").write_bytes(b"\n".join(lines[:4] + lines[5:39]))  # the last is of the test split
    options = ("--features", official / "features.tsv", "--out", tmp_path / "p")
    refused = run("prepare", official, *options)
    assert refused.exit_code == 1
    assert "--skip-missing" in refused.stderr
    done = run("prepare", official, *options, "--skip-missing")
    assert done.exit_code == 0, done.output
    assert "2 more left out" in done.stdout
    assert "test: left out" in done.stdout
