"""Balanced questions about simulated or annotated photos: each with a counterpart that has another answer.

The facts of a photo are all questions that have an answer there. Questions are drawn from them by family, and each is
also asked about another photo where the answer differs: these are the balanced pairs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

# Relative frequency and official answer type of each family of questions.
FAMILIES = {
    "count": (0.36, "number"),
    "count_attribute": (0.04, "number"),
    "digit": (0.06, "number"),
    "exists": (0.13, "yes/no"),
    "exists_attribute": (0.05, "yes/no"),
    "is_colour": (0.06, "yes/no"),
    "is_on": (0.06, "yes/no"),
    "colour": (0.11, "other"),
    "support": (0.07, "other"),
    "which": (0.07, "other"),
}
OTHER_WORDS_SHARE = 0.5
RARE_ANSWERS = {"0": 0.15}  # most kinds are absent from a photo, so that nearly all answers would be 0

Item = TypeVar("Item")
Words = tuple[tuple[str, str], ...]  # the placeholders of a wording, like {plural}, and their values


class Query(NamedTuple):
    """A possible question: a family and its words, and other words with the same meaning."""

    family: str
    words: Words
    other_words: tuple[Words, ...] = ()


Facts = Mapping[Query, str]  # of one photo: possible questions and their answers


@dataclass(frozen=True)
class SimulatedQuestion:
    """One question about one photo."""

    question_id: int
    image_id: int
    query: Query
    text: str
    truth: str


def ask(
    facts: Mapping[int, Facts], wordings: Mapping[str, Sequence[str]], per_photo: int, random: np.random.Generator
) -> tuple[list[SimulatedQuestion], list[tuple[int, int]]]:
    """Return questions about photos by their ids, in random order, and up to ``per_photo`` pairs of them a photo."""
    photos_by_answer: dict[Query, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for photo, known in facts.items():
        for query, answer in known.items():
            photos_by_answer[query][answer].append(photo)
    drawn: dict[tuple[int, Query, str], SimulatedQuestion] = {}
    numbers: dict[int, int] = defaultdict(int)

    def question_id_of(photo: int, query: Query, text: str) -> int:
        key = photo, query, text
        if key not in drawn:
            question_id = photo * 1000 + numbers[photo]
            numbers[photo] += 1
            drawn[key] = SimulatedQuestion(question_id, photo, query, text, facts[photo][query])
        return drawn[key].question_id

    pairs: set[tuple[int, int]] = set()
    for photo, known in facts.items():
        for query in _chosen(known, per_photo, random):
            others = [answer for answer in photos_by_answer[query] if answer != known[query]]
            if not others:
                continue
            answer = others[int(random.choice(len(others), p=_weights(photos_by_answer[query], others)))]
            counterpart = _one_of(photos_by_answer[query][answer], random)
            text = _one_of(wordings[query.family], random).format(**dict(_words(query, random)))
            first, second = sorted(question_id_of(one, query, text) for one in (photo, counterpart))
            pairs.add((first, second))
    questions = list(drawn.values())
    order = random.permutation(len(questions))
    return [questions[index] for index in order], sorted(pairs)


def _chosen(known: Facts, number: int, random: np.random.Generator) -> list[Query]:
    """Draw different questions: a family, then one of its answers, then a question with that answer."""
    by_family: dict[str, dict[str, list[Query]]] = defaultdict(lambda: defaultdict(list))
    for query, answer in known.items():
        by_family[query.family][answer].append(query)
    families = [family for family in FAMILIES if family in by_family]
    shares = np.array([FAMILIES[family][0] for family in families])
    chosen: list[Query] = []
    for _ in range(number):
        family = families[int(random.choice(len(families), p=shares / shares.sum()))]
        answers = list(by_family[family])
        weights = np.array([RARE_ANSWERS.get(answer, 1.0) for answer in answers])
        answer = answers[int(random.choice(len(answers), p=weights / weights.sum()))]
        query = _one_of(by_family[family][answer], random)
        if query not in chosen:
            chosen.append(query)
    return chosen


def _words(query: Query, random: np.random.Generator) -> Words:
    """Draw the words of a question: its own in half of the cases, else one of the others."""
    if query.other_words and random.random() < OTHER_WORDS_SHARE:
        return _one_of(query.other_words, random)
    return query.words


def _one_of(items: Sequence[Item], random: np.random.Generator) -> Item:
    return items[int(random.integers(len(items)))]


def _weights(photos: Mapping[str, Sequence[int]], answers: Sequence[str]) -> NDArray[np.float64]:
    """Return the probabilities of answers: by the number of photos that have them, except rare ones."""
    total = sum(len(photos[answer]) for answer in answers if answer not in RARE_ANSWERS) or 1
    weights = np.array([RARE_ANSWERS[one] * total if one in RARE_ANSWERS else len(photos[one]) for one in answers])
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares
