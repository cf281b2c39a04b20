"""A question as a model reads it: the indices of its words, and which words it does not know."""

import difflib
from collections.abc import Sequence
from typing import NamedTuple

from tallybox.errors import InputError
from tallybox.vqa.data.vocabulary import Vocabulary, question_words

MAX_WORDS = 40  # the longest question that the shipped model learned from has 17
MAX_NAMED = 8  # words in a message
MAX_LETTERS = 30  # of a word there
MIN_SIMILARITY = 0.8  # of a known word that is offered for an unknown one


class EncodedQuestion(NamedTuple):
    """A question as a model reads it."""

    text: str
    indices: list[int]  # of its words in the vocabulary, 0 for unknown words
    unknown: tuple[str, ...]  # words as the user wrote them, each once


def encode_question(question: str, vocabulary: Vocabulary) -> EncodedQuestion:
    """Encode a question; one without any known word is an error.

    >>> vocabulary = Vocabulary(("how", "many", "dogs"), ("1",))
    >>> encode_question("How many zebus?", vocabulary)
    EncodedQuestion(text='How many zebus?', indices=[1, 2, 0], unknown=('zebus',))
    """
    text = " ".join(_printable(word) for word in question.split())  # line ends and tabs separate words as spaces do
    words = [word for word in text.split() if any(map(str.isalnum, word))]
    if not words:
        raise InputError(f"QUESTION must be in words, but got {quoted(question)}; try 'How many people are there?'")
    if len(words) > MAX_WORDS:
        raise InputError(f"QUESTION must have at most {MAX_WORDS} words, but got {len(words)}; ask for one thing")
    learned = frozenset(vocabulary.words)
    unlearned = (_without_marks(word) for word in words if "".join(question_words(word)) not in learned)
    unknown = tuple(dict.fromkeys(unlearned))
    indices = vocabulary.encode_question(text)
    if not any(indices):
        raise InputError(
            "QUESTION must have words that the model learned from, "
            f"but it does not know {named_words(unknown, vocabulary)}; ask in English about what a photo shows"
        )
    return EncodedQuestion(text, indices, unknown)


def named_words(unknown: Sequence[str], vocabulary: Vocabulary) -> str:
    """List unknown words, each with the known one that may have been meant.

    >>> named_words(("zebus", "peolpe"), Vocabulary(("people", "many"), ("1",)))
    "'zebus', 'peolpe' (people?)"
    """
    listed = []
    for word in unknown[:MAX_NAMED]:
        close = difflib.get_close_matches(word[:MAX_LETTERS].lower(), vocabulary.words, n=1, cutoff=MIN_SIMILARITY)
        listed.append(f"{quoted(word)} ({close[0]}?)" if close else quoted(word))
    more = len(unknown) - MAX_NAMED
    return ", ".join(listed) + (f" and {more} more" if more > 0 else "")


def quoted(text: str) -> str:
    """Quote a user's text so that it fits a line and cannot control the terminal.

    >>> quoted("dogs" + chr(27) + "[31m")
    "'dogs�[31m'"
    """
    plain = _printable(text[: MAX_LETTERS + 1])
    return f"'{plain}'" if len(plain) <= MAX_LETTERS else f"'{plain[: MAX_LETTERS - 1]}…'"


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def _without_marks(word: str) -> str:
    letters = [index for index, letter in enumerate(word) if letter.isalnum()]
    return word[letters[0] : letters[-1] + 1]
