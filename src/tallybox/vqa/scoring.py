"""VQA accuracy by the official rule, accuracy over balanced pairs, and errors of counts."""

import collections
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tallybox.errors import InputError
from tallybox.vqa.data.answers import normalise, on_one_line
from tallybox.vqa.data.questions import ANSWER_TYPES, ANSWERS_PER_QUESTION, QuestionRecord

KEYS = (*ANSWER_TYPES, "all", "count", "pair_number", "pair_count", "pair_all")
# The smallest and largest true count of each range; the last range overlaps two others.
TRUE_COUNTS = {
    "count_0": (0, 0),
    "count_1": (1, 1),
    "count_2_to_4": (2, 4),
    "count_5_or_more": (5, math.inf),
    "count_2_or_more": (2, math.inf),
}
COUNT_KEYS = (*TRUE_COUNTS, "count_mae", "count_rmse")
LARGEST_COUNT = 20  # HowMany-QA's; larger counts are taken as this one, so that no single answer makes half of an error
Pairs = NDArray[np.int64] | Sequence[Sequence[int]]  # [K, 2] question ids


def all_scores(
    predictions: Mapping[int, str], records: Sequence[QuestionRecord], pairs: Pairs = ()
) -> dict[str, float]:
    """Score an answer to every question of a split, see `Scorer`.

    >>> records = [QuestionRecord(k, str(k), "How many cats?", (str(k),) * 10, "number") for k in (1, 2)]
    >>> all_scores({1: "2", 2: "2"}, records, [(1, 2)])["count"]
    50.0
    """
    return Scorer(records, pairs).scores(predictions)


class Scorer:
    """Scores answers to the questions of a split. It compares people's answers once, for the answers of many models.

    Accuracies are in percent. A question counts under "all", under its answer type, and under "count" if it starts with
    "how many". A pair (``[K, 2]`` question ids) is right if both answers have the full accuracy of 1; it counts under
    "pair_all", and under "pair_number" and "pair_count" if both its questions are such questions.

    Counting questions whose true count is known have accuracies by true count, the mean absolute error ``count_mae``
    and the root of the mean squared one, ``count_rmse``. There an answer that is not a whole number is taken as 0, and
    one above 20 as 20, the largest count of the benchmarks. What no question counts under has no score.
    """

    def __init__(self, records: Sequence[QuestionRecord], pairs: Pairs = ()) -> None:
        for record in records:
            if record.answers is None or record.answer_type is None:
                raise InputError(f"Question {record.question_id} has no answers to score against, as in a test split.")
        self._rows = {record.question_id: row for row, record in enumerate(records)}
        self._accuracies = [accuracies_of(record.answers or ()) for record in records]
        types = np.array([record.answer_type for record in records])
        truths = np.array([math.nan if (count := true_count(record)) is None else count for record in records])
        self._kinds = {kind: types == kind for kind in ANSWER_TYPES}  # which questions count under each name
        self._kinds["all"] = np.ones(len(records), dtype=bool)
        self._kinds["count"] = np.array([record.counts for record in records], dtype=bool)
        self._kinds |= {name: (low <= truths) & (truths <= high) for name, (low, high) in TRUE_COUNTS.items()}
        self._pairs = np.array([[self._rows[one] for one in pair] for pair in pairs], np.int64).reshape(-1, 2)
        self._counted = np.flatnonzero(~np.isnan(truths))
        self._truths = np.minimum(truths[self._counted], LARGEST_COUNT)

    def scores(self, predictions: Mapping[int, str]) -> dict[str, float]:
        """Return the scores of one answer to every question, by `KEYS` and `COUNT_KEYS`."""
        if missing := self._rows.keys() - predictions.keys():
            raise InputError(f"{len(missing)} questions have no answer, among them {min(missing)}.")
        if unknown := predictions.keys() - self._rows.keys():
            raise InputError(f"{len(unknown)} answers are to unknown questions, among them {min(unknown)}.")
        answers = [predictions[question_id] for question_id in self._rows]
        compared = zip(answers, self._accuracies, strict=True)
        right = np.array([found.get(write(answer), 0.0) for answer, (write, found) in compared])
        both_right = (right == 1)[self._pairs].all(1).astype(float)
        said = [min(whole_number(answers[row]) or 0, LARGEST_COUNT) for row in self._counted.tolist()]
        errors = np.abs(said - self._truths)
        values = {name: 100 * right[chosen] for name, chosen in self._kinds.items()}
        for kind in ("number", "count", "all"):
            values[f"pair_{kind}"] = 100 * both_right[self._kinds[kind][self._pairs].all(1)]
        values |= {"count_mae": errors, "count_rmse": errors**2}
        means = {key: math.fsum(values[key]) / len(values[key]) for key in (*KEYS, *COUNT_KEYS) if len(values[key])}
        return {key: math.sqrt(mean) if key == "count_rmse" else mean for key, mean in means.items()}


def accuracy(prediction: str, answers: Sequence[str]) -> float:
    """Return the official accuracy of one answer: min(agreeing / 3, 1), averaged over leaving out each person.

    Both sides are normalised if the people differ; if all agree, the answers are compared as they are. Fewer or
    more than ten answers count as ten in the same proportions: with a single answer, only the same one is right.
    """
    as_compared, accuracies = accuracies_of(tuple(answers))
    return accuracies.get(as_compared(prediction), 0.0)


def accuracies_of(answers: tuple[str, ...]) -> tuple[Callable[[str], str], dict[str, float]]:
    """Return how a prediction is written for comparison, and the accuracy of each answer that someone gave."""
    as_compared = on_one_line if len(set(map(on_one_line, answers))) == 1 else normalise
    agreeing = collections.Counter(map(as_compared, answers))
    of_ten = {answer: ANSWERS_PER_QUESTION * number / len(answers) for answer, number in agreeing.items()}
    return as_compared, {answer: _accuracy(people) for answer, people in of_ten.items()}


@cache
def _accuracy(agreeing: float) -> float:
    """Return the accuracy of an answer with which so many of ten people agree."""
    # Without a person who agrees, agreeing - 1 remain; without one who does not, all of them remain.
    without_agreeing, without_differing = (min(1.0, remaining / 3) for remaining in (agreeing - 1, agreeing))
    differing = ANSWERS_PER_QUESTION - agreeing
    return (agreeing * without_agreeing + differing * without_differing) / ANSWERS_PER_QUESTION


def true_count(record: QuestionRecord) -> int | None:
    """Return the most frequent answer to a counting question, the first of equally frequent ones; None if no number."""
    if not record.counts or record.answers is None:
        return None
    return whole_number(collections.Counter(normalise(answer) for answer in record.answers).most_common(1)[0][0])


def whole_number(answer: str) -> int | None:
    """Return an answer as a whole number; None if it is not one."""
    plain = normalise(answer)
    return int(plain) if plain.isascii() and plain.isdigit() else None
