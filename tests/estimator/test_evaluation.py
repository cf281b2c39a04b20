import json

import numpy as np
from benchmarks.synthetic_photos import made_up_photos

from tallybox.detections.labels import TrueCounts, counting_pairs
from tallybox.estimator.evaluation import evaluate
from tallybox.estimator.inference import infer_pairs
from tests.support.estimators import small_estimator


def test_evaluation_scores_the_pairs_of_the_benchmark():
    photos, labels = made_up_photos(12, seed=4)
    result = evaluate(small_estimator(), photos, labels)
    pairs, truth = counting_pairs(photos, labels)
    alone = infer_pairs(small_estimator().fitted, photos, pairs).predictions("evaluation_pairs")
    assert result["pairs"] == len(truth)
    assert result["estimator"]["exact"] == np.mean(alone.most_probable == truth)
    assert result["coverage90"] == np.mean((alone.lows <= truth) & (truth <= alone.highs))


def test_labels_without_an_object_give_valid_json():
    photos = made_up_photos(4, seed=4)[0]
    empty = TrueCounts({photo.image_id: {} for photo in photos}, categories=made_up_photos(1)[1].categories)
    result = evaluate(small_estimator(), photos, empty)
    assert result["mrmse_nz"] is None
    json.dumps(result, allow_nan=False)
