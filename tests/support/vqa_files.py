"""Small sets of questions, answers and features, written as the official files."""

from pathlib import Path
from typing import Any

import numpy as np

from tallybox.vqa.data.store import PhotoFeatures, write_tsv
from tests.support.detection_sets import write_json


def question(question_id: int, image_id: int = 7, text: str = "How many dogs are there?") -> dict[str, Any]:
    return {"question_id": question_id, "image_id": image_id, "question": text}


def annotation(question_id: int, answers: list[str], image_id: int = 7, answer_type: str = "number") -> dict[str, Any]:
    ten = [
        {"answer": answer, "answer_confidence": "yes", "answer_id": place} for place, answer in enumerate(answers, 1)
    ]
    return {
        "question_id": question_id,
        "image_id": image_id,
        "answer_type": answer_type,
        "question_type": "how many",
        "multiple_choice_answer": answers[0] if answers else "",
        "answers": ten,
    }


def questions_file(path: Path, questions: list[dict[str, Any]]) -> Path:
    return write_json(path, {"info": {"a": [1]}, "task_type": "Open-Ended", "questions": questions, "license": {}})


def annotations_file(path: Path, annotations: list[dict[str, Any]]) -> Path:
    return write_json(path, {"info": {}, "annotations": annotations})


def small_photos(number: int, *, seed: int = 0, features: int = 6, first_id: int = 1) -> list[PhotoFeatures]:
    """Photos of one to nine proposals whose features survive half precision."""
    random = np.random.default_rng(seed)
    photos = []
    for image_id in range(first_id, first_id + number):
        proposals = int(random.integers(1, 10))
        corners = random.integers(0, 200, (proposals, 2, 2)).astype(np.float32)
        boxes = np.concatenate((corners.min(1), corners.max(1)), axis=1)
        values = random.integers(0, 1000, (proposals, features)).astype(np.float32) / 8
        photos.append(PhotoFeatures(str(image_id), (640, 480), boxes, values))
    return photos


def assert_same_photos(found: list[PhotoFeatures], expected: list[PhotoFeatures]) -> None:
    assert [(one.image_id, one.size_wh) for one in found] == [(one.image_id, one.size_wh) for one in expected]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.boxes_xyxy, other.boxes_xyxy)
        np.testing.assert_array_equal(one.features, other.features)


def small_set(folder: Path, photos: int = 40) -> Path:
    """A folder with the official files of three splits and features.tsv: two questions on each photo."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tsv(folder / "features.tsv", small_photos(photos))
    for split, share in (("train2014", range(1, photos // 2)), ("val2014", range(photos // 2, photos))):
        asked, answered = [], []
        for image_id in share:
            asked.append(question(image_id * 10, image_id, "How many dogs are there?"))
            answered.append(annotation(image_id * 10, [str(image_id % 3)] * 9 + ["two"], image_id))
            asked.append(question(image_id * 10 + 1, image_id, f"Is animal {image_id % 4} red?"))
            answered.append(annotation(image_id * 10 + 1, ["yes"] * 10, image_id, "yes/no"))
        questions_file(folder / f"v2_OpenEnded_mscoco_{split}_questions.json", asked)
        annotations_file(folder / f"v2_mscoco_{split}_annotations.json.gz", answered)
        pair = [[share[0] * 10, share[1] * 10]]
        write_json(folder / f"v2_mscoco_{split}_complementary_pairs.json", pair)
    questions_file(
        folder / "v2_OpenEnded_mscoco_test2015_questions.json.gz", [question(9, photos, "How many unicorns?")]
    )
    return folder
