"""Ten people answer a question: mostly the truth, now and then a near miss, not always in the same words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tallybox.vqa.answers import NUMBER_WORDS
from tallybox.vqa.questions import ANSWERS_PER_QUESTION

OTHER_WORDS = 0.04  # how often a person writes "two" for 2 or "a dog" for dog
WORD_OF = {number: word for word, number in NUMBER_WORDS.items() if word != "none"}


def ten_answers(truth: str, alternatives: Sequence[str], disagreement: float, random: np.random.Generator) -> list[str]:
    """Return what ten people answer; who disagrees gives one of the alternatives.

    Without disagreement all say the same.

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
    """Return what somebody might say instead: the numbers beside it, the other of yes and no, another known answer.

    >>> near_misses("3", []), near_misses("0", []), near_misses("yes", []), near_misses("red", ["red", "blue"])
    (['2', '4'], ['1'], ['no'], ['blue'])
    """
    if truth.isdigit():
        return [str(number) for number in (int(truth) - 1, int(truth) + 1) if number >= 0]
    if truth in ("yes", "no"):
        return ["no" if truth == "yes" else "yes"]
    return [answer for answer in known if answer != truth]
