import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallybox import PhotoCounter
from tallybox.ask import SHIPPED_MODEL, Answerer
from tallybox.ask.category_questions import (
    answer_from_counts,
    asked_distribution,
    read_category_question,
    sum_distribution,
)
from tallybox.detections.category_names import COCO_CATEGORIES
from tallybox.detections.category_words import plural
from tallybox.estimator.prediction import IntervalLevels, summarise
from tests.support.ask import BUSES, RIDERS, asking_detector, buses, riders, shipped_answerer

LEVELS = IntervalLevels(0.55, 0.55, 0.55, 0.55)


def predicted(*probabilities: float):
    return summarise(np.array([probabilities]), np.array([0.5]), LEVELS).each()[0]


def asked(text: str, *probabilities: float, best_score: float = 0.05) -> dict[str, float]:
    """Answers with their probabilities, the answer first; empty where counts do not answer."""
    question = read_category_question(text)
    return dict(answer_from_counts(question, [predicted(*probabilities)], best_score).answers)


@pytest.mark.parametrize(
    ("text", "kind", "ids"),
    [
        ("How many dogs are there?", "how many", {18}),
        ("how many people does the photo show", "how many", {1}),
        ("How many pairs of skis can you see?", "how many", {35}),
        ("How many men wear hats?", "how many of them", {1}),
        ("How many people are there behind the fence?", "how many of them", {1}),
        ("Are there any cars?", "whether", {3}),
        ("Is there a hot dog in the picture?", "whether", {58}),
        ("Can you see a dog here?", "whether", {18}),
        ("Does the photo show a TV?", "whether", {72}),
        ("Are there at least three dogs?", "whether", {18}),
        ("Is there a red car?", "about", {3}),
        ("Is the dog asleep?", "about", {18}),
        ("What is the man doing?", "about", {1}),
    ],
)
def test_questions_about_a_category_are_read(text, kind, ids):
    question = read_category_question(text)
    assert (question.kind, question.category_ids) == (kind, ids)


@pytest.mark.parametrize(
    "text", ["Is the dog on the couch?", "What color is the sky?", "", "How many wheels are there?"]
)
def test_questions_about_none_or_two_are_left_to_the_model(text):
    assert read_category_question(text) is None


@pytest.mark.parametrize("name", COCO_CATEGORIES.values())
def test_every_category_can_be_asked_for(name):
    for text, kind in ((f"How many {plural(name)} are there?", "how many"), (f"Is there a {name}?", "whether")):
        question = read_category_question(text)
        assert question.kind == kind
        assert COCO_CATEGORIES[min(question.category_ids)] == name


@given(
    st.lists(st.floats(0.001, 1), min_size=3, max_size=12),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(0, 8),
)
def test_answers_about_a_category_never_contradict_each_other_nor_count(weights, none, best_score, number):
    shares = [none, *((1 - none) * np.array(weights) / sum(weights))]
    prediction = predicted(*shares)

    def ask(text):
        return asked(text, *shares, best_score=best_score)

    counts = ask("How many dogs are there?")
    counted = int(next(iter(counts)).split()[0])
    assert counted == prediction.count or prediction.count == 0
    assert sum(counts.values()) == pytest.approx(1)
    any_ = ask("Are there any dogs?")
    assert next(iter(any_)) == ("yes" if counted else "no")
    assert any_["no"] == pytest.approx(counts["0"], abs=1e-9)
    presumed = ask("What is the dog doing?")
    assert presumed == ({} if counted else {"no dog": pytest.approx(counts["0"])})
    more, at_most = (ask(f"Are there {words} {number} dogs?") for words in ("more than", "at most"))
    assert more["yes"] == pytest.approx(at_most["no"], abs=1e-9)
    assert next(iter(more)) == ("yes" if counted > number else "no") != next(iter(at_most))
    fewer, least = (ask(f"Are there {words} {number} dogs?") for words in ("fewer than", "at least"))
    assert fewer["yes"] == pytest.approx(least["no"], abs=1e-9)
    assert next(iter(fewer)) == ("yes" if counted < number else "no") != next(iter(least))


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_the_better_a_score_the_more_probable_that_there_are_any(none, one_score, other_score):
    usual = np.array([none, (1 - none) / 2, (1 - none) / 2])
    worse, better = (asked_distribution(usual, score) for score in sorted((one_score, other_score)))
    assert better[0] <= worse[0] + 1e-12
    assert better[1] == pytest.approx(better[2])  # given that there are any, the score changes nothing


def test_what_presumes_something_that_is_not_there_has_no_answer():
    no = asked("Is there a man?", 0.999, 0.001, 0)["no"]
    assert no > 0.5
    assert asked("What is the man doing?", 0.999, 0.001, 0) == {"no man": pytest.approx(no)}
    assert asked("How many men wear hats?", 0.999, 0.001, 0) == {"0": pytest.approx(no)}
    assert asked("What is the man doing?", 0.6, 0.3, 0.1) == {}


@given(st.lists(st.lists(st.floats(0.001, 1), min_size=6, max_size=6), min_size=1, max_size=4))
def test_a_sum_of_counts_is_what_drawing_gives(weights):
    distributions = [np.array(one) / sum(one) for one in weights]
    total = sum_distribution(distributions)
    expected = np.zeros(6)
    for counts in np.ndindex(*(6,) * len(distributions)):
        share = np.prod([one[count] for one, count in zip(distributions, counts, strict=True)])
        expected[min(sum(counts), 5)] += share
    assert total == pytest.approx(expected)


@pytest.mark.parametrize(("photo", "path"), [(buses, BUSES), (riders, RIDERS)])
def test_ask_agrees_with_count_and_with_itself(photo, path):
    answerer = shipped_answerer()
    seen = answerer.look(photo())
    counts = PhotoCounter(asking_detector()).count(path, [*COCO_CATEGORIES])
    may_be_there = {name: one for name, one in counts.items() if one.probability_of_any > 0.05}
    for name, prediction in [*may_be_there.items(), ("zebra", counts["zebra"])]:
        said = answerer.ask(seen, f"How many {plural(name)} are there?")
        there = answerer.ask(seen, f"Is there a {name} in the photo?")
        assert (there.answer == "yes") == (said.answer != "0")
        if prediction.count > 0:
            assert said.answer == str(prediction.count)
        elif there.answer == "yes":
            assert "`tallybox count` says 0 here." in said.remarks[-1]
            assert said.remarks[-1] == there.remarks[-1]


def test_a_comparison_with_more_than_is_told_apart_follows_from_the_count():
    shares = (0, 0, 0.1, 0.9)  # two, or three and more
    (count,) = (number for number, share in asked("How many dogs are there?", *shares).items() if share > 0.5)
    more_than_it = asked(f"Are there more than {int(count) + 5} dogs?", *shares)
    assert next(iter(more_than_it.items())) == ("no", pytest.approx(1))


def test_what_is_presumed_although_count_sees_none_is_remarked_on():
    said = shipped_answerer().ask(riders(), "What is the dog doing?")
    assert said.counted.predictions[0].count == 0
    assert said.has_answer
    assert said.remarks == ("`tallybox count` says 0 here. If there is no 'dog', there is no answer.",)


def test_what_is_not_in_the_photo_is_said_so():
    said = shipped_answerer().ask(riders(), "What is the cat doing?")
    assert said.answer == "no cat"
    assert said.to_dict()["has_answer"] is False
    assert said.remarks == ("As far as can be seen there is no 'cat' in the photo: the question has no answer.",)
    assert 0.5 <= said.probability <= sum(probability for _, probability in said.answers) <= 1 + 1e-6
    assert "has_answer" not in shipped_answerer().ask(riders(), "What is the man doing?").to_dict()


def test_kinds_that_the_detector_does_not_know_are_remarked_on():
    said = shipped_answerer().ask(riders(), "How many women are there?")
    assert said.remarks == ("The detector does not tell 'women' from other people: all of them are counted.",)


def test_a_model_of_ones_own_answers_everything_itself():
    own = Answerer(SHIPPED_MODEL, detector=asking_detector())
    assert own.estimator is None
    assert own.ask(riders(), "Are there any horses?").counted is None
