import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallybox.vqa.data.answers import CONTRACTIONS, normalise


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param("Yes", "yes", id="case"),
        pytest.param("none", "0", id="none is a number"),
        pytest.param("ten men", "10 men", id="number words among others"),
        pytest.param("eleven", "eleven", id="beyond ten they stay"),
        pytest.param("a dog on the bed", "dog on bed", id="articles"),
        pytest.param("red/white", "red white", id="a mark between words becomes a space"),
        pytest.param("red / white", "red white", id="a mark beside a space is dropped"),
        pytest.param("red, black,white", "red blackwhite", id="once beside a space, dropped everywhere"),
        pytest.param("1,000-ton", "1000ton", id="a comma between digits drops every mark"),
        pytest.param("12:35", "12:35", id="colons stay"),
        pytest.param("mcdonald's", "mcdonald's", id="apostrophes stay"),
        pytest.param("u.s.a.", "usa", id="full stops go"),
        pytest.param("1.5", "1.5", id="decimal points stay"),
        pytest.param("no.7", "no.7", id="a digit after it is all that is looked at"),
        pytest.param("." * 40, "." * 8, id="at most 32 full stops"),
        pytest.param("couldnt've", "couldn't've", id="one of two apostrophes missing"),
        pytest.param("couldntve", "couldntve", id="both missing"),
        pytest.param("somebody'd", "somebodyd", id="the odd one out"),
        pytest.param("wed", "wed", id="a word of its own"),
        pytest.param("two\ndogs\t", "2 dogs", id="line ends and tabs"),
        pytest.param("?", "", id="nothing left"),
    ],
)
def test_normalised_as_the_official_rules_say(answer, expected):
    assert normalise(answer) == expected


def test_contractions_of_the_official_list():
    assert len(CONTRACTIONS) == 114
    assert CONTRACTIONS["'ows'at"] == CONTRACTIONS["ow's'at"] == CONTRACTIONS["'ow'sat"] == "'ow's'at"


@given(st.text(alphabet="abcdefghij 0123456789", max_size=20))
def test_words_without_marks_only_lose_articles_and_case(text):
    kept = [word for word in text.lower().split() if word != "a"]
    assert normalise(text) == " ".join(kept)
