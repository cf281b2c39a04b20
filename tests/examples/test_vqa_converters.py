import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tallybox.errors import InputError
from tallybox.vqa.data.official import official_files, read_records
from tallybox.vqa.data.store import read_features
from tests.support.vqa_feature_files import write_openvqa, write_published_h5
from tests.support.vqa_files import (
    annotation,
    annotations_file,
    assert_same_photos,
    question,
    questions_file,
    small_photos,
    write_json,
)

FOLDER = Path(__file__).parent.parent.parent / "examples" / "vqa_converters"
FEATURES = runpy.run_path(str(FOLDER / "features.py"))


def photos(number: int = 9):
    """A proposal without any feature could be padding in the published file."""
    return [photo._replace(features=photo.features + 1) for photo in small_photos(number, features=11)]


def convert(script: str, *arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, FOLDER / script, *map(str, arguments)], capture_output=True, text=True)


def many(path, photos):
    np.savez(
        path,
        image_ids=np.array([int(photo.image_id) for photo in photos]),
        num_boxes=[len(photo.boxes_xyxy) for photo in photos],
        sizes_wh=[photo.size_wh for photo in photos],
        boxes_xyxy=np.concatenate([photo.boxes_xyxy for photo in photos]),
        features=np.concatenate([photo.features for photo in photos]),
    )
    return path


WRITERS = {
    "openvqa": lambda folder, photos: write_openvqa(folder / "npz", photos),
    "bottom-up-attention.pytorch": lambda folder, photos: write_openvqa(folder / "npz", photos, transposed=False),
    "published": lambda folder, photos: write_published_h5(folder / "genome-trainval.h5", photos),
    "many": lambda folder, photos: many(folder / "many.npz", photos),
}


@pytest.mark.parametrize("layout", WRITERS)
def test_features_of_other_layouts(tmp_path, layout):
    assert_same_photos(list(FEATURES["read_photos"](WRITERS[layout](tmp_path, photos()))), photos())


def test_the_script_writes_a_file_that_prepare_reads(tmp_path):
    path = write_published_h5(tmp_path / "a.h5", photos())
    done = convert("features.py", path, "--prefix", "VG", "--out", tmp_path / "a.safetensors")
    assert done.returncode == 0, done.stderr
    assert [photo.image_id for photo in read_features(tmp_path / "a.safetensors")] == [f"VG/{n}" for n in range(1, 10)]


def test_as_many_proposals_as_features_need_the_axis(tmp_path):
    path = tmp_path / "one.npz"
    features = np.arange(4.0).reshape(2, 2)
    np.savez(path, x=features, bbox=np.array([[0, 0, 5, 5], [1, 1, 9, 9]], np.float32))
    with pytest.raises(InputError, match="--features-axis"):
        FEATURES["read_npz"](path, "one")
    assert FEATURES["read_npz"](path, "one", "last").features.tolist() == features.tolist()
    assert FEATURES["read_npz"](path, "one", "first").features.tolist() == features.T.tolist()


def test_tallyqa(tmp_path):
    tally = {"image": "VG_100K/7.jpg", "answer": 3, "question": "How many dogs?", "question_id": 5, "issimple": False}
    write_json(tmp_path / "train.json", [tally])
    write_json(tmp_path / "test.json", [tally | {"image": "val2014/COCO_val2014_000000000009.jpg", "issimple": True}])
    done = convert(
        "questions.py", "tallyqa", tmp_path / "train.json", tmp_path / "test.json", "--out", tmp_path / "vqa"
    )
    assert done.returncode == 0, done.stderr
    files = official_files(tmp_path / "vqa")
    ((train,), (val,)) = (read_records(one.questions, one.annotations) for one in files.values())
    assert (train.image_id, train.answers, train.question_type) == ("VG/7", ("3",), "complex")
    assert (val.image_id, val.question_type) == ("9", "simple")


def test_howmany(tmp_path):
    vqa, genome = tmp_path / "vqa", tmp_path / "genome"
    vqa.mkdir()
    genome.mkdir()
    for split in ("train2014", "val2014"):
        questions_file(vqa / f"v2_OpenEnded_mscoco_{split}_questions.json", [question(n) for n in (1, 2, 3)])
        answered = [annotation(n, ["2"] * 10) for n in (1, 2, 3)]
        annotations_file(vqa / f"v2_mscoco_{split}_annotations.json", answered)
    asked = [{"qa_id": n, "image_id": n, "question": "How many?", "answer": "There are Twelve."} for n in (4, 5, 6)]
    write_json(genome / "question_answers.json", [{"qas": asked}])
    write_json(genome / "image_data.json", [{"image_id": 4, "coco_id": 77}, {"image_id": 5, "coco_id": None}])
    ids = {"train": {"vqa": [1, 3, 1], "visual_genome": [4, 5]}, "dev": [2], "test": [3]}
    write_json(tmp_path / "ids.json", ids)
    done = convert("questions.py", "howmany", tmp_path / "ids.json", vqa, genome, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    files = official_files(tmp_path / "out")
    train, val = (read_records(one.questions, one.annotations) for one in files.values())
    assert [record.question_id for record in train] == [1, 3, -4, -5]
    assert [record.image_id for record in train[2:]] == ["77", "VG/5"]
    assert train[2].answers == ("12",)
    assert [record.question_id for record in val] == [2]
    assert (tmp_path / "out" / "test" / "v2_mscoco_val2014_annotations.json").exists()
