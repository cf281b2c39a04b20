"""The whole route as commands, from a folder of photos to answers."""

import json
import subprocess

import pytest

from tallybox.photos import sample_photos
from tests.support.killing import command
from tests.support.small_photos import save_photos
from tests.support.vqa_files import annotation, annotations_file, question, questions_file

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


@pytest.mark.slow
def test_from_a_folder_of_photos_to_answers(tmp_path):
    """With the embedded detector, as anyone can walk it: photos, features, questions, training, answers."""
    config = tmp_path / "small.toml"
    config.write_text(SMALL_MODEL)
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
