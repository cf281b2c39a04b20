import numpy as np
from benchmarks.synthetic_photos import made_up_photos

from tallybox.cli.evaluate import trust_lines
from tallybox.estimator.evaluation import evaluate, right_by_width
from tallybox.estimator.prediction import PredictionArrays
from tests.support.estimators import small_estimator


def test_counts_are_right_by_how_their_intervals_look():
    lows, highs = np.array([2, 2, 1, 1, 0]), np.array([2, 2, 3, 4, 9])
    counts = np.array([2, 2, 2, 2, 5])
    arrays = PredictionArrays(counts, counts, counts.astype(float), lows, highs, counts * 0, np.zeros((5, 3)))
    assert right_by_width(arrays, np.array([2, 3, 2, 1, 5])) == {"0": 0.5, "1-2": 1.0, "3-4": 0.0, "5+": 1.0}
    assert trust_lines({"0": 0.93, "5+": 0.2}).endswith("by its interval:\n  one number 93 %, wider 20 %")


def test_evaluation_says_how_often_counts_are_right():
    result = evaluate(small_estimator(), *made_up_photos(12, seed=4)).compute()
    assert set(result["right_by_width"]) <= {"0", "1-2", "3-4", "5+"}
    assert all(0 <= share <= 1 for share in result["right_by_width"].values())
