import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tallybox.errors import InputError
from tallybox.runs import read_results
from tallybox.vqa.batches import answerable
from tallybox.vqa.checkpoints import FILE, read_checkpoint
from tallybox.vqa.config import VqaConfig
from tallybox.vqa.training import train
from tests.support.torch_warnings import TORCH_WARNS_ABOUT_ITSELF
from tests.support.vqa_tiny import CPU, tiny_config, tiny_data

ROOT = Path(__file__).parent.parent.parent

pytestmark = TORCH_WARNS_ABOUT_ITSELF


def losses(folder: Path) -> list[tuple[int, float]]:
    return [(line["step"], line["loss"]) for line in read_results(folder / "results.jsonl")]


def assert_same_run(one: Path, other: Path) -> None:
    (checkpoint, tensors), (expected, expected_tensors) = read_checkpoint(one), read_checkpoint(other)
    assert checkpoint == expected
    assert tensors.keys() == expected_tensors.keys()
    for name, value in expected_tensors.items():
        assert torch.equal(tensors[name], value), name
    assert losses(one) == losses(other)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "uninterrupted"
    train(tiny_data(), folder, tiny_config(), device=CPU)
    return folder


def test_a_run_leaves_a_log_and_a_checkpoint(uninterrupted):
    lines = read_results(uninterrupted / "results.jsonl")
    assert [line["step"] for line in lines] == [2, 4, 5, 6, 8, 10, 12, 14, 15]  # every 2 steps, and after each epoch
    assert lines[-1].keys() == {"step", "epoch", "loss", "accuracy", "learning_rate", "questions_per_second"}
    assert lines[-1]["learning_rate"] == pytest.approx(0.01 * 0.5 ** (14 / 20))
    checkpoint, tensors = read_checkpoint(uninterrupted)
    assert (checkpoint.epoch, checkpoint.steps, checkpoint.words) == (3, 15, tiny_data().words)
    assert tensors["optimiser.count.counter.weight.step"].item() == 15
    assert not list(uninterrupted.glob("*.unfinished"))


@pytest.mark.parametrize("padding", ["masked", "published"])
@pytest.mark.parametrize("name", ["baseline", "nms", "counter", "presence"])
def test_all_models_learn_a_tiny_set_by_heart(tmp_path, name, padding):
    config = tiny_config(name, epochs=30, dropout=0.0, half_life=1000)
    train(tiny_data(), tmp_path, replace(config, model=replace(config.model, padding=padding)), device=CPU)
    curve = losses(tmp_path)
    assert curve[-1][1] < 0.7 * curve[0][1]


def test_looking_at_a_model_after_each_epoch_changes_nothing(tmp_path, uninterrupted):
    seen = []

    def look(epoch, model):
        torch.rand(3)
        model.eval()
        seen.append((epoch, model.config.name))

    torch.manual_seed(7)
    before = torch.get_rng_state()
    train(tiny_data(), tmp_path / "run", tiny_config(), device=CPU, on_epoch=look)
    assert torch.equal(torch.get_rng_state(), before), "random numbers of others are left alone"
    assert seen == [(1, "counter"), (2, "counter"), (3, "counter")]
    assert_same_run(tmp_path / "run", uninterrupted)


def test_killed_and_started_again_it_gives_the_same_run(tmp_path, uninterrupted):
    command = [sys.executable, "-m", "tests.support.vqa_tiny", str(tmp_path / "run"), "counter", "3"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen([*command, "0.05"], cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment) as process:
        while int(process.stdout.readline()) < 9:  # beyond the checkpoint and lines of the log, which come again
            pass
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert read_checkpoint(tmp_path / "run")[0].steps == 5
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, env=environment)
    assert_same_run(tmp_path / "run", uninterrupted)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
# In float32 Adam makes much of gradients that are rounding, so the steps of float64 are the proof.
@pytest.mark.parametrize(
    ("name", "padding", "precision", "rtol"),
    [
        ("baseline", "masked", "float64", 1e-6),  # sums of losses are float32
        ("counter", "masked", "float32", 1e-2),
        ("counter", "published", "float32", 1e-2),
    ],
)
def test_on_a_gpu_graphs_and_the_smaller_last_step_give_what_plain_steps_give(tmp_path, name, padding, precision, rtol):
    config = tiny_config(name, batch=6, dropout=0.0, precision=precision)
    for folder, fast in (("graphs", True), ("plain", False)):
        chosen = VqaConfig(replace(config.model, padding=padding), replace(config.training, fast=fast))
        train(tiny_data(), tmp_path / folder, chosen, device=torch.device("cuda"))
    assert read_checkpoint(tmp_path / "graphs")[0].steps == 12
    graphs, plain = losses(tmp_path / "graphs"), losses(tmp_path / "plain")
    assert [loss for _, loss in graphs] == pytest.approx([loss for _, loss in plain], rel=rtol)


def test_a_folder_of_another_run_is_refused(tmp_path, uninterrupted):
    with pytest.raises(InputError, match=r"model\.name counter, not nms"):
        train(tiny_data(), uninterrupted, tiny_config("nms"), device=CPU)
    shutil.copytree(uninterrupted, tmp_path / "run")
    other = replace(tiny_data(), words=tiny_data().words[::-1])
    with pytest.raises(InputError, match="other data"):
        train(other, tmp_path / "run", tiny_config(), device=CPU)


def test_more_epochs_go_on_with_a_finished_run_and_fewer_are_refused(tmp_path, uninterrupted):
    train(tiny_data(), tmp_path / "run", tiny_config(epochs=1), device=CPU)
    train(tiny_data(), tmp_path / "run", tiny_config(epochs=3), device=CPU)
    assert_same_run(tmp_path / "run", uninterrupted)
    before = (tmp_path / "run" / FILE).stat().st_mtime_ns
    train(tiny_data(), tmp_path / "run", tiny_config(epochs=3), device=CPU)
    assert (tmp_path / "run" / FILE).stat().st_mtime_ns == before, "a finished run is left as it is"
    assert (tmp_path / "run" / "config.json").read_text() == (uninterrupted / "config.json").read_text()
    with pytest.raises(InputError, match="3 epochs"):
        train(tiny_data(), tmp_path / "run", tiny_config(epochs=2), device=CPU)
    assert (tmp_path / "run" / "config.json").read_text() == (uninterrupted / "config.json").read_text()


def test_questions_without_a_known_answer_are_left_out():
    questions = tiny_data().questions
    kept = answerable(questions)
    assert len(kept) == len(questions) - 1
    assert 103 not in kept.question_ids


def test_what_is_wrong_with_the_data_is_said(tmp_path):
    with pytest.raises(InputError, match="20 questions"):
        train(tiny_data(), tmp_path / "run", tiny_config(batch=64), device=CPU)
    data = tiny_data()
    unanswered = replace(data.questions, answers=None)
    with pytest.raises(InputError, match="answers"):
        train(replace(data, questions=unanswered), tmp_path, tiny_config(), device=CPU)
    unknown = replace(data, questions=replace(data.questions, relevance=None))
    with pytest.raises(InputError, match="true boxes"):
        train(unknown, tmp_path, tiny_config(), device=CPU)
