"""What of a question a model can read: its words, and which of them it never saw."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import NamedTuple

from tallybox.errors import InputError
from tallybox.vqa.data.vocabulary import Vocabulary, question_words

MOST_WORDS = 40  # the longest question that the shipped model learned from has 17
MOST_NAMED = 8  # words in a message
MOST_LETTERS = 30  # of a word there
CLOSE = 0.8  # how alike a known word must be to be offered for an unknown one


class ReadQuestion(NamedTuple):
    """A question as a model reads it."""

    text: str
    places: list[int]  # of its words in the vocabulary, 0 for those that it does not hold
    unknown: tuple[str, ...]  # as they were written, each once


def read_question(question: str, vocabulary: Vocabulary) -> ReadQuestion:
    """Read a question, and refuse one of which no word is known.

    >>> vocabulary = Vocabulary(("how", "many", "dogs"), ("1",))
    >>> read_question("How many zebus?", vocabulary)
    ReadQuestion(text='How many zebus?', places=[1, 2, 0], unknown=('zebus',))
    """
    text = " ".join(_printable(word) for word in question.split())  # line ends and tabs part words as spaces do
    words = [word for word in text.split() if any(map(str.isalnum, word))]
    if not words:
        raise InputError(f"QUESTION must be in words, but got {quoted(question)}; try 'How many people are there?'")
    if len(words) > MOST_WORDS:
        raise InputError(f"QUESTION must have at most {MOST_WORDS} words, but got {len(words)}; ask for one thing")
    known = frozenset(vocabulary.words)
    unknown = tuple(dict.fromkeys(_without_marks(word) for word in words if "".join(question_words(word)) not in known))
    places = vocabulary.encode_question(text)
    if not any(places):
        raise InputError(
            "QUESTION must have words that the model learned from, "
            f"but it does not know {named_words(unknown, vocabulary)}; ask in English about what a photo shows"
        )
    return ReadQuestion(text, places, unknown)


def named_words(unknown: Sequence[str], vocabulary: Vocabulary) -> str:
    """Name words that are not known, each with the known one that it may have been meant for.

    >>> named_words(("zebus", "peolpe"), Vocabulary(("people", "many"), ("1",)))
    "'zebus', 'peolpe' (people?)"
    """
    said = []
    for word in unknown[:MOST_NAMED]:
        close = difflib.get_close_matches(word[:MOST_LETTERS].lower(), vocabulary.words, n=1, cutoff=CLOSE)
        said.append(f"{quoted(word)} ({close[0]}?)" if close else quoted(word))
    more = len(unknown) - MOST_NAMED
    return ", ".join(said) + (f" and {more} more" if more > 0 else "")


def quoted(text: str) -> str:
    """Quote what somebody wrote so that it fits a line and cannot steer a terminal.

    >>> quoted("dogs" + chr(27) + "[31m")
    "'dogs�[31m'"
    """
    plain = _printable(text[: MOST_LETTERS + 1])
    return f"'{plain}'" if len(plain) <= MOST_LETTERS else f"'{plain[: MOST_LETTERS - 1]}…'"


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def _without_marks(word: str) -> str:
    places = [place for place, letter in enumerate(word) if letter.isalnum()]
    return word[places[0] : places[-1] + 1]
