import re
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.synthetic_photos import made_up_photos
from hypothesis import given
from hypothesis import strategies as st

from tallybox.estimator.prediction import IntervalLevels, summarise
from tallybox.explain.counting import Counting, count_with_component
from tallybox.explain.page_data import estimator_countings
from tallybox.explain.summaries import predicted_summary, quantity
from tallybox.presence.module import PresenceCounter
from tests.support.estimators import small_estimator

LEVELS = IntervalLevels(0.55, 0.55, 0.55, 0.55)
TWO = np.array([[0, 0, 10, 10], [1, 0, 11, 10], [50, 50, 60, 60]], np.float32)


def counting_of(*presence: float, merged_into: tuple[int, ...] = (0, 0, 2)) -> Counting:
    counted = count_with_component(TWO, np.array([0.9, 0.8, 0.9], np.float32), PresenceCounter(4))
    return replace(counted, presence=list(presence), merged_into=list(merged_into))


def said_of(*probabilities: float, presence: tuple[float, ...] = (1, 0, 1)):
    (predicted,) = summarise(np.array([probabilities]), np.array([0.5]), LEVELS).each()
    return predicted_summary("person", predicted, counting_of(*presence))


@pytest.mark.parametrize(
    ("probabilities", "headline", "certainty"),
    [
        ((0.05, 0.15, 0.37, 0.33, 0.10), "2 people", "37 % sure; 3 is almost as likely"),
        ((0.0, 0.1, 0.6, 0.3, 0.0), "2 people", "60 % sure; 3 is less likely (30 %)"),
        ((0.0, 0.96, 0.04, 0.0, 0.0), "1 person", "96 % sure"),
        ((0.999, 0.001, 0.0, 0.0, 0.0), "no people", "more than 99 % sure"),
        (
            (0.4, 0.0, 0.3, 0.3, 0.0),
            "2 people",
            "30 % sure; 0 is likelier (40 %), but 2 is the middle of what is probable",
        ),
        ((0, 0, 0, 0.1, 0.9), "about 4 people", "90 % sure that it is 4 or more; larger numbers are not told apart"),
    ],
)
def test_a_prediction_is_said_as_people_would(probabilities, headline, certainty):
    said = said_of(*probabilities)
    assert (said.headline, said.certainty) == (headline, certainty)


def test_boxes_are_named_with_what_became_of_them():
    assert said_of(0, 0, 1, 0, 0).reasons == [
        "Of 3 boxes that could show a person, boxes 1 and 3 are counted.",
        "One box shows an object that another box shows better, and is merged into it.",
    ]


@given(st.lists(st.floats(0, 1), min_size=3, max_size=3), st.integers(0, 3))
def test_presences_that_do_not_add_up_to_the_answer_are_explained(presence, answer):
    said = said_of(*(float(count == answer) for count in range(5)), presence=tuple(presence))
    explained = [reason for reason in said.reasons if reason.startswith("The presences of all boxes add up to")]
    assert bool(explained) == (int(sum(presence) + 0.5) != answer)


def test_an_estimators_summary_agrees_with_its_numbers():
    image = made_up_photos(16, seed=11)[0][3]
    for counting in estimator_countings(small_estimator(), image, None):
        said, predicted = counting["summary"], counting["prediction"]
        assert quantity(predicted["count"], counting["name"]) in said["headline"]
        numbers = [int(digits) for digits in re.findall(r"\d+", said["interval"])]
        assert {predicted["low"], predicted["high"]} == set(numbers)
        share = round(100 * counting["distribution"][min(predicted["count"], len(counting["distribution"]) - 1)])
        assert said["certainty"].startswith((f"{share} % sure", "more than 99 %", "less than 1 %"))
