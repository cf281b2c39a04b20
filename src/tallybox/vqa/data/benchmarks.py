"""The files of counting benchmarks: TallyQA, and HowMany-QA, which lists questions of VQA v2 and Visual Genome."""

import re
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

from tallybox.detections.coco import Int64, JsonRecord
from tallybox.errors import InputError
from tallybox.files import open_binary, read_json
from tallybox.vqa.data.answers import NUMBERS_TO_TWENTY
from tallybox.vqa.data.photo_ids import VISUAL_GENOME, photo_id
from tallybox.vqa.data.questions import QuestionRecord, check_unique, read_records

TALLYQA = "a file of TallyQA, a JSON array of questions with answers"
HOWMANY = "HowMany-QA's question_ids.json, with train (vqa, visual_genome), dev and test"
GENOME = "Visual Genome's question_answers.json"
GENOME_PHOTOS = "Visual Genome's image_data.json"
ANSWER_TYPE = "number"
WORD = re.compile(r"[a-z0-9]+")


class _TallyQuestion(JsonRecord):
    image: str
    answer: Int64
    question: str
    question_id: Int64
    issimple: bool | None = None  # is not in every release of the training part


class _HowManyTraining(JsonRecord):
    vqa: list[Int64]
    visual_genome: list[Int64]


class _HowManyFile(JsonRecord):
    train: _HowManyTraining
    dev: list[Int64]
    test: list[Int64]


class _GenomeAnswer(JsonRecord):
    qa_id: Int64
    image_id: Int64
    question: str
    answer: str


class _GenomePhoto(JsonRecord):
    qas: list[_GenomeAnswer]


class _GenomeImage(JsonRecord):
    image_id: Int64
    coco_id: Int64 | None = None


def is_tallyqa(path: Path) -> bool:
    """Return whether a JSON file is an array, as TallyQA's are; VQA's are objects."""
    with open_binary(path) as file:
        return file.read(256).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")


def read_tallyqa(path: Path) -> list[QuestionRecord]:
    """Return the questions of a ``train.json`` or ``test.json``, each with one answer; photos are COCO's or VG's.

    ``group`` says which questions are simple and which are complex, where the file says it.
    """
    questions = read_json(path, list[_TallyQuestion], TALLYQA)
    check_unique(path, questions)
    records = []
    for number, question in enumerate(questions):
        if question.answer < 0:
            raise InputError(f"{path}, record {number}: answer must be a count, but got {question.answer}")
        group = None if question.issimple is None else "simple" if question.issimple else "complex"
        asked = question.question_id, photo_id(question.image), question.question
        records.append(QuestionRecord(*asked, (str(question.answer),), ANSWER_TYPE, group=group))
    return records


def read_howmany(
    split: str, questions: Path, annotations: Path, ids: Path, genome: Path | None, genome_photos: Path | None
) -> list[QuestionRecord]:
    """Return HowMany-QA's part for ``train``, ``val`` (its dev) or ``test``, whose questions the file ``ids`` lists.

    Questions of VQA v2 have the ten answers of ``annotations``. Questions of Visual Genome, in training only, have one
    answer; their ids are negative, since both sources count from small numbers. ``genome_photos`` says which photos of
    Visual Genome are COCO's, with their numbers there.
    """
    parts = read_json(ids, _HowManyFile, HOWMANY)
    by_id = {record.question_id: record for record in read_records(questions, annotations)}
    if split != "train":
        return _records_at(ids, parts.dev if split == "val" else parts.test, by_id, questions)
    records = _records_at(ids, parts.train.vqa, by_id, questions)
    if genome is None:
        raise InputError(f"{ids} lists questions of Visual Genome for training, but there is no {GENOME} beside it")
    genome_ids = parts.train.visual_genome
    return records + _records_at(ids, genome_ids, _read_genome(genome, genome_photos, set(genome_ids)), genome)


def _read_genome(genome: Path, genome_photos: Path | None, question_ids: Container[int]) -> dict[int, QuestionRecord]:
    """Return the questions of Visual Genome that have one of the ids, by id."""
    coco_ids: dict[int, int | None] = {}
    if genome_photos is not None:
        images = read_json(genome_photos, list[_GenomeImage], GENOME_PHOTOS)
        coco_ids = {image.image_id: image.coco_id for image in images}
    by_id = {}
    for photo in read_json(genome, list[_GenomePhoto], GENOME):
        for qa in photo.qas:
            if qa.qa_id not in question_ids:
                continue
            count = count_in(qa.answer)
            if count is None:
                raise InputError(f"{genome}: the answer of {qa.qa_id} must be a count, but got {qa.answer!r}")
            coco_id = coco_ids.get(qa.image_id)
            image_id = f"{VISUAL_GENOME}/{qa.image_id}" if coco_id is None else str(coco_id)
            by_id[qa.qa_id] = QuestionRecord(-qa.qa_id, image_id, qa.question, (str(count),), ANSWER_TYPE)
    return by_id


def _records_at(
    ids: Path, question_ids: Iterable[int], by_id: Mapping[int, QuestionRecord], source: Path
) -> list[QuestionRecord]:
    """Return the records with the ids that the file ``ids`` lists, each once; all must be in the file ``source``."""
    different = list(dict.fromkeys(question_ids))
    missing = [question_id for question_id in different if question_id not in by_id]
    if missing:
        raise InputError(
            f"{ids} lists {len(missing)} questions that must be in {source}, but are not, among them {missing[0]}"
        )
    return [by_id[question_id] for question_id in different]


def count_in(answer: str) -> int | None:
    """Return the first number in an answer of Visual Genome, in digits or as a word up to twenty.

    >>> count_in("There are Twelve."), count_in("3 or 4."), count_in("Many.")
    (12, 3, None)
    """
    for word in WORD.findall(answer.lower()):
        if word.isdigit():
            return int(word)
        if word in NUMBERS_TO_TWENTY:
            return NUMBERS_TO_TWENTY.index(word)
    return None
