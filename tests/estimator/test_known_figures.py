"""On real photos: what an estimator must reach on unseen ones, beside NMS tuned on the same labels."""

import pytest

from tallybox import CountEstimator
from tallybox.detections.readers import read_counts, read_detections
from tallybox.estimator.evaluation import evaluate
from tests.support.shared_data import data_folder


def figures(photos: int):
    folder = data_folder("coco-count")
    labels = read_counts(folder / "instances_train.json.gz")
    labels = labels.only(sorted(labels.counts)[:photos])
    estimator = CountEstimator().fit(read_detections(folder / "detections_picodet_train.json.gz"), labels)
    unseen = read_detections(folder / "detections_picodet_val.json.gz")
    return evaluate(estimator, unseen, read_counts(folder / "instances_val.json.gz"))


@pytest.mark.slow
@pytest.mark.parametrize("photos", [30, 100])
def test_few_labels_count_nearer_than_nms(photos):
    result = figures(photos)
    assert result["estimator"]["mae"] < result["nms"]["mae"] - 0.05
    assert result["estimator"]["exact"] > result["nms"]["exact"] - 0.03


@pytest.mark.slow
def test_3000_photos_give_right_counts_and_honest_intervals():
    result = figures(3000)
    assert result["estimator"]["exact"] >= 0.63
    assert result["estimator"]["mae"] <= 0.68
    assert result["mrmse"] <= 0.31
    assert result["mrmse_nz"] <= 1.65
    assert 0.88 <= result["coverage90"] <= 0.92
    assert all(0.85 <= share <= 0.95 for share in result["coverage90_by_predicted_count"].values())
    assert result["width90_by_predicted_count"]["1"] <= 1.15
    assert result["width90_by_predicted_count"]["2-4"] <= 3.7
