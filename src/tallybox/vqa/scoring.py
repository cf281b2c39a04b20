"""VQA accuracy by the official rule, accuracy over balanced pairs, and errors of counts."""

import collections
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tallybox.errors import InputError
from tallybox.vqa.data.answers import normalise, on_one_line
from tallybox.vqa.data.questions import ANSWER_TYPES, ANSWERS_PER_QUESTION, QuestionRecord

KEYS = (*ANSWER_TYPES, "all", "count", "pair_number", "pair_count", "pair_all")
AGREEING_FOR_FULL_ACCURACY = 3  # people of nine
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
    """Return the scores of a split's answers by `KEYS`, and how well they count by `COUNT_KEYS`."""
    return score(predictions, records, pairs) | count_errors(predictions, records)


def accuracy(prediction: str, answers: Sequence[str]) -> float:
    """Return the official accuracy of one answer: min(agreeing / 3, 1), averaged over leaving out each person.

    Both sides are normalised if the people differ; if all agree, the answers are compared as they are. Fewer or
    more than ten answers count as ten in the same proportions: with a single answer, only the same one is right.

    >>> answers = ["two"] * 3 + ["3"] * 7
    >>> round(accuracy("2", answers), 6), accuracy("3", answers), accuracy("a 3", ["3"] * 10)
    (0.9, 1.0, 0.0)
    """
    prediction, *answers = [on_one_line(answer) for answer in (prediction, *answers)]
    if len(set(answers)) > 1:
        prediction, *answers = [normalise(answer) for answer in (prediction, *answers)]
    agreeing = ANSWERS_PER_QUESTION * answers.count(prediction) / len(answers)
    # Without a person who agrees, agreeing - 1 remain; without one who does not, all of them remain.
    without_agreeing, without_differing = (
        min(1.0, number / AGREEING_FOR_FULL_ACCURACY) for number in (agreeing - 1, agreeing)
    )
    differing = ANSWERS_PER_QUESTION - agreeing
    return (agreeing * without_agreeing + differing * without_differing) / ANSWERS_PER_QUESTION


def score(predictions: Mapping[int, str], records: Sequence[QuestionRecord], pairs: Pairs = ()) -> dict[str, float]:
    """Score an answer to every question of a split, in percent; a kind of question that does not occur has no entry.

    A question counts under "all", under its answer type, and under "count" where it starts with "how many".
    A pair (`[K, 2]` question ids) is right where both answers have the full accuracy of 1; it counts under
    "pair_all", and under "pair_number" and "pair_count" where both its questions are such questions.

    >>> records = [QuestionRecord(k, str(k), "How many cats?", (str(k),) * 10, "number") for k in (1, 2)]
    >>> score({1: "2", 2: "2"}, records, [(1, 2)])  # doctest: +NORMALIZE_WHITESPACE
    {'number': 50.0, 'all': 50.0, 'count': 50.0, 'pair_number': 0.0, 'pair_count': 0.0, 'pair_all': 0.0}
    """
    expected = {record.question_id for record in records}
    if missing := expected - predictions.keys():
        raise InputError(f"{len(missing)} of {len(expected)} questions have no answer, among them {min(missing)}.")
    if unknown := predictions.keys() - expected:
        raise InputError(f"{len(unknown)} answers are to unknown questions, among them {min(unknown)}.")
    values: dict[str, list[float]] = defaultdict(list)
    accuracies: dict[int, float] = {}
    kinds: dict[int, set[str]] = {}
    for record in records:
        key, answer_type = record.question_id, record.answer_type
        if record.answers is None or answer_type is None:
            raise InputError(f"Question {key} has no answers to score against.")
        accuracies[key] = accuracy(predictions[key], record.answers)
        kinds[key] = {"all", answer_type, "count"} if record.counts else {"all", answer_type}
        for kind in kinds[key]:
            values[kind].append(accuracies[key])
    for first, second in np.asarray(pairs, dtype=np.int64).reshape(-1, 2).tolist():
        for kind in kinds[first] & kinds[second] & {"number", "count", "all"}:
            values[f"pair_{kind}"].append(float(accuracies[first] == 1 and accuracies[second] == 1))
    return {key: 100 * math.fsum(values[key]) / len(values[key]) for key in KEYS if key in values}


def count_errors(predictions: Mapping[int, str], records: Sequence[QuestionRecord]) -> dict[str, float]:
    """Return the official accuracy in percent by true count, and the errors of counts, by name.

    ``count_mae`` is the mean absolute error, ``count_rmse`` the root of the mean squared one. Only counting questions
    with a true count are included. An answer that is not a whole number is taken as 0, and one above 20 as 20, the
    largest count of the benchmarks.

    >>> records = [QuestionRecord(k, str(k), "How many cats?", (str(k),) * 10, "number") for k in (1, 2, 6)]
    >>> errors = count_errors({1: "1", 2: "yes", 6: "5"}, records)
    >>> errors["count_1"], errors["count_2_or_more"], errors["count_mae"]
    (100.0, 0.0, 1.0)
    """
    values: dict[str, list[float]] = defaultdict(list)
    for record in records:
        truth = true_count(record)
        if truth is None or record.answers is None:
            continue
        prediction = predictions[record.question_id]
        for name, (low, high) in TRUE_COUNTS.items():
            if low <= truth <= high:
                values[name].append(100 * accuracy(prediction, record.answers))
        error = abs(min(whole_number(prediction) or 0, LARGEST_COUNT) - min(truth, LARGEST_COUNT))
        values["count_mae"].append(error)
        values["count_rmse"].append(error**2)
    means = {name: math.fsum(values[name]) / len(values[name]) for name in COUNT_KEYS if name in values}
    return {name: math.sqrt(mean) if "rmse" in name else mean for name, mean in means.items()}


def true_count(record: QuestionRecord) -> int | None:
    """Return the most frequent answer to a counting question, the first of equally frequent ones; None if no number.

    >>> true_count(QuestionRecord(1, "1", "How many cats?", ("two", "2", "3", "many"), "number"))
    2
    """
    if not record.counts or record.answers is None:
        return None
    return whole_number(collections.Counter(normalise(answer) for answer in record.answers).most_common(1)[0][0])


def whole_number(answer: str) -> int | None:
    """Return a normalised answer as a whole number; None if it is not one.

    >>> whole_number("Two"), whole_number("many")
    (2, None)
    """
    plain = normalise(answer)
    return int(plain) if plain.isascii() and plain.isdigit() else None
