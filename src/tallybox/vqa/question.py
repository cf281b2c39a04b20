"""A question as a model reads it: the indices of its words, and its unknown words."""

import difflib
from collections.abc import Sequence
from typing import NamedTuple

from tallybox.errors import InputError
from tallybox.vqa.data.vocabulary import Vocabulary, question_words

MAX_WORDS = 40  # the longest question that the bundled model was trained on has 17
MAX_LETTERS = 30  # of a word in a message
MIN_SIMILARITY = 0.8  # of a known word that is suggested for an unknown one


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
    text = " ".join("".join(letter if letter.isprintable() else "�" for letter in word) for word in question.split())
    words = [word for word in text.split() if any(map(str.isalnum, word))]
    if not words or len(words) > MAX_WORDS:
        raise InputError(f"QUESTION must have 1 to {MAX_WORDS} words, such as 'How many people are there?'.")
    known = frozenset(vocabulary.words)
    unknown = (_without_marks(word) for word in words if "".join(question_words(word)) not in known)
    encoded = EncodedQuestion(text, vocabulary.encode_question(text), tuple(dict.fromkeys(unknown)))
    if not any(encoded.indices):
        raise InputError(f"The model knows no word of the QUESTION: {named_words(encoded.unknown, vocabulary)}.")
    return encoded


def named_words(unknown: Sequence[str], vocabulary: Vocabulary) -> str:
    """List unknown words, each with a similar known one if there is any.

    >>> named_words(("zebus", "peolpe"), Vocabulary(("people", "many"), ("1",)))
    "'zebus', 'peolpe' (people?)"
    """
    listed = []
    for word in unknown:
        short = word if len(word) <= MAX_LETTERS else f"{word[: MAX_LETTERS - 1]}…"
        close = difflib.get_close_matches(short.lower(), vocabulary.words, n=1, cutoff=MIN_SIMILARITY)
        listed.append(f"'{short}' ({close[0]}?)" if close else f"'{short}'")
    return ", ".join(listed)


def _without_marks(word: str) -> str:
    letters = [index for index, letter in enumerate(word) if letter.isalnum()]
    return word[letters[0] : letters[-1] + 1]
