import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallybox.errors import InputError
from tallybox.vqa.answer import MAX_WORDS, quoted, read_question
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


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("", "QUESTION"),
        ("?!", "QUESTION"),
        ("¿Cuántos perros hay?", "'Cuántos', 'perros', 'hay'"),
        ("how " * (MAX_WORDS + 1), f"{MAX_WORDS} words"),
        ("x" * 100_000, "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxx…'"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(question, said):
    with pytest.raises(InputError) as raised:
        read_question(question, KNOWN)
    assert said in str(raised.value)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 300


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(question):
    try:
        _, indices, unknown = read_question(question, KNOWN)
    except InputError as error:
        said = str(error)
    else:
        said = quoted(unknown)
        assert any(indices)
    assert said.isprintable()
