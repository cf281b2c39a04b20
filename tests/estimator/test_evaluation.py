import json

import numpy as np
from benchmarks.synthetic_photos import made_up_photos

from tallybox.detections.labels import TrueCounts, counting_pairs
from tallybox.estimator.evaluation import evaluate, infer_labelled
from tallybox.estimator.prediction import PredictionArrays
from tests.support.estimators import small_estimator


def test_accuracy_is_told_by_the_width_of_intervals():
    lows, highs = np.array([2, 2, 1, 1, 0]), np.array([2, 2, 3, 4, 9])
    counts = np.array([2, 2, 2, 2, 5])
    none = counts == 0
    arrays = PredictionArrays(counts, counts, counts.astype(float), lows, highs, counts * 0, none, np.zeros((5, 3)))
    assert arrays.coverage(np.array([2, 3, 2, 1, 5]))["right_by_width"] == {"0": 0.5, "1-2": 1.0, "3-4": 0.0, "5+": 1.0}


def test_evaluation_scores_the_pairs_of_the_benchmark():
    photos, labels = made_up_photos(12, seed=4)
    result = evaluate(small_estimator(), photos, labels)
    inference, truth = infer_labelled(small_estimator(), photos, list(counting_pairs(photos, labels)))
    alone = inference.predictions("evaluation_pairs")
    assert result["pairs"] == len(truth)
    assert result["estimator"]["exact"] == np.mean(alone.most_probable == truth)
    assert result["coverage90"] == np.mean((alone.lows <= truth) & (truth <= alone.highs))


def test_labels_without_an_object_give_valid_json():
    photos = made_up_photos(4, seed=4)[0]
    empty = TrueCounts({photo.image_id: {} for photo in photos}, categories=made_up_photos(1)[1].categories)
    result = evaluate(small_estimator(), photos, empty)
    assert result["mrmse_nz"] is None
    json.dumps(result, allow_nan=False)
