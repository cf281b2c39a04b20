"""Questions that a count answers: how many there are of a category, whether there are any, and what presumes some.

They are answered from the distribution that `tallybox count` shows, with other odds that there are any: people ask
about what they see. Every such question about a category has the answer that follows from one number: what `count`
counts, or where it counts none, the median of the distribution with those odds.
Legend: K + 1 counts, the last of which is "K or more"; R regions.
"""

import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallybox.detections.category_names import COCO_CATEGORIES, COCO_CATEGORY_IDS
from tallybox.detections.category_words import plural
from tallybox.estimator.prediction import CountPrediction, medians_of
from tallybox.vqa.data.category_words import KINDS, CategoryWords
from tallybox.vqa.data.vocabulary import question_words

# The log-odds that there are any where somebody asks: a constant, plus these multiples of the log-odds that `count`
# gives and of those of the best score. Fitted to held-out training photos (research/ask_category_questions.py).
ASKED_LOG_ODDS, PER_COUNTED, PER_SCORE = 5.0, 0.5, 1.1
CERTAINTY = (0.001, 0.999)  # probabilities and scores outside are taken as these

# Words that leave open no other question than how many there are, or whether there are any.
EMPTY_WORDS = frozenset(
    question_words(
        "a all altogether an any are at be can contain contains could do does exactly have has here how i image in is "
        "just many of on only pair pairs photo picture scene see seen shot show showing shown shows some that the "
        "there this total visible we you"
    )
)
EXISTENCE_WORDS = frozenset(
    ("any", "contain", "contains", "has", "have", "see", "seen", "show", "shows", "there", "visible")
)
YES_NO_WORDS = ("any", "are", "can", "do", "does", "is")
NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
# Words before a number, and what they ask of a count.
COMPARISONS: dict[tuple[str, ...], Callable[[int, int], bool]] = {
    ("more", "than"): operator.gt,
    ("over",): operator.gt,
    ("fewer", "than"): operator.lt,
    ("less", "than"): operator.lt,
    ("at", "least"): operator.ge,
    ("at", "most"): operator.le,
    (): operator.eq,
}


class CategoryQuestion(NamedTuple):
    """A question that names one category, or several by one word."""

    kind: Literal["how many", "how many of them", "whether", "about"]
    category_ids: frozenset[int]
    word: str  # for the category, as the question has it
    holds: Callable[[int], bool] | None = None  # of "whether": whether a count makes the answer yes

    @property
    def kept_together(self) -> str | None:
        """What all things of the category are called, where the question names a kind that a detector does not know.

        >>> read_category_question("How many men are there?").kept_together
        'people'
        """
        for category, kinds in KINDS.items():
            if self.word in {*kinds, *map(plural, kinds)}:
                return plural(category)
        return None

    def best_score(self, scores: NDArray[np.floating]) -> float:
        """Return the best score of any region for one of the categories, from ``scores [R, 80]``; 0 without regions."""
        return float(
            scores[:, [COCO_CATEGORY_IDS.index(category_id) for category_id in self.category_ids]].max(initial=0)
        )


class CountedAnswer(NamedTuple):
    """Answers that come from a distribution of counts, the answer first; none where the model is to answer."""

    question: CategoryQuestion
    answers: tuple[tuple[str, float], ...]
    number: int  # how many there are: yes and no follow from it too
    predictions: tuple[CountPrediction, ...]  # what `tallybox count` shows of the question's categories


@cache
def _words() -> CategoryWords:
    return CategoryWords.of(COCO_CATEGORIES)


def read_category_question(text: str) -> CategoryQuestion | None:
    """Return what a question wants to know of a category's count; None where it names no category, or two.

    >>> [read_category_question(text).kind for text in ("How many men are there?", "Are there any cars here?")]
    ['how many', 'whether']
    >>> [read_category_question(text).kind for text in ("How many men wear hats?", "What is the man doing?")]
    ['how many of them', 'about']
    >>> [read_category_question("Are there more than two dogs?").holds(count) for count in range(5)]
    [False, False, False, True, True]
    """
    words = question_words(text)
    spans = _words().spans(words)
    if len({categories for categories, _, _ in spans}) != 1:
        return None
    categories, start, stop = spans[0]
    word = " ".join(words[start:stop])
    others = [*words[:start], *words[stop:]] if len(spans) == 1 else words
    if others[:2] == ["how", "many"]:
        return CategoryQuestion("how many" if EMPTY_WORDS.issuperset(others) else "how many of them", categories, word)
    is_whether = others[:1] and others[0] in YES_NO_WORDS and EXISTENCE_WORDS.intersection(others)
    if is_whether and (holds := _comparison(others)) is not None:
        return CategoryQuestion("whether", categories, word, holds)
    return CategoryQuestion("about", categories, word)


def answer_from_counts(
    question: CategoryQuestion, predictions: Sequence[CountPrediction], best_score: float
) -> CountedAnswer:
    """Answer a question from the predictions of its categories and its `best_score`."""
    usual = sum_distribution([prediction.probabilities for prediction in predictions])
    probabilities = asked_distribution(usual, best_score)
    count = predictions[0].count if len(predictions) == 1 else int(medians_of(usual[None])[0])
    number = count or int(medians_of(probabilities[None])[0])
    answers: tuple[tuple[str, float], ...] = ()
    if question.kind == "how many":
        answers = _numbers(probabilities, number)
    elif question.holds is not None:
        # "K or more" has one probability: it stands for the number of the answer, or for K.
        counts = [*range(len(usual) - 1), max(number, len(usual) - 1)]
        yes = float(probabilities[[question.holds(count) for count in counts]].sum())
        answers = (("yes", yes), ("no", 1 - yes))
        if not question.holds(number):
            answers = answers[::-1]
    elif number == 0:
        none = "0" if question.kind == "how many of them" else f"no {question.word}"
        answers = ((none, float(probabilities[0])),)
    return CountedAnswer(question, answers, number, tuple(predictions))


def asked_distribution(usual: NDArray[np.float64], best_score: float) -> NDArray[np.float64]:
    """Return the distribution ``[K + 1]`` where somebody asks: other odds that there are any, the rest as ``usual``.

    >>> [asked_distribution(np.array([0.97, 0.02, 0.01]), score).round(2).tolist() for score in (0.02, 0.2)]
    [[0.73, 0.18, 0.09], [0.15, 0.57, 0.28]]
    """
    probabilities = np.clip((1 - usual[0], best_score), *CERTAINTY)
    counted, score = np.log(probabilities / (1 - probabilities))
    odds = np.exp(ASKED_LOG_ODDS + (PER_COUNTED - 1) * counted + PER_SCORE * score)
    asked: NDArray[np.float64] = usual * np.append(1, np.full(len(usual) - 1, odds))
    return asked / float(asked.sum())


def sum_distribution(distributions: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the distribution ``[K + 1]`` of a sum of independent counts; the last is "K or more".

    >>> sum_distribution([np.array([0.5, 0.5, 0.0]), np.array([0.0, 1.0, 0.0])]).tolist()
    [0.0, 0.5, 0.5]
    """
    total = distributions[0]
    for distribution in distributions[1:]:
        last = len(total) - 1
        whole = np.convolve(total, distribution)
        total = np.append(whole[:last], whole[last:].sum())
    return total


def _numbers(probabilities: NDArray[np.float64], count: int) -> tuple[tuple[str, float], ...]:
    """Return the counts with their probabilities: the answer first, then by probability."""
    last = len(probabilities) - 1
    answer = min(count, last)
    by_probability = np.argsort(-probabilities, kind="stable").tolist()
    names = [*map(str, range(last)), str(count) if answer == last else f"{last} or more"]
    numbers = [answer, *(number for number in by_probability if number != answer)]
    return tuple((names[number], float(probabilities[number])) for number in numbers)


def _comparison(words: Sequence[str]) -> Callable[[int], bool] | None:
    """Return whether a count makes the answer yes, from the words besides the category's; None where they ask more."""
    numbers = [index for index, word in enumerate(words) if word in NUMBERS or word.isdecimal()]
    if not numbers:
        return (lambda count: count > 0) if EMPTY_WORDS.issuperset(words) else None
    index = numbers[0]
    comparison = next(before for before in COMPARISONS if tuple(words[index - len(before) : index]) == before)
    others = [*words[: index - len(comparison)], *words[index + 1 :]]
    if len(numbers) > 1 or not EMPTY_WORDS.issuperset(others):
        return None
    number = NUMBERS[words[index]] if words[index] in NUMBERS else int(words[index][:6])
    return lambda count: COMPARISONS[comparison](count, number)
