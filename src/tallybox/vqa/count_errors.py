"""How far answers to counting questions are off, and how often they are right by how much there is to count."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from tallybox.errors import InputError
from tallybox.vqa.answers import normalise
from tallybox.vqa.questions import Record
from tallybox.vqa.scoring import accuracy

# By name, the least and the most true count; the last overlaps two others.
TRUE_COUNTS = {
    "count_0": (0, 0),
    "count_1": (1, 1),
    "count_2_to_4": (2, 4),
    "count_5_or_more": (5, math.inf),
    "count_2_or_more": (2, math.inf),
}
MEAN_ERROR = "count_mae"
COUNT_KEYS = (*TRUE_COUNTS, MEAN_ERROR)


def count_errors(predictions: Mapping[int, str], records: Sequence[Record]) -> dict[str, float]:
    """Return the official accuracy in percent by true count, and the mean absolute error ``count_mae``, by name.

    Only counting questions with a true count take part; a range that does not occur has no entry. An answer that is
    not a whole number says 0 objects.

    >>> records = [Record(k, k, "How many cats?", (str(k),) * 10, "number") for k in (1, 2, 6)]
    >>> errors = count_errors({1: "1", 2: "yes", 6: "5"}, records)
    >>> errors["count_1"], errors["count_2_or_more"], errors["count_mae"]
    (100.0, 0.0, 1.0)
    """
    found: dict[str, list[float]] = {}
    for record in records:
        truth = true_count(record)
        if truth is None or record.answers is None:
            continue
        prediction = predictions[record.question_id]
        for name, (least, most) in TRUE_COUNTS.items():
            if least <= truth <= most:
                found.setdefault(name, []).append(100 * accuracy(prediction, record.answers))
        found.setdefault(MEAN_ERROR, []).append(abs((whole_number(prediction) or 0) - truth))
    return {name: math.fsum(found[name]) / len(found[name]) for name in COUNT_KEYS if name in found}


def true_count(record: Record) -> int | None:
    """Return what most people counted, of equally many the first; None where that is no number or nothing is counted.

    >>> true_count(Record(1, 1, "How many cats?", ("two", "2", "3", "many"), "number"))
    2
    """
    if not record.counts:
        return None
    if record.answers is None:
        raise InputError(f"question {record.question_id} must have answers, but has none; is it of a test split?")
    return whole_number(Counter(normalise(answer) for answer in record.answers).most_common(1)[0][0])


def whole_number(answer: str) -> int | None:
    """Return the number that an answer is, normalised; None where it is none.

    >>> whole_number("Two"), whole_number("many")
    (2, None)
    """
    plain = normalise(answer)
    return int(plain) if plain.isascii() and plain.isdigit() else None
