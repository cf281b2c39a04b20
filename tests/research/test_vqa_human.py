"""The scores and errors of the experiment on human questions."""

import sys
from pathlib import Path

import numpy as np
import pytest

from tallybox.vqa.data.questions import QuestionRecord
from tallybox.vqa.scoring import all_scores

sys.path.append(str(Path(__file__).parent.parent.parent / "research"))  # as its scripts see each other
from vqa_human_page import COLUMNS, paper_gain
from vqa_human_scores import Answers, difference

TABLE = ["0", "1", "2", "3", "yes", "many", "red", "25"]
RANDOM = np.random.default_rng(3)


def random_answers():
    records = [
        QuestionRecord(n, str(n), text, tuple(RANDOM.choice(TABLE, 10, p=[0.3, 0.3, 0.2, 0.1, *[0.025] * 4])), kind)
        for n in range(40)
        for text, kind in [(("How many dogs?", "number"), ("Is it red?", "yes/no"), ("What?", "other"))[n % 3]]
    ]
    pairs = np.array([(n, n + 3) for n in range(0, 30, 6)])
    return Answers(records, pairs, TABLE, ["a-0", "b-0", "a-1"], RANDOM.integers(0, len(TABLE), (40, 3)))


def test_scores_of_committed_answers_are_the_official_ones():
    answers = random_answers()
    for column, (row, seed) in enumerate((("a", 0), ("b", 0), ("a", 1))):
        said = {
            one.question_id: TABLE[index] for one, index in zip(answers.records, answers.said[:, column], strict=True)
        }
        for key, expected in all_scores(said, answers.records, answers.pairs).items():
            mean = answers.values(row, key)[seed].mean()
            assert (mean**0.5 if key == "count_rmse" else mean) == pytest.approx(expected), key


def test_the_error_of_a_difference_is_that_of_paired_questions_and_of_seeds():
    difficulty = RANDOM.normal(0, 10, 4000)  # of questions, which both rows share
    ahead, error = difference(difficulty[None] + 1, difficulty[None])
    assert ahead == pytest.approx(1)
    assert error < 1e-9
    noise = RANDOM.normal(0, 10, (2, 1, 4000))
    _, error = difference(noise[0], noise[1])
    assert error == pytest.approx((2 * 100 / 4000) ** 0.5, rel=0.1)
    seeds = np.array([-1.0, 1.0, -1.0, 1.0])[:, None]
    _, error = difference(np.broadcast_to(seeds, (4, 50)), np.zeros((4, 50)))
    assert error == pytest.approx(0.5, rel=0.1)  # a deviation of 1 over four seeds


def test_the_papers_gains_are_those_of_its_table():
    gain, error = paper_gain("counter", [*COLUMNS].index("count"))
    assert (gain, error) == (pytest.approx(57.03 - 51.69), pytest.approx(0.2 / 4**0.5))
    assert paper_gain("nms", [*COLUMNS].index("pair_count"))[0] == pytest.approx(19.72 - 20.02)
