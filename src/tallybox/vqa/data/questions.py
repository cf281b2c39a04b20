"""The official VQA files: questions, annotations and complementary pairs, plain or gzipped."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallybox.detections.coco import Int64, JsonRecord
from tallybox.errors import InputError
from tallybox.files import read_json
from tallybox.vqa.data.photo_ids import photo_id

QUESTIONS = "a file of VQA questions"
ANNOTATIONS = "a file of VQA annotations"
PAIRS = "a file of complementary pairs, a JSON array of pairs of question ids"
ANSWERS_PER_QUESTION = 10  # in VQA v2
ANSWER_TYPES = ("yes/no", "number", "other")
COUNTING_WORDS = "how many"


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


class QuestionRecord(NamedTuple):
    """A question with everything that scoring needs; a test split has neither answers nor answer types."""

    question_id: int
    image_id: str  # as `photo_id` writes it
    text: str
    answers: tuple[str, ...] | None
    answer_type: str | None
    question_type: str | None = None
    group: str | None = None  # "simple" or "complex" in TallyQA, whose questions are scored apart

    @property
    def counts(self) -> bool:
        """Whether this is a counting question: one that starts with "how many", and all of TallyQA.

        >>> QuestionRecord(1, "1", "How many dogs?", None, None).counts
        True
        """
        return self.group is not None or self.text.lower().startswith(COUNTING_WORDS)


def read_records(questions: Path, annotations: Path | None = None) -> list[QuestionRecord]:
    """Return the questions of a split in the order of their file, with people's answers where there are annotations."""
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
            raise InputError(f"{where} must have its answers in {annotations}, but has none there")
        if photo_id(annotation.image_id) != image_id:
            raise InputError(
                f"{where} must be about the same photo as in {annotations}, "
                f"but got {question.image_id} here and {annotation.image_id} there"
            )
        answers = tuple(answer.answer for answer in annotation.answers)
        types = annotation.answer_type, annotation.question_type
        records.append(QuestionRecord(question_id, image_id, question.question, answers, *types))
    if by_id:
        raise InputError(
            f"{annotations} must answer the questions of {questions} and no others, "
            f"but {len(by_id)} of its questions are not there, among them {next(iter(by_id))}"
        )
    return records


def read_questions(path: Path) -> list[_Question]:
    """Return the records of a questions file; ids must differ, and a question must have words."""
    questions = read_json(path, _QuestionsFile, QUESTIONS).questions
    check_unique(path, questions)
    for number, question in enumerate(questions):
        if not question.question.strip():
            raise InputError(f"{path}, record {number}: question must be a text, but got {question.question!r}")
    return questions


def read_annotations(path: Path) -> list[_Annotation]:
    """Return the records of an annotations file; ids must differ, and each has a type and an answer, VQA v2's ten."""
    annotations = read_json(path, _AnnotationsFile, ANNOTATIONS).annotations
    check_unique(path, annotations)
    for number, annotation in enumerate(annotations):
        if not annotation.answers:
            raise InputError(f"{path}, record {number}: answers must be those of at least one person, but got none")
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
            f"{path}, record {number}: question {pairs[number, place]} must be among the {len(records)} questions "
            "of its split, but is not; is the file of another split?"
        )


def check_unique(path: Path, records: Iterable[Any]) -> None:
    """Raise where two records have the same question id."""
    seen = set()
    for number, record in enumerate(records):
        if record.question_id in seen:
            raise InputError(
                f"{path}, record {number}: question ids must differ, but {record.question_id} was there before"
            )
        seen.add(record.question_id)
