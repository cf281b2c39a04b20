"""The official VQA evaluation as a slow, literal loop: nine people at a time, one question after another."""

import itertools
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache

from tallybox.vqa.data.answers import CONTRACTIONS
from tallybox.vqa.data.questions import QuestionRecord

MARKS = ';/[]"{}()=+\\_-><@`,?!'
NUMBERS = dict(
    zip(
        ["none", "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"],
        ["0", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"],
        strict=True,
    )
)


@cache
def literal_normalise(answer: str) -> str:
    marked = answer
    for mark in MARKS:
        beside_space = re.search(re.escape(mark) + " | " + re.escape(mark), answer)
        if beside_space or re.search(r"(\d)(\,)(\d)", answer):
            marked = "".join(letter for letter in marked if letter != mark)
        else:
            marked = "".join(" " if letter == mark else letter for letter in marked)
    marked = re.sub(r"(?!<=\d)(\.)(?!\d)", "", marked, count=32)
    words = []
    for word in marked.lower().split():
        word = NUMBERS.get(word, word)
        if word not in ("a", "an", "the"):
            words.append(CONTRACTIONS.get(word, word))
    return " ".join(words)


def literal_accuracy(prediction: str, answers: Sequence[str]) -> Fraction:
    answers = [answer.replace("\n", " ").replace("\t", " ").strip() for answer in answers]
    prediction = prediction.replace("\n", " ").replace("\t", " ").strip()
    if any(answer != answers[0] for answer in answers):
        answers = [literal_normalise(answer) for answer in answers]
        prediction = literal_normalise(prediction)
    subsets = list(itertools.combinations(answers, len(answers) - 1))
    thirds = [min(nine.count(prediction), 3) for nine in subsets]
    return Fraction(sum(thirds), 3 * len(thirds))


def literal_scores(
    predictions: Mapping[int, str], records: Sequence[QuestionRecord], pairs: Sequence[Sequence[int]]
) -> dict[str, Fraction]:
    found: dict[str, list[Fraction]] = defaultdict(list)
    by_id = {record.question_id: record for record in records}
    accuracies = {}
    for record in records:
        assert record.answers is not None
        assert record.answer_type is not None
        right = literal_accuracy(predictions[record.question_id], record.answers)
        accuracies[record.question_id] = right
        found["all"].append(right)
        found[record.answer_type].append(right)
        if record.text.lower().startswith("how many"):
            found["count"].append(right)
    for first, second in pairs:
        both = Fraction(accuracies[first] == 1 and accuracies[second] == 1)
        found["pair_all"].append(both)
        if by_id[first].answer_type == by_id[second].answer_type == "number":
            found["pair_number"].append(both)
        if all(by_id[one].text.lower().startswith("how many") for one in (first, second)):
            found["pair_count"].append(both)
    return {key: 100 * sum(values, Fraction(0)) / len(values) for key, values in found.items()}
