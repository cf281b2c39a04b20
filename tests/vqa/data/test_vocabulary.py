import pytest

from tallybox.errors import InputError
from tallybox.vqa.data.questions import QuestionRecord
from tallybox.vqa.data.vocabulary import Vocabulary


def record(text: str, answers: list[str]) -> QuestionRecord:
    return QuestionRecord(1, 1, text, tuple(answers), "other")


def test_order_is_by_frequency_then_by_the_alphabet():
    records = [
        record("b a c b", ["two", "2", "a dog", "Dog.", "cat"]),
        record("a d", ["2", "bird", "bird", "?", "the"]),
    ]
    vocabulary = Vocabulary.of(records)
    assert vocabulary.words == ("a", "b", "c", "d")
    assert vocabulary.answers == ("2", "", "bird", "dog", "cat")  # nothing is left of "?" and "the"
    assert Vocabulary.of(records, answers=3).answers == ("2", "", "bird")


def test_saved_and_loaded(tmp_path):
    vocabulary = Vocabulary(("how", "many"), ("2", "café"))
    vocabulary.save(tmp_path / "vocabulary.json")
    assert Vocabulary.load(tmp_path / "vocabulary.json") == vocabulary
    (tmp_path / "other.json").write_text('{"words": []}')
    with pytest.raises(InputError, match=r"other\.json"):
        Vocabulary.load(tmp_path / "other.json")
    with pytest.raises(InputError, match=r"absent\.json"):
        Vocabulary.load(tmp_path / "absent.json")
