"""Prepare, train, evaluate, predict, as a user types them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tallybox.errors import InputError
from tallybox.runs import read_results
from tallybox.vqa.checkpoints import load_model
from tallybox.vqa.data.splits import open_records
from tallybox.vqa.figures import explained
from tallybox.vqa.prediction import open_for_model
from tallybox.vqa.scoring import KEYS
from tests.support.commands import run
from tests.support.vqa_files import small_set

ROOT = Path(__file__).parent.parent.parent
TOY = ROOT / "docs" / "results" / "toy" / "hard"
CONFIG = """
[model]
embedding = 4
question = 6
attention = 5
classifier = 7
[training]
batch = 8
epochs = 2
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a prepared set and two short runs of a model and one of another."""
    folder = tmp_path_factory.mktemp("vqa")
    small_set(folder / "files")
    files = folder / "files"
    prepared = run("vqa", "prepare", files, "--features", files / "features.tsv", "--out", folder / "prepared")
    assert prepared.exit_code == 0, prepared.output
    (folder / "small.toml").write_text(CONFIG)
    for model, seed in (("counter", 0), ("counter", 1), ("baseline", 0)):
        out = folder / f"{model}-{seed}"
        given = ("--config", folder / "small.toml", "--model", model, "--seed", seed, "--device", "cpu")
        trained = run("vqa", "train", folder / "prepared", "--out", out, *given)
        assert trained.exit_code == 0, trained.output
        assert f"{out}: {model}, 2 epochs" in trained.stdout
    return folder


def test_scores_of_several_runs_have_mean_and_deviation(folder):
    runs = [folder / name for name in ("counter-0", "counter-1", "baseline-0")]
    alone = [json.loads(run("vqa", "evaluate", one, "--device", "cpu", "--json").stdout)["model"] for one in runs]
    assert {*KEYS, "count_1", "count_2_or_more", "count_mae"} - {"other"} <= alone[0].keys()  # no other answers
    assert "deviation" not in alone[0]
    found = json.loads(run("vqa", "evaluate", *runs, "--json").stdout)
    assert list(found) == ["baseline", "counter"]
    assert found["counter"]["all"] == pytest.approx((alone[0]["all"] + alone[1]["all"]) / 2)
    difference = abs(alone[0]["all"] - alone[1]["all"])
    assert found["counter"]["deviation"]["all"] == pytest.approx(difference / 2**0.5)
    assert found["baseline"]["runs"] == 1

    shown = run("vqa", "evaluate", *runs).stdout
    assert all(name in shown for name in ("baseline", "counter", "±", "yes/no", "pair_count", "count_mae"))


def test_predict_writes_the_results_file_of_the_test_server(folder):
    out = folder / "results.json"
    done = run("vqa", "predict", folder / "counter-0", "--out", out)
    assert done.exit_code == 0, done.output
    (result,) = json.loads(out.read_text())
    assert result.keys() == {"question_id", "answer"}
    assert result["question_id"] == 9
    assert isinstance(result["answer"], str)


def test_training_on_both_splits_and_a_split_that_is_not_there(folder, tmp_path):
    given = ("--config", folder / "small.toml", "--epochs", 1, "--device", "cpu", "--json")
    both = run("vqa", "train", folder / "prepared", "--out", tmp_path / "both", *given, "--split", "trainval")
    assert "--vocabulary-from trainval" in both.stderr
    train = run("vqa", "train", folder / "prepared", "--out", tmp_path / "train", *given)
    assert train.stderr == ""
    assert json.loads(both.stdout)["steps"] > json.loads(train.stdout)["steps"]
    warned = run("vqa", "evaluate", tmp_path / "both", "--device", "cpu", "--json")
    assert warned.exit_code == 0
    assert f"{tmp_path / 'both'} was trained on val" in warned.stderr
    assert run("vqa", "evaluate", tmp_path / "train", "--device", "cpu", "--json").stderr == ""
    absent = run("vqa", "train", folder / "prepared", "--out", tmp_path / "none", *given, "--split", "dev")
    assert absent.exit_code == 1
    assert "'dev'" in absent.stderr


def test_a_run_goes_on_with_moved_data_and_not_with_other_settings(folder, tmp_path):
    given = ("--config", folder / "small.toml", "--device", "cpu", "--json")
    shutil.copytree(folder / "baseline-0", tmp_path / "run")
    moved = shutil.copytree(folder / "prepared", tmp_path / "moved")
    options = (*given, "--model", "baseline", "--seed", 0)
    more = run("vqa", "train", moved, "--out", tmp_path / "run", *options, "--epochs", 3)
    assert json.loads(more.stdout)["epochs"] == 3
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["prepared"] == str(moved)
    refused = run("vqa", "train", moved, "--out", tmp_path / "run", *options, "--batch", 4)
    assert refused.exit_code == 1
    assert "training.batch 8, not 4" in refused.stderr


def test_splits_without_answers_and_splits_that_are_not_there(folder, tmp_path):
    failed = run("vqa", "evaluate", folder / "counter-0", "--split", "test", "--device", "cpu")
    assert failed.exit_code == 1
    assert "test" in failed.stderr
    prepared = tmp_path / "prepared"
    shutil.copytree(folder / "prepared", prepared)
    (prepared / "val.safetensors").unlink()
    for command in ("evaluate", "figures"):
        failed = run("vqa", command, folder / "counter-0", "--prepared", prepared)
        assert failed.exit_code == 1
        assert "'val'" in failed.stderr
    given = ("--config", folder / "small.toml", "--validate-every", 1, "--device", "cpu")
    failed = run("vqa", "train", prepared, "--out", tmp_path / "run", *given)
    assert "--validate-every" in failed.stderr


def test_figures_of_a_run_with_photos_and_the_toy_task(folder, tmp_path):
    photos = tmp_path / "photos"
    photos.mkdir()
    for image_id in range(20, 40):
        Image.new("RGB", (64, 48), (200, 0, 0)).save(photos / f"COCO_val2014_{image_id:012}.png")
    drawn = run(
        *("vqa", "figures", folder / "counter-0", "--out", tmp_path / "drawn"),
        *("--toy", TOY, "--photos", photos),
    )
    assert drawn.exit_code == 0, drawn.output
    names = ["activations", "curves", "examples"]
    assert sorted(path.name for path in (tmp_path / "drawn").iterdir()) == sorted(f"{name}.png" for name in names)
    assert f"{tmp_path / 'drawn'}: {', '.join(names)}" in drawn.stdout
    reddish = np.asarray(Image.open(tmp_path / "drawn" / "examples.png").convert("RGB")).reshape(-1, 3)
    assert (reddish == (211, 51, 51)).all(1).mean() > 0.01  # a photo through which the page shines
    plain = run("vqa", "figures", folder / "baseline-0")
    assert f"{folder / 'baseline-0' / 'figures'}: curves" in plain.stdout
    other = tmp_path / "other"
    other.mkdir()
    Image.new("RGB", (9, 9)).save(other / "999.png")
    wrong = run("vqa", "figures", folder / "counter-0", "--photos", other)
    assert wrong.exit_code == 1
    assert str(other) in wrong.stderr


def test_runs_are_validated_unless_they_learn_from_val(folder, tmp_path):
    prepared, given = folder / "prepared", ("--config", folder / "small.toml", "--device", "cpu", "--json")
    assert len(read_results(folder / "counter-0" / "validation.jsonl")) == 2
    assert run("vqa", "train", prepared, "--out", tmp_path / "none", *given, "--validate-every", 0).exit_code == 0
    assert not (tmp_path / "none" / "validation.jsonl").exists()
    wanted = ("--split", "trainval", "--validate-every", 1)
    refused = run("vqa", "train", prepared, "--out", tmp_path / "both", *given, *wanted)
    assert refused.exit_code == 1
    assert "--validate-every" in refused.stderr
    more = run("vqa", "train", prepared, "--out", tmp_path / "none", *given, "--epochs", 3)
    assert json.loads(more.stdout)["epochs"] == 3


def test_examples_have_the_component_s_matrices_and_count(folder):
    records = open_records(folder / "prepared", "val")
    asked = [record.question_id for record in records if record.counts][:2]
    model, checkpoint = load_model(folder / "counter-0")
    data = *open_for_model(checkpoint, folder / "prepared", "val"), records
    shown = explained(model, checkpoint, *data, asked)
    assert len(shown) == 2
    for example in shown:
        kept = len(example["boxes"])
        assert 1 <= kept <= 10
        for name in ("A", "D", "C"):
            assert [len(row) for row in example[name]] == [kept] * kept
        assert example["A"][0][0] == pytest.approx(example["attention"][0] ** 2, rel=1e-4)
        assert sum(map(sum, example["C"])) == pytest.approx(example["count"] ** 2, rel=1e-3)
        assert example["truth"] in ("0", "1", "2")
    with pytest.raises(InputError, match="baseline"):
        explained(*load_model(folder / "baseline-0"), *data, asked)
