import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallybox.errors import InputError
from tallybox.vqa.answer import read_question
from tallybox.vqa.data.vocabulary import Vocabulary

KNOWN = Vocabulary(("how", "many", "people", "are", "there", "mans"), ("1", "2"))


def test_words_are_read_as_in_training():
    assert read_question("How many people are there?", KNOWN) == ("How many people are there?", [1, 2, 3, 4, 5], ())
    assert read_question("  HOW\tmany\npeople , are there ?", KNOWN)[1] == [1, 2, 3, 4, 5]
    assert read_question("how many man's", KNOWN)[2] == ()


def test_unknown_words_are_named_as_they_were_written_each_once():
    _, indices, unknown = read_question("How many “Zebus”, zebu-calves, 狗 and “Zebus” are there?!", KNOWN)
    assert unknown == ("Zebus", "zebu-calves", "狗", "and")
    assert indices == KNOWN.encode_question("How many zebus zebucalves and zebus are there")


@pytest.mark.parametrize("question", ["", "?!", "¿Cuántos perros hay?"])
def test_a_question_without_a_known_word_is_refused(question):
    with pytest.raises(InputError, match="QUESTION"):
        read_question(question, KNOWN)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_on_one_printable_line(question):
    try:
        text, indices, unknown = read_question(question, KNOWN)
    except InputError as error:
        text, indices, unknown = str(error), [1], ()
    assert any(indices)
    assert text.isprintable()
    assert all(word.isprintable() for word in unknown)
