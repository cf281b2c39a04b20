"""The words that a model reads and the answers that it can give, both by frequency in the training split."""

import collections
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tallybox.errors import InputError
from tallybox.files import write_text
from tallybox.vqa.data.answers import normalise
from tallybox.vqa.data.questions import QuestionRecord

VOCABULARY = "vocabulary.json"  # of a prepared folder
ANSWERS = 3000  # the paper's
NEITHER_LETTER_NOR_DIGIT = re.compile(r"[^a-z0-9 ]")


def question_tokens(text: str) -> list[str]:
    """Return a question's words as the published code splits them: a second space gives an empty word.

    >>> question_tokens("Is this  man's T-shirt red?")
    ['is', 'this', '', 'mans', 'tshirt', 'red']
    """
    text = text.lower() if text[-1:].isalnum() else text.lower()[:-1]  # without the question mark
    return NEITHER_LETTER_NOR_DIGIT.sub("", text).split(" ")


def question_words(text: str) -> list[str]:
    """Return a question's words: lower case, nothing but letters and digits."""
    return [word for word in question_tokens(text) if word]


@dataclass(frozen=True)
class Vocabulary:
    """The words and answers of a model. Indices of words begin at 1 (0 is an unknown word), those of answers at 0."""

    words: tuple[str, ...]
    answers: tuple[str, ...]
    split: str = ""  # of the questions they were taken from

    @cached_property
    def _word_indices(self) -> dict[str, int]:
        return {word: index for index, word in enumerate(self.words, start=1)}

    @cached_property
    def _answer_indices(self) -> dict[str, int]:
        return {answer: index for index, answer in enumerate(self.answers)}

    @classmethod
    def of(cls, records: Iterable[QuestionRecord], answers: int = ANSWERS, split: str = "") -> "Vocabulary":
        """Collect every word of the questions, and the most frequent normalised answers."""
        words: collections.Counter[str] = collections.Counter()
        normalised: collections.Counter[str] = collections.Counter()
        for record in records:
            words.update(question_tokens(record.text))
            normalised.update(normalise(answer) for answer in record.answers or ())
        return cls(tuple(_by_frequency(words)), tuple(_by_frequency(normalised)[:answers]), split)

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """Read a ``vocabulary.json``."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            words, answers = (tuple(map(str, content[name])) for name in ("words", "answers"))
            return cls(words, answers, str(content["split"]))
        except FileNotFoundError:
            raise InputError(f"{path} is missing; run tallybox vqa prepare") from None
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is not a vocabulary: {error!r}") from None

    def save(self, path: Path) -> None:
        """Write a ``vocabulary.json``."""
        content = {"split": self.split, "words": self.words, "answers": self.answers}
        write_text(path, json.dumps(content, ensure_ascii=True, indent=0) + "\n")

    def encode_question(self, text: str) -> list[int]:
        """Return the indices of a question's words, at least one; empty words count only if the vocabulary has them."""
        words = question_tokens(text) if "" in self._word_indices else question_words(text)
        return [self._word_indices.get(word, 0) for word in words] or [0]

    def encode_answers(self, answers: Sequence[str]) -> list[int]:
        """Return the indices of answers, -1 for unknown ones."""
        return [self._answer_indices.get(normalise(answer), -1) for answer in answers]


def _by_frequency(counts: collections.Counter[str]) -> list[str]:
    """Return the keys, most frequent first, in alphabetical order where equally frequent."""
    return sorted(counts, key=lambda text: (-counts[text], text))
