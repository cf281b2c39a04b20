"""The official VQA files: questions, annotations and complementary pairs, plain or gzipped."""

import collections
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallybox.detections.coco import Int64, JsonRecord
from tallybox.errors import InputError
from tallybox.files import read_json
from tallybox.vqa.data.questions import ANSWER_TYPES, SPLITS, QuestionRecord
from tallybox.vqa.data.store import photo_id

# The official names, with or without the version: v2_OpenEnded_mscoco_train2014_questions.json, gzipped or not.
OFFICIAL_NAME = re.compile(
    r"(?:v\d_)?(?:OpenEnded_)?(?:mscoco|abstract_v\d+)_(?P<split>train|val|test-dev|test)\d{4}_"
    r"(?:complementary_(?=pairs))?(?P<role>questions|annotations|pairs)\.json(?:\.gz)?"
)


class _Question(JsonRecord):
    question_id: Int64
    image_id: Int64 | str
    question: str


class _Answer(JsonRecord):
    answer: str


class _Annotation(JsonRecord):
    question_id: Int64
    answer_type: str
    answers: list[_Answer]
    question_type: str | None = None  # how it begins, as the official files sort questions


class _QuestionsFile(JsonRecord):
    questions: list[_Question]


class _AnnotationsFile(JsonRecord):
    annotations: list[_Annotation]


class SplitFiles(NamedTuple):
    """The official files of a split; a test split has questions only."""

    questions: Path
    annotations: Path | None = None
    pairs: Path | None = None


def official_files(folder: Path) -> dict[str, SplitFiles]:
    """Find the official files of VQA v2 in a folder by their names."""
    if not folder.is_dir():
        raise InputError(f"No such folder: {folder}")
    found: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.iterdir()):
        if match := OFFICIAL_NAME.fullmatch(path.name):
            split, role = match["split"], match["role"]
            if (earlier := found.setdefault(split, {}).setdefault(role, path)) != path:
                raise InputError(f"{folder} has two files of {split} {role}: {earlier.name} and {path.name}")
    if not found:
        raise InputError(f"{folder} has no files like v2_OpenEnded_mscoco_train2014_questions.json (or .json.gz)")
    for split, files in found.items():
        needed = {"questions"} if split.startswith("test") else {"questions", "annotations"}
        if missing := needed - files.keys():
            raise InputError(f"{folder} has no file of {split} {min(missing)}")
    return {split: SplitFiles(**found[split]) for split in SPLITS if split in found}


def read_records(questions: Path, annotations: Path | None = None) -> list[QuestionRecord]:
    """Return the questions of a split in the order of their file, with people's answers if there are annotations."""
    asked = read_questions(questions)
    if annotations is None:
        return [QuestionRecord(q.question_id, photo_id(q.image_id), q.question, None, None) for q in asked]
    annotated = read_json(annotations, _AnnotationsFile, "a file of VQA annotations").annotations
    by_id = {one.question_id: one for one in annotated}
    records = []
    for q in asked:
        found = by_id.get(q.question_id)
        if found is None or not found.answers or found.answer_type not in ANSWER_TYPES:
            wanted = f"answers with an answer_type of {', '.join(ANSWER_TYPES)}"
            raise InputError(f"{questions}: question {q.question_id} needs {wanted} in {annotations}")
        answers = tuple(answer.answer for answer in found.answers)
        types = found.answer_type, found.question_type
        records.append(QuestionRecord(q.question_id, photo_id(q.image_id), q.question, answers, *types))
    return records


def read_questions(path: Path) -> list[_Question]:
    """Return the records of a questions file; ids must differ."""
    questions = read_json(path, _QuestionsFile, "a file of VQA questions").questions
    if not questions:
        raise InputError(f"{path} has no questions.")
    (question_id, times), *_ = collections.Counter(question.question_id for question in questions).most_common(1)
    if times > 1:
        raise InputError(f"{path}: question {question_id} occurs {times} times")
    return questions


def read_pairs(path: Path) -> NDArray[np.int64]:
    """Return pairs of question ids, `[K, 2]`: the same question about two photos with different answers."""
    pairs = read_json(path, list[tuple[Int64, Int64]], "a JSON array of complementary pairs of question ids")
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)
