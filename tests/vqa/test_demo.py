import json
from dataclasses import replace

import pytest
import torch

from tallybox.vqa.config import MODELS
from tallybox.vqa.demo import CONFIG, run_demo
from tallybox.vqa.simulation import World

CPU = torch.device("cpu")
SMALL_WORLD = World(train_photos=40, val_photos=20, test_photos=4)
SMALL_CONFIG = replace(CONFIG, training=replace(CONFIG.training, batch=32, epochs=1))


def test_all_of_it_on_a_tiny_world(tmp_path):
    shown: list[str] = []
    options = {"device": CPU, "world": SMALL_WORLD, "config": SMALL_CONFIG}
    scores = run_demo(tmp_path, on_progress=lambda step, done, total: shown.append(step), **options)
    assert tuple(scores) == MODELS
    assert list(dict.fromkeys(step for step in shown if step.startswith("training"))) == [
        f"training {name}" for name in MODELS
    ]
    before = (tmp_path / "counter" / "checkpoint.safetensors").stat().st_mtime_ns
    assert run_demo(tmp_path, **options) == json.loads(json.dumps(scores))
    assert (tmp_path / "counter" / "checkpoint.safetensors").stat().st_mtime_ns == before


@pytest.mark.slow(minutes=2)
def test_counting_beats_the_baseline_by_the_paper_s_margins_and_leaves_other_answers_alone(tmp_path):
    scores = run_demo(tmp_path / "demo", device=CPU)
    baseline, nms, counter, presence = (scores[name][0] for name in MODELS)
    assert presence["count"] >= baseline["count"] + 5.3
    assert counter["count"] >= baseline["count"] + 5.3
    assert counter["pair_count"] >= baseline["pair_count"] + 6.6
    assert nms["count"] < baseline["count"] + 3
    for kind in ("yes/no", "other"):
        assert abs(counter[kind] - baseline[kind]) < 2
