"""VQA accuracy by the official rule, and accuracy over balanced pairs; sums until the very end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tallybox.errors import InputError
from tallybox.vqa.answers import normalise, on_one_line
from tallybox.vqa.questions import Record

ANSWER_TYPES = ("yes/no", "number", "other")
KEYS = (*ANSWER_TYPES, "all", "count", "pair_number", "pair_count", "pair_all")
FULL_MARKS_FROM = 3  # an answer that three of nine people gave


@dataclass(frozen=True)
class Scores(Mapping[str, float]):
    """Percentages by the names of `KEYS`; a sort of question that did not occur has none.

    What is kept are sums, so that scores of parts add up to the scores of the whole.

    >>> part = Scores({"all": 0.9, "count": 0.9}, {"all": 1, "count": 1}) + Scores({"all": 0.0}, {"all": 2})
    >>> {key: round(percent, 6) for key, percent in part.items()}
    {'all': 30.0, 'count': 90.0}
    """

    sums: Mapping[str, float] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)  # questions, or pairs

    def __getitem__(self, key: str) -> float:
        return 100 * self.sums[key] / self.numbers[key]

    def __iter__(self) -> Iterator[str]:
        return (key for key in KEYS if key in self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def __add__(self, other: Scores) -> Scores:
        keys = [key for key in KEYS if key in self.numbers or key in other.numbers]
        return Scores(
            {key: self.sums.get(key, 0.0) + other.sums.get(key, 0.0) for key in keys},
            {key: self.numbers.get(key, 0) + other.numbers.get(key, 0) for key in keys},
        )


def accuracy(prediction: str, answers: Sequence[str]) -> float:
    """Return the official accuracy of one answer: min(agreeing / 3, 1), averaged over leaving out each person.

    Both sides are normalised where the people differ; where all agree, the answers are compared as they are.

    >>> answers = ["two"] * 3 + ["3"] * 7
    >>> round(accuracy("2", answers), 6), accuracy("3", answers), accuracy("a 3", ["3"] * 10)
    (0.9, 1.0, 0.0)
    """
    prediction = on_one_line(prediction)
    answers = [on_one_line(answer) for answer in answers]
    if len(set(answers)) > 1:
        prediction = normalise(prediction)
        answers = [normalise(answer) for answer in answers]
    agreeing = answers.count(prediction)
    others = len(answers) - agreeing
    # Leaving out one who agrees leaves agreeing - 1; leaving out another leaves them all.
    marks = agreeing * min(1.0, (agreeing - 1) / FULL_MARKS_FROM) + others * min(1.0, agreeing / FULL_MARKS_FROM)
    return marks / len(answers)


def score(
    predictions: Mapping[int, str], records: Sequence[Record], pairs: NDArray[np.int64] | Sequence[Sequence[int]] = ()
) -> Scores:
    """Score an answer to every question of a split.

    A question counts under "all", under its answer type, and under "count" where it starts with "how many".
    A pair (`[K, 2]` question ids) is right where both answers have the full accuracy of 1; it counts under
    "pair_all", and under "pair_number" and "pair_count" where both its questions are such questions.

    >>> records = [Record(k, k, "How many cats?", (str(k),) * 10, "number") for k in (1, 2)]
    >>> dict(score({1: "2", 2: "2"}, records, [(1, 2)]))  # doctest: +NORMALIZE_WHITESPACE
    {'number': 50.0, 'all': 50.0, 'count': 50.0, 'pair_number': 0.0, 'pair_count': 0.0, 'pair_all': 0.0}
    """
    _check_same_questions(predictions, records)
    values: dict[str, list[float]] = {}
    accuracies: dict[int, float] = {}
    sorts: dict[int, set[str]] = {}
    for record in records:
        if record.answers is None or record.answer_type is None:
            raise InputError(
                f"question {record.question_id} must have answers to be scored, but has none; is it of a test split?"
            )
        accuracies[record.question_id] = accuracy(predictions[record.question_id], record.answers)
        sorts[record.question_id] = _sorts(record)
        for sort in sorts[record.question_id]:
            values.setdefault(sort, []).append(accuracies[record.question_id])
    for first, second in np.asarray(pairs, dtype=np.int64).reshape(-1, 2).tolist():
        shared = sorts[first] & sorts[second] & {"number", "count", "all"}
        for sort in shared:
            values.setdefault(f"pair_{sort}", []).append(float(accuracies[first] == 1 and accuracies[second] == 1))
    return Scores(
        {key: math.fsum(some) for key, some in values.items()}, {key: len(some) for key, some in values.items()}
    )


def _sorts(record: Record) -> set[str]:
    if record.answer_type not in ANSWER_TYPES:
        raise InputError(
            f"question {record.question_id}: answer_type must be one of {', '.join(ANSWER_TYPES)}, "
            f"but got {record.answer_type!r}"
        )
    return {"all", record.answer_type} | ({"count"} if record.counts else set())


def _check_same_questions(predictions: Mapping[int, str], records: Sequence[Record]) -> None:
    asked = {record.question_id for record in records}
    if missing := asked - predictions.keys():
        raise InputError(
            f"predictions must answer all {len(asked)} questions, but {len(missing)} have no answer, "
            f"among them {min(missing)}"
        )
    if unknown := predictions.keys() - asked:
        raise InputError(
            f"predictions must be of these {len(asked)} questions, but {len(unknown)} are of others, "
            f"among them {min(unknown)}; are they of another split?"
        )
