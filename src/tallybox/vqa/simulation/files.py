"""Simulated questions as official files, with the answers of ten people."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tallybox.files import atomic_writing
from tallybox.vqa.data.answers import NUMBER_WORDS
from tallybox.vqa.data.features import PhotoFeatures, write_tsv
from tallybox.vqa.data.questions import ANSWERS_PER_QUESTION
from tallybox.vqa.simulation.questions import FAMILIES, Facts, SimulatedQuestion, ask

FEATURES = "features.tsv"
YEARS = {"train": "train2014", "val": "val2014", "test": "test2015"}
TYPE_WORDS = 2  # leading words of a question that make its official question_type
OTHER_WORDS = 0.04  # share of answers like "two" for 2 or "a dog" for dog
WORD_OF = {number: word for word, number in NUMBER_WORDS.items() if word != "none"}


def write_split(
    folder: Path,
    split: str,
    facts: Mapping[int, Facts],
    wordings: Mapping[str, Sequence[str]],
    per_photo: int,
    random: np.random.Generator,
    *,
    disagreement: float = 0.0,
    description: str,
) -> int:
    """Ask about photos by their ids, write a split's files and return the number of questions; none, no files.

    A test split has questions only.
    """
    questions, pairs = ask(facts, wordings, per_photo, random)
    if not questions:
        return 0
    subtype = YEARS[split]
    common = {"info": {"description": description}, "data_type": "mscoco", "data_subtype": subtype}
    records = [{"image_id": one.image_id, "question": one.text, "question_id": one.question_id} for one in questions]
    content = {**common, "task_type": "Open-Ended", "questions": records}
    write_json(folder / f"v2_OpenEnded_mscoco_{subtype}_questions.json.gz", content)
    if split == "test":
        return len(questions)
    known: dict[str, dict[str, None]] = {}  # the answers of a family, in order
    for one in questions:
        known.setdefault(one.query.family, {})[one.truth] = None
    annotations = [_annotation(one, list(known[one.query.family]), disagreement, random) for one in questions]
    write_json(folder / f"v2_mscoco_{subtype}_annotations.json.gz", {**common, "annotations": annotations})
    write_json(folder / f"v2_mscoco_{subtype}_complementary_pairs.json", pairs)
    return len(questions)


def write_photos(
    folder: Path, photos: Iterable[PhotoFeatures], number: int, on_progress: Callable[[int, int], None]
) -> None:
    """Write the features of so many photos."""

    def reported() -> Iterator[PhotoFeatures]:
        for done, photo in enumerate(photos, start=1):
            yield photo
            on_progress(done, number)

    write_tsv(folder / FEATURES, reported())


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically, gzipped if the name ends in ``.gz``; the same content gives the same bytes."""
    text = msgspec.json.encode(content)
    with atomic_writing(path) as file:
        file.write(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def _annotation(
    one: SimulatedQuestion, known: Sequence[str], disagreement: float, random: np.random.Generator
) -> dict[str, Any]:
    answers = ten_answers(one.truth, near_misses(one.truth, known), disagreement, random)
    return {
        "question_id": one.question_id,
        "image_id": one.image_id,
        "question_type": " ".join(one.text.lower().split()[:TYPE_WORDS]),
        "answer_type": FAMILIES[one.query.family][1],
        "multiple_choice_answer": Counter(answers).most_common(1)[0][0],
        "answers": [
            {"answer": answer, "answer_confidence": "yes", "answer_id": number}
            for number, answer in enumerate(answers, start=1)
        ],
    }


def ten_answers(truth: str, alternatives: Sequence[str], disagreement: float, random: np.random.Generator) -> list[str]:
    """Return the answers of ten people; those who disagree give one of the alternatives.

    Without disagreement all answers are the same.

    >>> ten_answers("2", ["1", "3"], 0.0, np.random.default_rng(0)).count("2")
    10
    """
    if disagreement == 0:
        return [truth] * ANSWERS_PER_QUESTION
    answers = []
    for _ in range(ANSWERS_PER_QUESTION):
        answer = truth
        if alternatives and random.random() < disagreement:
            answer = alternatives[int(random.integers(len(alternatives)))]
        if random.random() < OTHER_WORDS and answer not in ("yes", "no"):
            answer = WORD_OF.get(answer, f"a {answer}")
        answers.append(answer)
    return answers


def near_misses(truth: str, known: Sequence[str]) -> list[str]:
    """Return plausible wrong answers: the numbers next to it, the other of yes and no, other known answers.

    >>> near_misses("3", []), near_misses("0", []), near_misses("yes", []), near_misses("red", ["red", "blue"])
    (['2', '4'], ['1'], ['no'], ['blue'])
    """
    if truth.isdigit():
        return [str(number) for number in (int(truth) - 1, int(truth) + 1) if number >= 0]
    if truth in ("yes", "no"):
        return ["no" if truth == "yes" else "yes"]
    return [answer for answer in known if answer != truth]
