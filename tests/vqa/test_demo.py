import json
import re
import signal
import time
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from tallybox.cli import cli
from tallybox.errors import InputError
from tallybox.vqa import demo
from tallybox.vqa.simulation.world import World

SMALL_WORLD = World(train_photos=40, val_photos=20, test_photos=4)
SMALL_CONFIG = replace(demo.CONFIG, training=replace(demo.CONFIG.training, batch=32, epochs=1))


def test_all_of_it_on_a_tiny_world(tmp_path, monkeypatch):
    defaults = {**demo.run_demo.__kwdefaults__, "world": SMALL_WORLD, "config": SMALL_CONFIG}
    monkeypatch.setattr(demo.run_demo, "__kwdefaults__", defaults)
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


def test_progress_is_of_all_models_and_an_error_of_one_is_raised(tmp_path):
    (tmp_path / "nms").mkdir()
    (tmp_path / "nms" / "config.json").write_text('{"config": {"model": {}, "training": {"seed": 7}}}')
    shown = []
    with pytest.raises(InputError, match="nms"):
        demo.run_demo(
            tmp_path,
            device=torch.device("cpu"),
            world=SMALL_WORLD,
            config=SMALL_CONFIG,
            on_progress=lambda *step: shown.append(step),
        )
    steps = [(done, total) for name, done, total in shown if name == "training 4 models"]
    assert steps == sorted(steps)
    done, total = steps[-1]
    assert total / 4 <= done < total


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_an_interrupt_from_the_keyboard_reaches_no_process_that_still_imports():
    before = signal.getsignal(signal.SIGINT)
    process = get_context("spawn").Process(target=time.sleep, args=(60,))
    demo.start_uninterrupted(process)
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
        ignored = int(re.search(r"SigIgn:\s*([0-9a-f]+)", status)[1], 16)
        assert ignored & 1 << signal.SIGINT - 1
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        process.terminate()
        process.join()


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
