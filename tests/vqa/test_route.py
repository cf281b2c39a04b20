"""The whole route as commands: from downloaded files to a results file, and from a folder of photos to answers."""

import json
import subprocess
from pathlib import Path

import pytest

from tallybox.photos import sample_photos
from tallybox.vqa.data.splits import open_records
from tallybox.vqa.data.store import FeatureStore, write_features
from tallybox.vqa.data.tsv import write_tsv
from tests.support.killing import command, kill_when
from tests.support.small_photos import save_photos
from tests.support.vqa_feature_files import write_lxmert
from tests.support.vqa_files import annotation, annotations_file, question, questions_file, small_photos, small_set

SMALL_MODEL = """
[model]
embedding = 8
question = 12
attention = 8
classifier = 12
[training]
batch = 8
epochs = 2
"""


def done(*arguments: object) -> str:
    finished = subprocess.run(command(*arguments), capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.fixture
def config(tmp_path) -> Path:
    (tmp_path / "small.toml").write_text(SMALL_MODEL)
    return tmp_path / "small.toml"


@pytest.mark.slow
def test_from_downloaded_files_to_a_results_file(tmp_path, config):
    """Features in three layouts, without one photo; training is killed once."""
    official, features, photos = small_set(tmp_path / "official"), tmp_path / "features", small_photos(40)
    features.mkdir()
    write_tsv(features / "trainval_resnet101_faster_rcnn_genome_36.tsv", photos[:15])
    write_lxmert(features / "val2014_obj36.tsv", photos[16:30])
    write_features(features / "own.safetensors", photos[30:])
    prepared, run = tmp_path / "prepared", tmp_path / "run"
    given = ("--features", features, "--skip-missing", "--out", prepared, "--json")
    found = json.loads(done("vqa", "prepare", official, *given))
    assert (found["photos"], sum(found["lost_questions"].values())) == (39, 2)
    assert len(FeatureStore.open(prepared / "photos").image_ids) == 39

    train = ("vqa", "train", prepared, "--config", config, "--out", run, "--device", "cpu", "--json")
    kill_when(command(*train), (run / "config.json").exists, limit_s=120)
    assert json.loads(done(*train))["epochs"] == 2
    scores = json.loads(done("vqa", "evaluate", run, "--device", "cpu", "--json"))["counter"]
    assert 0 <= scores["count"] <= 100
    assert scores["count_rmse"] >= scores["count_mae"]
    done("vqa", "predict", run, "--out", tmp_path / "results.json", "--device", "cpu")
    results = json.loads((tmp_path / "results.json").read_text())
    asked = [record.question_id for record in open_records(prepared, "test")]
    assert [result["question_id"] for result in results] == asked


@pytest.mark.slow
def test_from_a_folder_of_photos_to_answers(tmp_path, config):
    """With the embedded detector, as anyone can walk it: photos, features, questions, training, answers."""
    save_photos(tmp_path / "photos", 4)
    (tmp_path / "photos" / "riders.jpg").symlink_to(sample_photos()[1])
    features = json.loads(done("vqa", "features", tmp_path / "photos", "--out", tmp_path / "features", "--json"))
    assert features["photos"] == 5
    asked = [question(number, ("riders", "00", "01")[number % 3], "How many horses are there?") for number in range(30)]
    answers = [annotation(one["question_id"], ["2"] * 10, one["image_id"]) for one in asked]
    (tmp_path / "asked").mkdir()
    questions_file(tmp_path / "asked" / "v2_OpenEnded_mscoco_train2014_questions.json", asked)
    annotations_file(tmp_path / "asked" / "v2_mscoco_train2014_annotations.json", answers)
    done("vqa", "prepare", tmp_path / "asked", "--features", tmp_path / "features", "--out", tmp_path / "prepared")
    done("vqa", "train", tmp_path / "prepared", "--config", config, "--device", "cpu", "--out", tmp_path / "run")
    answer = done("ask", sample_photos()[1], "How many horses are there?", "--model", tmp_path / "run", "--json")
    assert json.loads(answer)["answer"] == "2"
