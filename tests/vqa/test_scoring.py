import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallybox.errors import InputError
from tallybox.vqa.data.official import read_pairs, read_records
from tallybox.vqa.data.questions import QuestionRecord
from tallybox.vqa.scoring import COUNT_KEYS, KEYS, accuracy, all_scores, true_count, whole_number
from tests.support.official_vqa_rule import literal_accuracy, literal_scores
from tests.support.shared_data import data_folder

some_answers = st.sampled_from(
    ["2", "two", "a 2", "3", "red, 2", "red/2", "", "the", "dont", "don't", "2.", " 2\n", "1,000", "1000"]
)


@given(some_answers, st.lists(some_answers, min_size=10, max_size=10))
def test_accuracy_is_the_mean_over_nine_of_ten(prediction, answers):
    assert accuracy(prediction, answers) == pytest.approx(float(literal_accuracy(prediction, answers)), abs=1e-12)


@pytest.mark.parametrize(("agreeing", "expected"), [(0, 0), (1, 0.3), (2, 0.6), (3, 0.9), (4, 1), (10, 1)])
def test_accuracy_by_how_many_agree(agreeing, expected):
    assert accuracy("2", ["2"] * agreeing + ["3"] * (10 - agreeing)) == pytest.approx(expected, abs=1e-15)


def test_nothing_is_normalised_where_all_ten_agree():
    assert accuracy("two", ["two"] * 10) == 1
    assert accuracy("2", ["two"] * 10) == 0
    assert accuracy("2", ["two"] * 9 + ["2"]) == 1


def test_real_annotations_score_as_the_literal_rule_says():
    folder = data_folder("vqa2-subset")
    records = read_records(
        folder / "v2_OpenEnded_mscoco_val2014_questions.json.gz", folder / "v2_mscoco_val2014_annotations.json.gz"
    )
    pairs = read_pairs(folder / "v2_mscoco_val2014_complementary_pairs.json")
    assert (len(records), len(pairs), sum(record.counts for record in records)) == (8977, 822, 2470)
    choose = random.Random(3)
    answers = [choose.choice(record.answers) for record in records]
    # Mostly what some person said; also other cases, articles, marks and answers to other questions.
    said = [choose.choice((a, a, a, a.upper(), f"the {a}", f"{a}!", choose.choice(answers))) for a in answers]
    predictions = {record.question_id: answer for record, answer in zip(records, said, strict=True)}
    scores = all_scores(predictions, records, pairs)
    literal = literal_scores(predictions, records, pairs.tolist())
    assert set(literal) == set(KEYS)
    assert set(scores) == {*KEYS, *COUNT_KEYS}
    for key in KEYS:
        assert scores[key] == pytest.approx(float(literal[key]), abs=1e-12), key
    types = {record.question_id: record.answer_type for record in records}
    assert sum(types[a] == types[b] == "number" for a, b in pairs) == 443
    assert 20 < scores["pair_count"] < scores["count"] < 90


def asked(
    question_id: int, *, text: str = "What?", answers: list[str] | None = None, answer_type: str | None = "other"
) -> QuestionRecord:
    return QuestionRecord(question_id, 1, text, tuple(answers or ["yes"] * 10), answer_type)


def test_a_pair_needs_the_full_accuracy_of_both():
    most = ["2"] * 3 + ["3"] * 7  # "2" scores 0.9
    records = [
        asked(1, text="How many?", answers=most, answer_type="number"),
        asked(2, text="how many?", answers=["2"] * 10, answer_type="number"),
        asked(3, text="Which?", answers=["2"] * 10, answer_type="number"),
        asked(4, text="Which?", answers=["2"] * 10),
    ]
    scores = all_scores(dict.fromkeys((1, 2, 3, 4), "2"), records, [(1, 2), (2, 3), (3, 4)])
    assert scores.keys() & set(KEYS) == {"all", "number", "other", "count", "pair_all", "pair_number", "pair_count"}
    assert scores["all"] == pytest.approx(100 * 3.9 / 4)
    assert (scores["number"], scores["count"]) == (pytest.approx(100 * 2.9 / 3), pytest.approx(100 * 1.9 / 2))
    assert (scores["pair_all"], scores["pair_number"], scores["pair_count"]) == (pytest.approx(200 / 3), 50, 0)


def test_every_question_needs_one_answer():
    with pytest.raises(InputError, match="among them 2"):
        all_scores({1: "no"}, [asked(1), asked(2)])
    with pytest.raises(InputError, match="among them 9"):
        all_scores({1: "no", 9: "no"}, [asked(1)])
    with pytest.raises(InputError, match="no answers"):
        all_scores({1: "no"}, [QuestionRecord(1, 1, "What?", None, None)])


def test_any_number_of_answers_counts_as_ten_in_the_same_proportions():
    assert accuracy("2", ["2"]) == 1
    assert accuracy("3", ["2"]) == 0
    for answers in (["2"] * 5 + ["3"] * 5, ["2"] * 2 + ["3"] * 8, ["2"] * 10):
        for repeats in (2, 3):
            assert accuracy("2", answers * repeats) == pytest.approx(accuracy("2", answers))
    assert accuracy("2", ["2", "3"]) == accuracy("2", ["2"] * 5 + ["3"] * 5) == 1


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
    found = all_scores(said | {8: "red", 9: "1"}, [*records, *others])
    assert {key: found[key] for key in COUNT_KEYS} == pytest.approx(
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


def test_one_absurd_answer_does_not_make_the_error():
    records = [counting(key, *["2"] * 10) for key in range(99)] + [counting(99, *["10,000"] * 10)]
    found = all_scores(dict.fromkeys(range(99), "2") | {99: "3"}, records)
    assert found["count_mae"] == (20 - 3) / 100
    assert all_scores(dict.fromkeys(range(99), "2") | {99: "1000000"}, records)["count_mae"] == 0


def test_scores_of_parts_add_up_to_those_of_the_whole():
    records = [asked(number, answers=["no"] * (number % 5) + ["yes"] * (10 - number % 5)) for number in range(30)]
    predictions = dict.fromkeys(range(30), "no")
    parts = [all_scores(dict.fromkeys(part, "no"), [records[n] for n in part]) for part in (range(7), range(7, 30))]
    total = {key: (7 * parts[0][key] + 23 * parts[1][key]) / 30 for key in parts[0]}
    assert total == pytest.approx(all_scores(predictions, records), abs=1e-12)
    assert "count" not in total
