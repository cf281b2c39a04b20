"""Which questions are asked about which photos: every one with a counterpart that has another answer.

Facts say what could be asked about a photo and what the answer would be. Questions are drawn from them by family, and
each is asked again about another photo where its answer differs: these are the balanced pairs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# How often a family is asked, where it can be; how its answers count officially.
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
RARELY = {"0": 0.15}  # far more kinds are absent than there; they would make up nearly all answers


Words = tuple[tuple[str, str], ...]  # what {plural} and the like of a wording stand for


class Query(NamedTuple):
    """Something that can be asked: a family and its words, or others that mean the same."""

    family: str
    words: Words
    other_words: tuple[Words, ...] = ()


Facts = Mapping[Query, str]  # of one photo: what can be asked, and the answer


@dataclass(frozen=True)
class Asked:
    """One question about one photo."""

    question_id: int
    image_id: int
    query: Query
    text: str
    truth: str

    @property
    def answer_type(self) -> str:
        """The official sort of its answer."""
        return FAMILIES[self.query.family][1]


def ask(
    image_ids: Sequence[int],
    facts: Sequence[Facts],
    wordings: Mapping[str, Sequence[str]],
    per_photo: int,
    random: np.random.Generator,
) -> tuple[list[Asked], list[tuple[int, int]]]:
    """Return questions in random order and the pairs among them, ``per_photo`` of both for each photo."""
    photos_by_answer: dict[Query, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for photo, known in enumerate(facts):
        for query, answer in known.items():
            photos_by_answer[query][answer].append(photo)
    asked: dict[tuple[int, Query, str], Asked] = {}
    numbers: dict[int, int] = defaultdict(int)

    def one(photo: int, query: Query, text: str) -> int:
        key = photo, query, text
        if key not in asked:
            question_id = image_ids[photo] * 1000 + numbers[photo]
            numbers[photo] += 1
            asked[key] = Asked(question_id, image_ids[photo], query, text, facts[photo][query])
        return asked[key].question_id

    pairs: set[tuple[int, int]] = set()
    for photo, known in enumerate(facts):
        for query in _chosen(known, per_photo, random):
            others = [answer for answer in photos_by_answer[query] if answer != known[query]]
            if not others:
                continue
            weights = _weights(photos_by_answer[query], others)
            answer = others[int(random.choice(len(others), p=weights))]
            there = photos_by_answer[query][answer]
            counterpart = there[int(random.integers(len(there)))]
            options = wordings[query.family]
            wording = options[int(random.integers(len(options)))]
            text = wording.format(**dict(_words(query, random)))
            first, second = sorted((one(photo, query, text), one(counterpart, query, text)))
            pairs.add((first, second))
    questions = list(asked.values())
    order = random.permutation(len(questions))
    return [questions[place] for place in order], sorted(pairs)


def _chosen(known: Facts, number: int, random: np.random.Generator) -> list[Query]:
    """Draw different questions: a family, then one of its answers, then what is asked."""
    by_family: dict[str, dict[str, list[Query]]] = defaultdict(lambda: defaultdict(list))
    for query, answer in known.items():
        by_family[query.family][answer].append(query)
    families = [family for family in FAMILIES if family in by_family]
    shares = np.array([FAMILIES[family][0] for family in families])
    chosen: list[Query] = []
    for _ in range(number):
        family = families[int(random.choice(len(families), p=shares / shares.sum()))]
        answers = list(by_family[family])
        weights = np.array([RARELY.get(answer, 1.0) for answer in answers])
        answer = answers[int(random.choice(len(answers), p=weights / weights.sum()))]
        query = by_family[family][answer][int(random.integers(len(by_family[family][answer])))]
        if query not in chosen:
            chosen.append(query)
    return chosen


def _words(query: Query, random: np.random.Generator) -> Words:
    """Draw the words of a question: half of the time its own, else one of the others."""
    if query.other_words and random.random() < OTHER_WORDS_SHARE:
        return query.other_words[int(random.integers(len(query.other_words)))]
    return query.words


def _weights(photos: Mapping[str, Sequence[int]], answers: Sequence[str]) -> NDArray[np.float64]:
    """Weigh answers by how many photos have them, but for those that would crowd out the others."""
    weights = np.array([0.0 if answer in RARELY else len(photos[answer]) for answer in answers])
    usual = weights.sum() or 1.0
    for place, answer in enumerate(answers):
        if answer in RARELY:
            weights[place] = RARELY[answer] * usual
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares
