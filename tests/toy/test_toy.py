import csv
import json
import subprocess

import pytest
import torch
from click.testing import CliRunner

from tallybox.boxes import box_iou
from tallybox.cli import cli
from tallybox.components import load_component
from tallybox.errors import InputError
from tallybox.runs import read_results
from tallybox.toy import (
    Setting,
    ToyConfig,
    ToyTraining,
    draw_images,
    load_layers,
    save_layers,
    sweep_settings,
    train_settings,
)
from tallybox.toy.figures import read_sweep
from tests.support.killing import command, kill_when

CPU = torch.device("cpu")
SHORT = ["--iterations", "1", "--evaluation-batches", "1", "--batch", "8", "--device", "cpu"]
QUICK = ToyConfig(iterations=3, batch=16, evaluation_batches=2)


def toy(*arguments: object):
    """Run a command of the toy task."""
    return CliRunner().invoke(cli, ["toy", *map(str, arguments)])


def draw(side_length: float, noise: float, images: int = 64):
    generator = torch.Generator().manual_seed(1)
    settings = torch.tensor([side_length]), torch.tensor([noise])
    return draw_images(*settings, images=images, boxes=10, generator=generator)


@pytest.mark.parametrize("side_length", [0.0, 0.05, 0.5, 0.95, 1.0])
def test_without_noise_a_weight_is_the_largest_iou_with_a_true_box(side_length):
    drawn = draw(side_length, 0.0)
    overlap = box_iou(drawn.boxes.double(), drawn.boxes.double())
    expected = torch.where(drawn.is_true.unsqueeze(-2), overlap, 0).amax(-1)
    torch.testing.assert_close(drawn.attention.double(), expected, rtol=0, atol=2e-5)


def test_boxes_are_squares_inside_the_picture():
    drawn = draw(0.3, 0.5)
    size = drawn.boxes[..., 2:] - drawn.boxes[..., :2]
    torch.testing.assert_close(size, torch.full_like(size, 0.3))
    assert drawn.boxes.min() >= 0
    assert drawn.boxes.max() <= 1 + 1e-6


def test_counts_are_uniform_and_are_the_number_of_true_boxes():
    drawn = draw(0.3, 0.5, images=22_000)
    assert torch.equal(drawn.is_true.sum(-1), drawn.count)
    shares = drawn.count.flatten().bincount(minlength=11) / 22_000
    torch.testing.assert_close(shares, torch.full((11,), 1 / 11), rtol=0, atol=0.01)


def test_noise_alone_is_uniform_whatever_is_true():
    drawn = draw(0.3, 1.0, images=10_000)
    for chosen in (drawn.is_true, ~drawn.is_true):
        assert drawn.attention[chosen].mean().item() == pytest.approx(0.5, abs=0.01)


def test_the_same_seed_draws_the_same_images():
    assert torch.equal(draw(0.4, 0.2).attention, draw(0.4, 0.2).attention)


def test_settings_trained_together_do_not_influence_each_other():
    easy, hard = Setting(0.1, 0.0), Setting(0.9, 0.9)
    alone = train_settings([easy, easy], 0, QUICK, device=CPU)
    together = train_settings([easy, hard], 0, QUICK, device=CPU)
    assert together[0] == alone[0]


def test_fused_and_reference_learn_the_same():
    config = ToyConfig(iterations=200, batch=64, evaluation_batches=5)
    setting = [Setting(0.4, 0.1)]
    ours = train_settings(setting, 3, config, device=CPU, backend="cpu")[0]
    reference = train_settings(setting, 3, config, device=CPU, backend="reference")[0]
    torch.testing.assert_close(torch.tensor(ours.activations), torch.tensor(reference.activations), rtol=0, atol=2e-3)
    assert ours.accuracy["counter"] == pytest.approx(reference.accuracy["counter"], abs=0.02)


@pytest.mark.slow
def test_the_counter_learns_an_easy_setting_and_beats_the_sum():
    config = ToyConfig(iterations=150, evaluation_batches=10)
    result = train_settings([Setting(0.3, 0.0)], 0, config, device=CPU)[0]
    assert result.accuracy["counter"] > 0.97
    assert result.accuracy["baseline"] < 0.9


def test_a_sweep_has_the_papers_points():
    settings = sweep_settings("hard", 0.01)
    assert len(settings) == 202
    assert Setting(0.07, 0.5) in settings
    assert Setting(0.5, 1.0) in settings


@pytest.mark.parametrize("bad", [0.03, 0.0, -0.1, 2.0])
def test_a_step_that_does_not_divide_1_is_refused(bad):
    with pytest.raises(InputError, match="step"):
        sweep_settings("easy", bad)


def test_train_prints_one_json_object():
    result = toy("train", "--side-length", 0.5, "--noise", 0.5, *SHORT, "--json")
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert {"side_length", "noise", "counter_accuracy", "baseline_accuracy", "seconds"} <= set(printed)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--side-length", 1.5], "side_length"),
        (["--side-length", 0.5, "--device", "gpu"], "gpu"),
        *([] if torch.cuda.is_available() else [(["--side-length", 0.5, "--device", "cuda:0"], "cuda:0")]),
    ],
)
def test_a_wrong_value_is_one_clear_line(options, named):
    result = toy("train", "--noise", 0, *options)
    assert result.exit_code == 1
    assert named in result.stderr
    assert len(result.stderr.splitlines()) == 1


EASY = ["sweep", "--setting", "easy", "--step", 0.25, "--seed", 0]


@pytest.mark.slow
def test_a_killed_sweep_goes_on_where_it_stopped(tmp_path):
    long = ["--iterations", "30", "--evaluation-batches", "2", "--batch", "32", "--device", "cpu", "--model", "counter"]
    sweep = ["toy", *map(str, EASY), *long, "--out"]
    interrupted = command(*sweep, tmp_path / "killed")
    results = tmp_path / "killed" / "results.jsonl"
    kill_when(interrupted, lambda: results.exists() and results.stat().st_size > 0, limit_s=120)
    before = read_results(results)
    with results.open("a") as file:
        file.write('{"side_length": 0.5, "noi')  # as if killed in the middle of a line
    subprocess.run(interrupted, check=True, capture_output=True)
    subprocess.run(command(*sweep, tmp_path / "whole"), check=True, capture_output=True)
    after = read_results(results)
    assert after[: len(before)] == before
    assert after == read_results(tmp_path / "whole" / "results.jsonl")


def test_figures_are_drawn_from_a_sweep_and_another_run_is_not_mixed_with_it(tmp_path):
    assert toy(*EASY, *SHORT, "--out", tmp_path).exit_code == 0
    again = toy(*EASY, *SHORT, "--out", tmp_path, "--learning-rate", 0.1)
    assert again.exit_code == 1
    assert "learning_rate" in again.stderr
    result = toy("figures", tmp_path)
    assert result.exit_code == 0, result.output
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    varied = [f"{kind}_{name}" for kind in ("activations", "presence") for name in ("side_length", "noise")]
    assert names == {"accuracy.csv", *(f"{name}.png" for name in ("accuracy", "f1_and_f2", "samples", *varied))}
    with (tmp_path / "figures" / "accuracy.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    (first, *_) = read_results(tmp_path / "results.jsonl")
    assert {row["model"]: float(row["accuracy"]) for row in rows[:3]} == first["accuracy"]


def test_without_a_setting_both_are_trained_and_drawn(tmp_path):
    result = toy("sweep", "--step", 1, "--seed", 0, *SHORT, "--model", "baseline", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    settings = {
        name: {(one["side_length"], one["noise"]) for one in read_results(tmp_path / name / "results.jsonl")}
        for name in ("easy", "hard")
    }
    assert settings == {"easy": {(0, 0), (1, 0), (0, 1)}, "hard": {(0, 0.5), (1, 0.5), (0.5, 0), (0.5, 1)}}
    drawn = toy("figures", tmp_path)
    assert drawn.exit_code == 0, drawn.output
    assert all((tmp_path / name / "figures" / "accuracy.png").exists() for name in settings)


def test_figures_of_a_folder_without_a_sweep_are_one_clear_line(tmp_path):
    result = toy("figures", tmp_path)
    assert result.exit_code == 1
    assert "toy sweep" in result.stderr


def test_an_own_grid_of_chosen_models_and_seeds_is_trained_and_drawn(tmp_path):
    grid = ["--side-length", 0.2, "--noise", "0,0.5,1", "--seed", 3, "--model", "counter"]
    result = toy("sweep", *grid, *SHORT, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    results = read_results(tmp_path / "results.jsonl")
    assert [(one["side_length"], one["noise"], one["seed"]) for one in results] == [(0.2, q, 3) for q in (0, 0.5, 1)]
    assert all(list(one["accuracy"]) == ["counter"] for one in results)
    assert toy("figures", tmp_path).exit_code == 0
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"accuracy.png", "activations_noise.png"} <= names
    assert read_sweep(tmp_path)[0] == 0.2


@pytest.mark.parametrize(
    "options",
    [
        ["--side-length", "0.2"],
        ["--side-length", "0.2", "--noise", "a"],
        ["--setting", "easy", "--side-length", "0.2", "--noise", "0.5"],
    ],
)
def test_a_grid_that_cannot_be_is_wrong_usage(tmp_path, options):
    assert toy("sweep", "--out", tmp_path, *options).exit_code == 2


def test_trained_layers_are_saved_and_loaded(tmp_path):
    training = ToyTraining([Setting(0.3, 0.1)], 0, QUICK, device=CPU)
    training.run()
    save_layers(tmp_path / "layers.safetensors", training)
    loaded = load_layers(tmp_path / "layers.safetensors")
    assert set(loaded) == {"counter", "presence"}
    images = draw(0.3, 0.1)
    for name, layer in loaded.items():
        features = layer(images.attention[0], images.boxes[0])
        scores = training.models[name].readout(features.unsqueeze(0))
        torch.testing.assert_close(scores, training.models[name](images.attention, images.boxes))


def test_an_own_component_is_trained_beside_the_others():
    training = ToyTraining(
        [Setting(0.3, 0.0), Setting(0.5, 0.0)], 0, QUICK, device=CPU, models=["counter", "examples.soft_nms:SoftNms"]
    )
    before = training.layers(1)["soft-nms"].log_width.item()
    results = training.run()
    assert [set(result.accuracy) for result in results] == [{"counter", "soft-nms"}] * 2
    assert training.layers(1)["soft-nms"].log_width.item() != before
    alone = train_settings([Setting(0.3, 0.0), Setting(0.5, 0.0)], 0, QUICK, models=["counter"])
    assert alone[0].accuracy["counter"] == results[0].accuracy["counter"]


@pytest.mark.parametrize("spec", ["soft", "examples.soft_nms:No", "no_such_module:Class", "examples.soft_nms:__name__"])
def test_an_unknown_component_is_named(spec):
    with pytest.raises(InputError, match=spec.partition(":")[0]):
        load_component(spec)
