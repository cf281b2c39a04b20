import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallybox.errors import InputError
from tallybox.vqa.data.vocabulary import Vocabulary
from tallybox.vqa.question import MAX_WORDS, encode_question, named_words

KNOWN = Vocabulary(("how", "many", "people", "are", "there", "mans"), ("1", "2"))


def test_words_are_read_as_in_training():
    assert encode_question("How many people are there?", KNOWN) == ("How many people are there?", [1, 2, 3, 4, 5], ())
    assert encode_question("  HOW\tmany\npeople , are there ?", KNOWN).indices == [1, 2, 3, 4, 5]
    assert encode_question("how many man's", KNOWN).unknown == ()


def test_unknown_words_are_named_as_they_were_written_each_once():
    read = encode_question("How many “Zebus”, zebu-calves, 狗 and “Zebus” are there?!", KNOWN)
    assert read.unknown == ("Zebus", "zebu-calves", "狗", "and")
    assert read.indices == KNOWN.encode_question("How many zebus zebucalves and zebus are there")


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("", "QUESTION"),
        (" \n ", "QUESTION"),
        ("?!", "QUESTION"),
        ("zebu", "'zebu'"),
        ("¿Cuántos perros hay?", "'Cuántos', 'perros', 'hay'"),
        ("狗", "'狗'"),
        ("how " * (MAX_WORDS + 1), f"{MAX_WORDS} words"),
        ("x" * 100_000, "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxx…'"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(question, said):
    with pytest.raises(InputError) as raised:
        encode_question(question, KNOWN)
    assert said in str(raised.value)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 300


def test_a_word_that_was_probably_meant_is_offered():
    assert named_words(("peolpe", "zebu"), KNOWN) == "'peolpe' (people?), 'zebu'"


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(question):
    try:
        read = encode_question(question, KNOWN)
    except InputError as error:
        said = str(error)
    else:
        said = named_words(read.unknown, KNOWN)
        assert any(read.indices)
    assert said.isprintable()
