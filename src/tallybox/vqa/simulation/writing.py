"""Questions, answers and pairs as the official files have them."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tallybox.vqa.simulation.asking import Asked
from tallybox.vqa.simulation.people import near_misses, ten_answers

YEARS = {"train": "train2014", "val": "val2014", "test": "test2015"}
LEADING_WORDS = 2  # what the official files call a question's type


def write_split(
    folder: Path,
    split: str,
    questions: Sequence[Asked],
    pairs: Sequence[tuple[int, int]],
    *,
    disagreement: float,
    random: np.random.Generator,
    description: str,
) -> None:
    """Write a split's files; a test split has questions only."""
    subtype = YEARS[split]
    common = {"info": {"description": description}, "data_type": "mscoco", "data_subtype": subtype}
    records = [{"image_id": one.image_id, "question": one.text, "question_id": one.question_id} for one in questions]
    asked = {**common, "task_type": "Open-Ended", "questions": records}
    write_json(folder / f"v2_OpenEnded_mscoco_{subtype}_questions.json.gz", asked)
    if split == "test":
        return
    known: dict[str, list[str]] = {}
    for one in questions:
        known.setdefault(one.query.family, [])
        if one.truth not in known[one.query.family]:
            known[one.query.family].append(one.truth)
    answered = [_annotation(one, known, disagreement, random) for one in questions]
    write_json(folder / f"v2_mscoco_{subtype}_annotations.json.gz", {**common, "annotations": answered})
    write_json(folder / f"v2_mscoco_{subtype}_complementary_pairs.json", [list(pair) for pair in pairs])


def write_json(path: Path, content: Any) -> None:
    """Write JSON, gzipped by its name, so that it is there whole or not at all and always the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = msgspec.json.encode(content)
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    unfinished.replace(path)


def _annotation(
    one: Asked, known: Mapping[str, Sequence[str]], disagreement: float, random: np.random.Generator
) -> dict[str, Any]:
    answers = ten_answers(one.truth, near_misses(one.truth, known[one.query.family]), disagreement, random)
    return {
        "question_id": one.question_id,
        "image_id": one.image_id,
        "question_type": " ".join(one.text.lower().split()[:LEADING_WORDS]),
        "answer_type": one.answer_type,
        "multiple_choice_answer": Counter(answers).most_common(1)[0][0],
        "answers": [
            {"answer": answer, "answer_confidence": "yes", "answer_id": number}
            for number, answer in enumerate(answers, start=1)
        ],
    }
