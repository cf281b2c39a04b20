"""The official VQA files: questions, annotations and complementary pairs, plain or gzipped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tallybox.errors import InputError
from tallybox.json_files import Int64, JsonRecord, read_json

QUESTIONS = "a file of VQA questions"
ANNOTATIONS = "a file of VQA annotations"
PAIRS = "a file of complementary pairs, a JSON array of pairs of question ids"
ANSWERS_PER_QUESTION = 10
COUNTING_WORDS = "how many"


class Question(JsonRecord):
    """One record of a questions file."""

    question_id: Int64
    image_id: Int64
    question: str


class Answer(JsonRecord):
    """What one person answered."""

    answer: str


class Annotation(JsonRecord):
    """One record of an annotations file."""

    question_id: Int64
    image_id: Int64
    answer_type: str
    answers: list[Answer]


class _QuestionsFile(JsonRecord):
    questions: list[Question]


class _AnnotationsFile(JsonRecord):
    annotations: list[Annotation]


_FILES: dict[type[JsonRecord], type[JsonRecord]] = {Question: _QuestionsFile, Annotation: _AnnotationsFile}


class Record(NamedTuple):
    """A question with all that scoring needs; a test split has neither answers nor answer types."""

    question_id: int
    image_id: int
    text: str
    answers: tuple[str, ...] | None
    answer_type: str | None

    @property
    def counts(self) -> bool:
        """Say whether it is a counting question: one that starts with "how many".

        >>> Record(1, 1, "How many dogs?", None, None).counts
        True
        """
        return self.text.lower().startswith(COUNTING_WORDS)


Kind = TypeVar("Kind", Question, Annotation)


def read_records(questions: Path, annotations: Path | None = None) -> list[Record]:
    """Return the questions of a split in the order of their file, with the ten answers where there are annotations."""
    asked = read_questions(questions)
    if annotations is None:
        return [Record(one.question_id, one.image_id, one.question, None, None) for one in asked]
    answered = {one.question_id: one for one in read_annotations(annotations)}
    records = []
    for number, one in enumerate(asked):
        place = f"{questions}, record {number}: question {one.question_id}"
        annotation = answered.pop(one.question_id, None)
        if annotation is None:
            raise InputError(f"{place} must have its answers in {annotations}, but has none there")
        if annotation.image_id != one.image_id:
            raise InputError(
                f"{place} must be about the same photo as in {annotations}, "
                f"but got {one.image_id} here and {annotation.image_id} there"
            )
        answers = tuple(given.answer for given in annotation.answers)
        records.append(Record(one.question_id, one.image_id, one.question, answers, annotation.answer_type))
    if answered:
        raise InputError(
            f"{annotations} must answer the questions of {questions} and no others, "
            f"but {len(answered)} of its questions are not there, among them {next(iter(answered))}"
        )
    return records


def read_questions(path: Path) -> list[Question]:
    """Return the records of a questions file; ids must differ, and a question must have words."""
    found = _records(path, QUESTIONS, "questions", Question)
    for number, one in enumerate(found):
        if not one.question.strip():
            raise InputError(f"{path}, record {number}: question must be a text, but got {one.question!r}")
    return found


def read_annotations(path: Path) -> list[Annotation]:
    """Return the records of an annotations file; ids must differ, and each has the answers of ten people."""
    found = _records(path, ANNOTATIONS, "annotations", Annotation)
    for number, one in enumerate(found):
        if len(one.answers) != ANSWERS_PER_QUESTION:
            raise InputError(
                f"{path}, record {number}: answers must be those of {ANSWERS_PER_QUESTION} people, "
                f"but got {len(one.answers)}"
            )
    return found


def read_pairs(path: Path) -> NDArray[np.int64]:
    """Return pairs of question ids, `[K, 2]`: the same question about two photos with different answers."""
    pairs = read_json(path, list[tuple[Int64, Int64]], PAIRS)
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def check_pairs(path: Path, pairs: NDArray[np.int64], records: Sequence[Record]) -> None:
    """Raise unless every pair is of two questions of the split."""
    known = {record.question_id for record in records}
    for number, (first, second) in enumerate(pairs.tolist()):
        for question_id in (first, second):
            if question_id not in known:
                raise InputError(
                    f"{path}, record {number}: question {question_id} must be among the {len(known)} questions "
                    "of its split, but is not; is the file of another split?"
                )


def _records(path: Path, what: str, key: str, kind: type[Kind]) -> list[Kind]:
    """Return the records of the array under ``key``; ids must differ."""
    records: list[Kind] = getattr(read_json(path, _FILES[kind], what), key)
    ids = set()
    for number, one in enumerate(records):
        if one.question_id in ids:
            raise InputError(
                f"{path}, record {number}: question ids must differ, but {one.question_id} was there before"
            )
        ids.add(one.question_id)
    return records
