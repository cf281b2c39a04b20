import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallybox.vqa.data.questions import QuestionRecord
from tallybox.vqa.scoring import COUNT_KEYS, count_errors, true_count, whole_number


def counting(question_id: int, *answers: str, text: str = "How many cats?") -> QuestionRecord:
    return QuestionRecord(question_id, 1, text, answers or None, "number")


@pytest.mark.parametrize(
    ("answer", "number"),
    [("3", 3), ("three", 3), ("The 3", 3), ("none", 0), ("12", 12), ("1,000", 1000)]
    + [(answer, None) for answer in ("", "many", "2 cats", "2.5", "²", "yes")],
)
def test_only_whole_numbers_are_numbers(answer, number):
    assert whole_number(answer) == number


def test_the_true_count_is_what_most_people_said():
    assert true_count(counting(1, "two", "3", "2", "3", "3")) == 3
    assert true_count(counting(1, "two", "3", "2", "3")) == 2  # of equally many, the first
    assert true_count(counting(1, "many", "many", "3")) is None
    assert true_count(counting(1, "2", text="What time is it?")) is None


def test_figures_by_true_count_and_mean_error():
    truths = {1: 0, 2: 1, 3: 1, 4: 3, 5: 4, 6: 9}
    said = {1: "0", 2: "1", 3: "2", 4: "three", 5: "no idea", 6: "9"}
    records = [counting(key, *[str(truth)] * 9, "77") for key, truth in truths.items()]
    others = [counting(8, *["red"] * 10), counting(9, *["5"] * 10, text="What is written?")]
    found = count_errors(said | {8: "red", 9: "1"}, [*records, *others])
    assert found == pytest.approx(
        {
            "count_0": 100,
            "count_1": 50,
            "count_2_to_4": 50,
            "count_5_or_more": 100,
            "count_2_or_more": 200 / 3,
            "count_mae": (1 + 4) / 6,  # an answer that is no number says 0
            "count_rmse": ((1 + 4**2) / 6) ** 0.5,
        }
    )
    assert tuple(found) == COUNT_KEYS[: len(found)]


def test_one_absurd_answer_does_not_make_the_error():
    records = [counting(key, *["2"] * 10) for key in range(99)] + [counting(99, *["10,000"] * 10)]
    found = count_errors(dict.fromkeys(range(99), "2") | {99: "3"}, records)
    assert found["count_mae"] == (20 - 3) / 100
    assert count_errors(dict.fromkeys(range(99), "2") | {99: "1000000"}, records)["count_mae"] == 0


@given(st.dictionaries(st.integers(1, 50), st.integers(0, 20), min_size=1), st.integers(0, 20))
def test_the_mean_error_is_that_of_the_numbers(truths, guess):
    records = [counting(key, *[str(truth)] * 10) for key, truth in truths.items()]
    found = count_errors(dict.fromkeys(truths, str(guess)), records)
    assert found["count_mae"] == pytest.approx(sum(abs(guess - truth) for truth in truths.values()) / len(truths))
