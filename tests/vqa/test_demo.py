from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from click.testing import CliRunner

from tallybox.cli import cli
from tallybox.vqa import demo
from tallybox.vqa.simulation.world import World

SMALL_WORLD = World(train_photos=40, val_photos=20, test_photos=4)


def test_all_of_it_on_a_tiny_world(tmp_path, monkeypatch):
    config = replace(demo.CONFIG, training=replace(demo.CONFIG.training, batch=32, epochs=1))
    monkeypatch.setattr(
        demo.run_demo,
        "__kwdefaults__",
        {
            **demo.run_demo.__kwdefaults__,
            "world": SMALL_WORLD,
            "config": config,
        },
    )
    done = CliRunner().invoke(cli, ["vqa", "demo", "--out", str(tmp_path / "demo"), "--device", "cpu", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert list(found) == ["baseline", "nms", "counter", "presence", "seconds"]
    assert found["counter"]["runs"] == 1
    before = (tmp_path / "demo" / "counter" / "checkpoint.safetensors").stat().st_mtime_ns
    again = CliRunner().invoke(cli, ["vqa", "demo", "--out", str(tmp_path / "demo"), "--device", "cpu"])
    assert "+ counting module" in again.stdout
    assert "presence" in again.stdout
    assert (tmp_path / "demo" / "counter" / "checkpoint.safetensors").stat().st_mtime_ns == before


@pytest.mark.slow
def test_counting_beats_the_baseline_by_the_paper_s_margins_and_leaves_other_answers_alone(tmp_path):
    scores = demo.run_demo(tmp_path / "demo", device=torch.device("cpu"))
    baseline, nms, counting, presence = (scores[name][0] for name in demo.MODELS)
    assert presence["count"] >= baseline["count"] + 5.3
    assert counting["count"] >= baseline["count"] + 5.3
    assert counting["pair_count"] >= baseline["pair_count"] + 6.6
    assert nms["count"] < baseline["count"] + 1
    for kind in ("yes/no", "other"):
        assert abs(counting[kind] - baseline[kind]) < 1
