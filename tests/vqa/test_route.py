"""The whole route at a twentieth of VQA v2's size, on synthetic files of the real formats, killed once in each step.

6,000 photos of 36 to 100 proposals with 2,048 features in three layouts, 10,718 questions of validation and 22,390 of
test. Smaller than a twentieth: 8,000 questions to learn from instead of 22,188, a model with an eighth of the paper's
units, two epochs. Both tests take five minutes of CPU time together, and 4 GB of disk.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tallybox.vqa.data.photos import PhotoFeatures
from tallybox.vqa.data.splits import open_records
from tallybox.vqa.data.store import FeatureStore, write_features
from tallybox.vqa.data.tsv import write_tsv
from tests.support.killing import after_s, command, kill_when
from tests.support.shared_data import data_folder
from tests.support.vqa_feature_files import write_lxmert
from tests.support.vqa_files import annotation, annotations_file, question, questions_file, write_json

PHOTOS = {"train": range(1, 3801), "val": range(3801, 5601), "test": range(5601, 6001)}
QUESTIONS = {"train": 8_000, "val": 10_718, "test": 22_390}
FEATURES = 2048
KINDS = ("dogs", "cats", "cups", "cars", "boats", "birds", "trees", "chairs")
SMALL_MODEL = """
[model]
embedding = 64
question = 128
attention = 32
classifier = 128
dropout = 0.0
[training]
epochs = 2
"""
POOL = np.abs(np.random.default_rng(0).standard_normal((512, FEATURES), np.float32))


def counts_of(image_id: int) -> list[int]:
    return np.random.default_rng([1, image_id]).integers(0, 5, len(KINDS)).tolist()


def photo_of(image_id: int) -> PhotoFeatures:
    """A photo whose first proposals show what it holds, and the others nothing in particular."""
    random = np.random.default_rng([2, image_id])
    shown = np.repeat(np.arange(len(KINDS)), counts_of(image_id))
    number = int(np.clip(36 + random.exponential(14), 36, 100))
    rows = np.concatenate((shown, random.integers(len(KINDS), len(POOL), number)))[:number]
    corner = random.uniform(0, 500, (number, 2))
    boxes = np.concatenate((corner, corner + random.uniform(10, 130, (number, 2))), 1).astype(np.float32)
    return PhotoFeatures(str(image_id), (640.0, 640.0), boxes, POOL[rows])


def photos(first: int, stop: int) -> Iterator[PhotoFeatures]:
    return (photo_of(image_id) for image_id in range(first, stop))


def write_photos(folder: Path) -> None:
    """Write the photos in three layouts, one of them damaged."""
    folder.mkdir(parents=True)
    write_tsv(folder / "trainval_resnet101_faster_rcnn_genome.tsv", photos(1, 3001))
    write_lxmert(folder / "val2014_obj36.tsv", photos(3001, 4201))
    write_features(folder / "own.safetensors", photos(4201, 6001))
    with (folder / "val2014_obj36.tsv").open("rb+") as file:
        file.seek(200_000)
        file.write(b"#")  # in the middle of a field in base64


def write_questions(folder: Path) -> None:
    folder.mkdir()
    for (split, number), name in zip(QUESTIONS.items(), ("train2014", "val2014", "test2015"), strict=True):
        random = np.random.default_rng([3, number])
        asked, answered = [], []
        for question_id in range(number):
            image_id, kind = int(random.choice(PHOTOS[split])), int(random.integers(len(KINDS)))
            identity = 100_000 * (1 + list(QUESTIONS).index(split)) + question_id
            asked.append(question(identity, image_id, f"How many {KINDS[kind]} are there?"))
            answered.append(annotation(identity, [str(counts_of(image_id)[kind])] * 10, image_id))
        questions_file(folder / f"v2_OpenEnded_mscoco_{name}_questions.json", asked)
        if split != "test":
            annotations_file(folder / f"v2_mscoco_{name}_annotations.json", answered)
            pairs = [[one["question_id"], other["question_id"]] for one, other in pairwise(asked)]
            write_json(folder / f"v2_mscoco_{name}_complementary_pairs.json", pairs[: number // 20])


def done(arguments: list[str]) -> str:
    finished = subprocess.run(arguments, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.slow
def test_from_downloaded_files_to_a_results_file(tmp_path):
    write_photos(tmp_path / "features")
    write_questions(tmp_path / "official")
    (tmp_path / "small.toml").write_text(SMALL_MODEL)
    folder, run = tmp_path / "prepared", tmp_path / "run"

    features = ("--features", tmp_path / "features")
    prepare = command("vqa", "prepare", tmp_path / "official", *features, "--skip-broken", "--out", folder, "--json")
    kill_when(prepare, lambda: any((folder / "photos").glob("features-*")), limit_s=300)
    kill_when(prepare, (folder / "train.jsonl").exists, limit_s=300)
    found = json.loads(done(prepare))
    (message,) = found["broken_records"]
    assert "val2014_obj36.tsv, record 0" in message
    assert found["photos"] == 5999
    assert {split: number + found["lost_questions"][split] for split, number in found["questions"].items()} == QUESTIONS
    assert 0 < sum(found["lost_questions"].values()) < 60
    store = FeatureStore.open(folder / "photos")
    assert sorted(store.image_ids, key=int) == [str(n) for n in range(1, 6001) if n != 3001]
    for row in range(0, len(store.image_ids), 97):
        expected = photo_of(int(store.image_ids[row]))
        np.testing.assert_array_equal(store.features_of(row), expected.features.astype(np.float16))
        np.testing.assert_array_equal(store.boxes_xyxy[slice(*store.offsets[row : row + 2])], expected.boxes_xyxy)
    shutil.rmtree(tmp_path / "features")  # 3 GB

    options = ("--config", tmp_path / "small.toml", "--out", run, "--device", "cpu")
    train = command("vqa", "train", folder, *options, "--json")
    kill_when(train, (run / "checkpoint.safetensors").exists, limit_s=600)
    assert json.loads(done(train))["epochs"] == 2
    lines = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == sorted({line["step"] for line in lines})
    assert lines[-1]["loss"] < lines[0]["loss"]

    evaluate = command("vqa", "evaluate", run, "--device", "cpu", "--json")
    kill_when(evaluate, after_s(6))
    scores = json.loads(done(evaluate))["counter"]
    assert 0 < scores["count"] == scores["all"] < 100
    assert scores["count_rmse"] >= scores["count_mae"] > 0

    predict = command("vqa", "predict", run, "--out", tmp_path / "results.json", "--device", "cpu")
    kill_when(predict, after_s(6))
    assert not (tmp_path / "results.json").exists()
    done(predict)
    results = json.loads((tmp_path / "results.json").read_text())
    asked = [record.question_id for record in open_records(folder, "test")]
    assert [result["question_id"] for result in results] == asked


@pytest.mark.slow
def test_from_a_folder_of_photos_to_answers(tmp_path):
    """With the embedded detector, as anyone can walk it: photos, features, questions, training, answers."""
    (tmp_path / "photos").mkdir()
    originals = sorted(data_folder("coco-photos").glob("*.jpg"))
    for index in range(280):  # more than a file holds
        source = originals[index % len(originals)]
        (tmp_path / "photos" / f"{int(source.stem) + 1_000_000 * (index // len(originals)):012d}.jpg").symlink_to(
            source
        )
    make = command("vqa", "features", tmp_path / "photos", "--out", tmp_path / "features", "--json")
    kill_when(make, (tmp_path / "features" / "000000.safetensors").exists, limit_s=300)
    found = json.loads(done(make))
    assert (found["photos"], found["features"]) == (280, 80)
    asked = tmp_path / "asked"
    asked.mkdir()
    questions = [question(number, number, "How many people are there?") for number in range(1, 900)]
    questions += [question(1000 + index, int(path.stem)) for index, path in enumerate(originals)]
    questions_file(asked / "v2_OpenEnded_mscoco_train2014_questions.json", questions)
    answers = [annotation(one["question_id"], [str(one["question_id"] % 4)] * 10, one["image_id"]) for one in questions]
    annotations_file(asked / "v2_mscoco_train2014_annotations.json", answers)
    prepare = ("vqa", "prepare", asked, "--features", tmp_path / "features", "--out", tmp_path / "prepared")
    refused = subprocess.run(command(*prepare), capture_output=True, text=True)
    assert refused.returncode == 1
    assert "--skip-broken" in refused.stderr
    done(command(*prepare, "--skip-broken"))
    (tmp_path / "small.toml").write_text(SMALL_MODEL + "batch = 64\n")
    options = ("--config", tmp_path / "small.toml", "--device", "cpu", "--out", tmp_path / "run")
    done(command("vqa", "train", tmp_path / "prepared", *options))
    done(
        command("vqa", "predict", tmp_path / "run", "--split", "train", "--out", tmp_path / "r.json", "--device", "cpu")
    )
    assert len(json.loads((tmp_path / "r.json").read_text())) == len(open_records(tmp_path / "prepared", "train"))
    answer = done(command("ask", originals[0], "How many people are there?", "--model", tmp_path / "run", "--json"))
    assert json.loads(answer)["answer"]
