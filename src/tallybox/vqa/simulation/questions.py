"""Balanced questions about simulated or annotated photos: each with a counterpart that has another answer.

The facts of a photo are all questions that have an answer there. Questions are drawn from them by family, and each is
also asked about another photo where the answer differs: these are the balanced pairs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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

    @property
    def answer_type(self) -> str:
        """The official type of its answer."""
        return FAMILIES[self.query.family][1]


def ask(
    image_ids: Sequence[int],
    facts: Sequence[Facts],
    wordings: Mapping[str, Sequence[str]],
    per_photo: int,
    random: np.random.Generator,
) -> tuple[list[SimulatedQuestion], list[tuple[int, int]]]:
    """Return questions in random order and their pairs, up to ``per_photo`` pairs for each photo."""
    photos_by_answer: dict[Query, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for photo, known in enumerate(facts):
        for query, answer in known.items():
            photos_by_answer[query][answer].append(photo)
    drawn: dict[tuple[int, Query, str], SimulatedQuestion] = {}
    numbers: dict[int, int] = defaultdict(int)

    def question_id_of(photo: int, query: Query, text: str) -> int:
        key = photo, query, text
        if key not in drawn:
            question_id = image_ids[photo] * 1000 + numbers[photo]
            numbers[photo] += 1
            drawn[key] = SimulatedQuestion(question_id, image_ids[photo], query, text, facts[photo][query])
        return drawn[key].question_id

    pairs: set[tuple[int, int]] = set()
    for photo, known in enumerate(facts):
        for query in _chosen(known, per_photo, random):
            others = [answer for answer in photos_by_answer[query] if answer != known[query]]
            if not others:
                continue
            weights = _weights(photos_by_answer[query], others)
            answer = others[int(random.choice(len(others), p=weights))]
            candidates = photos_by_answer[query][answer]
            counterpart = candidates[int(random.integers(len(candidates)))]
            options = wordings[query.family]
            wording = options[int(random.integers(len(options)))]
            text = wording.format(**dict(_words(query, random)))
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
        query = by_family[family][answer][int(random.integers(len(by_family[family][answer])))]
        if query not in chosen:
            chosen.append(query)
    return chosen


def _words(query: Query, random: np.random.Generator) -> Words:
    """Draw the words of a question: its own in half of the cases, else one of the others."""
    if query.other_words and random.random() < OTHER_WORDS_SHARE:
        return query.other_words[int(random.integers(len(query.other_words)))]
    return query.words


def _weights(photos: Mapping[str, Sequence[int]], answers: Sequence[str]) -> NDArray[np.float64]:
    """Return the probabilities of answers: by the number of photos that have them, except rare ones."""
    weights = np.array([0.0 if answer in RARE_ANSWERS else len(photos[answer]) for answer in answers])
    total = weights.sum() or 1.0
    for index, answer in enumerate(answers):
        if answer in RARE_ANSWERS:
            weights[index] = RARE_ANSWERS[answer] * total
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares
