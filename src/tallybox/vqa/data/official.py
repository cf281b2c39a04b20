"""The official VQA files: questions, annotations and complementary pairs, plain or gzipped."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallybox.detections.coco import Int64, JsonRecord
from tallybox.errors import InputError
from tallybox.files import read_json
from tallybox.vqa.data.photos import photo_id
from tallybox.vqa.data.questions import ANSWER_TYPES, QuestionRecord
from tallybox.vqa.data.splits import SPLITS

QUESTIONS = "a file of VQA questions"
ANNOTATIONS = "a file of VQA annotations"
PAIRS = "a file of complementary pairs, a JSON array of pairs of question ids"
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
    image_id: Int64 | str
    answer_type: str
    answers: list[_Answer]
    question_type: str | None = None  # how it begins, as the official files sort questions


class _QuestionsFile(JsonRecord):
    questions: list[_Question]


class _AnnotationsFile(JsonRecord):
    annotations: list[_Annotation]


@dataclass(frozen=True)
class SplitFiles:
    """The official files of a split; a test split has questions only."""

    questions: Path
    annotations: Path | None = None
    pairs: Path | None = None


def official_files(folder: Path) -> dict[str, SplitFiles]:
    """Find the official files of VQA v2 in a folder by their names."""
    if not folder.is_dir():
        raise InputError(f"No such folder: {folder}")
    found: dict[tuple[str, str], Path] = {}
    for path in sorted(folder.iterdir()):
        if match := OFFICIAL_NAME.fullmatch(path.name):
            split, role = match["split"], match["role"]
            if (earlier := found.setdefault((split, role), path)) != path:
                raise InputError(f"{folder} has two files of {split} {role}: {earlier.name} and {path.name}")
    if not found:
        raise InputError(
            f"{folder} has no files like v2_OpenEnded_mscoco_train2014_questions.json (or .json.gz); "
            "name your own files with --questions SPLIT=FILE"
        )
    return with_explicit_files({}, ((*key, path) for key, path in found.items()))


def with_explicit_files(
    splits: Mapping[str, SplitFiles], explicit: Iterable[tuple[str, str, Path]]
) -> dict[str, SplitFiles]:
    """Return the files of each split; ``explicit`` files (split, role, path) replace those of the same role."""
    paths = {split: {role: path for role, path in asdict(files).items() if path} for split, files in splits.items()}
    for split, role, path in explicit:
        if split not in SPLITS:
            raise InputError(f"split must be one of {', '.join(SPLITS)}, but got {split!r}")
        paths.setdefault(split, {})[role] = path
    for split, roles in paths.items():
        missing = [role for role in ("questions", "annotations") if role not in roles]
        if missing and not (missing == ["annotations"] and split.startswith("test")):
            raise InputError(f"Split {split} has no file of {missing[0]}.")
    return {split: SplitFiles(**paths[split]) for split in SPLITS if split in paths}


def read_records(questions: Path, annotations: Path | None = None) -> list[QuestionRecord]:
    """Return the questions of a split in the order of their file, with people's answers if there are annotations."""
    asked = read_questions(questions)
    if annotations is None:
        return [QuestionRecord(q.question_id, photo_id(q.image_id), q.question, None, None) for q in asked]
    by_id = {annotation.question_id: annotation for annotation in read_annotations(annotations)}
    records = []
    for number, question in enumerate(asked):
        question_id, image_id = question.question_id, photo_id(question.image_id)
        where = f"{questions}, record {number}: question {question_id}"
        annotation = by_id.pop(question_id, None)
        if annotation is None:
            raise InputError(f"{where} has no answers in {annotations}")
        if photo_id(annotation.image_id) != image_id:
            raise InputError(f"{where} is about photo {image_id}, but {annotations} says {annotation.image_id}")
        answers = tuple(answer.answer for answer in annotation.answers)
        types = annotation.answer_type, annotation.question_type
        records.append(QuestionRecord(question_id, image_id, question.question, answers, *types))
    if by_id:
        raise InputError(
            f"{annotations} answers {len(by_id)} questions that {questions} lacks, among them {next(iter(by_id))}"
        )
    return records


def read_questions(path: Path) -> list[_Question]:
    """Return the records of a questions file; ids must differ, and a question must have words."""
    questions = read_json(path, _QuestionsFile, QUESTIONS).questions
    check_unique(path, questions)
    for number, question in enumerate(questions):
        if not question.question.strip():
            raise InputError(f"{path}, record {number}: the question is empty")
    return questions


def read_annotations(path: Path) -> list[_Annotation]:
    """Return the records of an annotations file; ids must differ, and each has a type and at least one answer."""
    annotations = read_json(path, _AnnotationsFile, ANNOTATIONS).annotations
    check_unique(path, annotations)
    for number, annotation in enumerate(annotations):
        if not annotation.answers:
            raise InputError(f"{path}, record {number}: there are no answers")
        if annotation.answer_type not in ANSWER_TYPES:
            raise InputError(
                f"{path}, record {number}: answer_type must be one of {', '.join(ANSWER_TYPES)}, "
                f"but got {annotation.answer_type!r}"
            )
    return annotations


def read_pairs(path: Path) -> NDArray[np.int64]:
    """Return pairs of question ids, `[K, 2]`: the same question about two photos with different answers."""
    pairs = read_json(path, list[tuple[Int64, Int64]], PAIRS)
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def check_pairs(path: Path, pairs: NDArray[np.int64], records: Sequence[QuestionRecord]) -> None:
    """Raise unless every pair is of two questions of the split."""
    unknown = np.argwhere(~np.isin(pairs, [record.question_id for record in records]))
    if len(unknown):
        number, place = unknown[0]
        raise InputError(
            f"{path}, record {number}: question {pairs[number, place]} is not among the {len(records)} questions of "
            "its split"
        )


def check_unique(path: Path, records: Iterable[Any]) -> None:
    """Raise if two records have the same question id."""
    seen = set()
    for number, record in enumerate(records):
        if record.question_id in seen:
            raise InputError(f"{path}, record {number}: question {record.question_id} occurs twice")
        seen.add(record.question_id)
