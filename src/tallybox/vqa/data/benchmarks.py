"""The files of counting benchmarks: TallyQA, and HowMany-QA, which lists questions of VQA v2 and Visual Genome."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

from tallybox.errors import InputError
from tallybox.files import open_binary
from tallybox.json_files import Int64, JsonRecord, read_json
from tallybox.vqa.data.photo_ids import VISUAL_GENOME, photo_id
from tallybox.vqa.data.questions import QuestionRecord, check_unique, read_records

TALLYQA = "a file of TallyQA, a JSON array of questions with answers"
HOWMANY = "HowMany-QA's question_ids.json, with train (vqa, visual_genome), dev and test"
GENOME = "Visual Genome's question_answers.json"
GENOME_PHOTOS = "Visual Genome's image_data.json"
ANSWER_TYPE = "number"
NUMBER_WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
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
    """Return the questions of a ``train.json`` or ``test.json``; the photo is that of ``image``, a file of COCO or VG.

    Each has one answer. ``group`` says which are simple and which complex, where the file says it.
    """
    listed = read_json(path, list[_TallyQuestion], TALLYQA)
    check_unique(path, listed)
    records = []
    for number, one in enumerate(listed):
        if one.answer < 0:
            raise InputError(f"{path}, record {number}: answer must be a count, but got {one.answer}")
        group = None if one.issimple is None else "simple" if one.issimple else "complex"
        asked = one.question_id, photo_id(one.image), one.question
        records.append(QuestionRecord(*asked, (str(one.answer),), ANSWER_TYPE, group=group))
    return records


def read_howmany(
    split: str, questions: Path, annotations: Path, ids: Path, genome: Path | None, genome_photos: Path | None
) -> list[QuestionRecord]:
    """Return HowMany-QA's part for ``train``, ``val`` (its dev) or ``test``, whose questions the file ``ids`` lists.

    Those of VQA v2 have the ten answers of ``annotations``. Those of Visual Genome, in training only, have one; their
    question ids are negative, since both sources count from small numbers. ``genome_photos`` says which of its photos
    are COCO's, with their numbers there.
    """
    listed = read_json(ids, _HowManyFile, HOWMANY)
    by_id = {record.question_id: record for record in read_records(questions, annotations)}
    if split != "train":
        return _listed(ids, listed.dev if split == "val" else listed.test, by_id, questions)
    records = _listed(ids, listed.train.vqa, by_id, questions)
    if genome is None:
        raise InputError(f"{ids} lists questions of Visual Genome for training, but there is no {GENOME} beside it")
    question_ids = listed.train.visual_genome
    return records + _listed(ids, question_ids, _read_genome(genome, genome_photos, set(question_ids)), genome)


def _read_genome(genome: Path, genome_photos: Path | None, wanted: Container[int]) -> dict[int, QuestionRecord]:
    coco_ids: dict[int, int | None] = {}
    if genome_photos is not None:
        images = read_json(genome_photos, list[_GenomeImage], GENOME_PHOTOS)
        coco_ids = {image.image_id: image.coco_id for image in images}
    by_id = {}
    for photo in read_json(genome, list[_GenomePhoto], GENOME):
        for one in photo.qas:
            if one.qa_id not in wanted:
                continue
            count = count_in(one.answer)
            if count is None:
                raise InputError(f"{genome}: the answer of {one.qa_id} must be a count, but got {one.answer!r}")
            coco_id = coco_ids.get(one.image_id)
            image_id = f"{VISUAL_GENOME}/{one.image_id}" if coco_id is None else str(coco_id)
            by_id[one.qa_id] = QuestionRecord(-one.qa_id, image_id, one.question, (str(count),), ANSWER_TYPE)
    return by_id


def _listed(
    ids: Path, question_ids: Iterable[int], by_id: Mapping[int, QuestionRecord], source: Path
) -> list[QuestionRecord]:
    chosen = list(dict.fromkeys(question_ids))
    missing = [question_id for question_id in chosen if question_id not in by_id]
    if missing:
        raise InputError(
            f"{ids} lists {len(missing)} questions that must be in {source}, but are not, among them {missing[0]}"
        )
    return [by_id[question_id] for question_id in chosen]


def count_in(answer: str) -> int | None:
    """Return the first number in an answer of Visual Genome, in digits or as a word up to twenty.

    >>> count_in("There are Twelve."), count_in("3 or 4."), count_in("Many.")
    (12, 3, None)
    """
    for word in WORD.findall(answer.lower()):
        if word.isdigit():
            return int(word)
        if word in NUMBER_WORDS:
            return NUMBER_WORDS.index(word)
    return None
