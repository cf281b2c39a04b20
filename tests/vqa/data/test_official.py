import pytest

from tallybox.errors import InputError
from tallybox.vqa.data.official import read_pairs, read_questions, read_records
from tests.support.detection_sets import write_json
from tests.support.vqa_files import annotation, annotations_file, question, questions_file

TWO = ["2"] * 9 + ["two"]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_questions_come_with_their_ten_answers(tmp_path, suffix):
    asked = questions_file(tmp_path / f"questions.json{suffix}", [question(5), question(3, text="Is it?")])
    given = annotations_file(tmp_path / f"annotations.json{suffix}", [annotation(3, ["no"] * 10), annotation(5, TWO)])
    first, second = read_records(asked, given)
    assert (first.question_id, first.image_id, first.text, first.answers) == (
        5,
        "7",
        "How many dogs are there?",
        tuple(TWO),
    )
    assert (first.answer_type, first.counts, second.counts) == ("number", True, False)


def test_test_split_has_no_answers(tmp_path):
    (record,) = read_records(questions_file(tmp_path / "questions.json", [question(5)]))
    assert record.answers is None
    assert record.answer_type is None


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([question(5), {"question_id": "six", "image_id": 7, "question": "?"}], r"question_id"),
        ([question(5), {"question_id": 6, "question": "?"}], r"image_id"),
        ([question(5), question(5)], r"question 5"),
    ],
)
def test_a_wrong_question_is_named(tmp_path, records, message):
    path = questions_file(tmp_path / "questions.json", records)
    with pytest.raises(InputError, match=f"questions.json.*{message}"):
        read_questions(path)


@pytest.mark.parametrize(
    "given", [[], [annotation(5, [])], [annotation(5, TWO, answer_type="count")], [annotation(6, TWO)]]
)
def test_an_annotation_that_is_wrong_or_missing_is_named(tmp_path, given):
    asked = questions_file(tmp_path / "questions.json", [question(5)])
    with pytest.raises(InputError, match=r"question 5") as raised:
        read_records(asked, annotations_file(tmp_path / "annotations.json", given))
    assert "annotations.json" in str(raised.value)


def test_files_that_are_something_else(tmp_path):
    with pytest.raises(InputError, match="questions"):
        read_questions(annotations_file(tmp_path / "annotations.json", []))
    (tmp_path / "cut.json").write_text('{"questions": [{"question_id": 1, "image_id": 2, "quest')
    with pytest.raises(InputError, match=r"cut\.json"):
        read_questions(tmp_path / "cut.json")
    with pytest.raises(InputError, match=r"absent\.json"):
        read_questions(tmp_path / "absent.json")
    with pytest.raises(InputError, match=r"pairs\.json"):
        read_pairs(write_json(tmp_path / "pairs.json", [[1, 2], [3]]))
