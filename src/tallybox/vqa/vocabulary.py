"""Which words a model reads and which answers it can give, both in order of how often they occur in training."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tallybox.errors import InputError
from tallybox.files import write_text
from tallybox.vqa.answers import normalise
from tallybox.vqa.questions import Record

ANSWERS = 3000  # the paper's
UNKNOWN_ANSWER = -1
NEITHER_LETTER_NOR_DIGIT = re.compile(r"[^a-z0-9 ]")


def question_words(text: str) -> list[str]:
    """Return a question's words: lower case, nothing but letters and digits.

    >>> question_words("Is this man's T-shirt red?")
    ['is', 'this', 'mans', 'tshirt', 'red']
    """
    return NEITHER_LETTER_NOR_DIGIT.sub("", text.lower()).split()


@dataclass(frozen=True)
class Vocabulary:
    """Words and answers by their places: a word's from 1 on, as 0 is for words it does not hold; an answer's from 0.

    >>> records = [Record(1, 7, "How many dogs?", ("2",) * 9 + ("Two",), "number")]
    >>> vocabulary = Vocabulary.of(records)
    >>> vocabulary.answers, vocabulary.encode_question("How many cats?"), vocabulary.encode_answers(["two", "3"])
    (('2',), [2, 3, 0], [0, -1])
    """

    words: tuple[str, ...]
    answers: tuple[str, ...]
    _word_places: dict[str, int] = field(init=False, repr=False, compare=False)
    _answer_places: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_word_places", {word: place for place, word in enumerate(self.words, 1)})
        object.__setattr__(self, "_answer_places", {answer: place for place, answer in enumerate(self.answers)})

    @classmethod
    def of(cls, records: Iterable[Record], answers: int = ANSWERS) -> Vocabulary:
        """Take every word of the questions, and the answers that most people gave once they are normalised."""
        words: Counter[str] = Counter()
        given: Counter[str] = Counter()
        for record in records:
            words.update(question_words(record.text))
            given.update(normalise(answer) for answer in record.answers or ())
        return cls(tuple(_by_frequency(words)), tuple(_by_frequency(given)[:answers]))

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Read a ``vocabulary.json``."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return cls(tuple(map(str, content["words"])), tuple(map(str, content["answers"])))
        except FileNotFoundError:
            raise InputError(
                f"{path} must be a vocabulary, but there is no such file; run tallybox vqa prepare"
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} must be a vocabulary with words and answers, but: {error!r}") from None

    def save(self, path: Path) -> None:
        """Write a ``vocabulary.json``."""
        content = {"words": self.words, "answers": self.answers}
        write_text(path, json.dumps(content, ensure_ascii=True, indent=0) + "\n")

    def encode_question(self, text: str) -> list[int]:
        """Return the places of a question's words, at least one."""
        return [self._word_places.get(word, 0) for word in question_words(text)] or [0]

    def encode_answers(self, answers: Sequence[str]) -> list[int]:
        """Return the places of answers, -1 for those that it does not hold."""
        return [self._answer_places.get(normalise(answer), UNKNOWN_ANSWER) for answer in answers]


def _by_frequency(counts: Counter[str]) -> list[str]:
    """Return what was counted, most frequent first, by the alphabet where equally frequent."""
    return sorted(counts, key=lambda one: (-counts[one], one))
