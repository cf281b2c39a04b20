"""On real photos: what an estimator must reach on unseen ones, beside NMS tuned on the same labels."""

from __future__ import annotations

import pytest

from tallybox import CountEstimator
from tallybox.detections.readers import read_counts, read_detections
from tallybox.estimator.evaluation import evaluate
from tests.support.shared_data import data_folder


def figures(photos: int):
    folder = data_folder("coco-count")
    labels = read_counts(folder / "instances_train.json.gz").first_images(photos)
    estimator = CountEstimator().fit(read_detections(folder / "detections_picodet_train.json.gz"), labels)
    unseen = read_detections(folder / "detections_picodet_val.json.gz")
    return evaluate(estimator, unseen, read_counts(folder / "instances_val.json.gz")).compute()


@pytest.mark.slow
@pytest.mark.parametrize("photos", [30, 100])
def test_few_labels_count_nearer_than_nms(photos):
    found = figures(photos)
    assert found["estimator"]["mae"] < found["nms"]["mae"] - 0.05
    assert found["estimator"]["exact"] > found["nms"]["exact"] - 0.03


@pytest.mark.slow
def test_3000_photos_give_right_counts_and_honest_intervals():
    found = figures(3000)
    assert found["estimator"]["exact"] >= 0.63
    assert found["estimator"]["mae"] <= 0.68
    assert found["mrmse"] <= 0.31
    assert found["mrmse_nz"] <= 1.65
    assert 0.88 <= found["coverage90"] <= 0.92
    assert all(0.85 <= share <= 0.95 for share in found["coverage90_by_predicted_count"].values())
    assert found["width90_by_predicted_count"]["1"] <= 1.15
    assert found["width90_by_predicted_count"]["2-4"] <= 3.7
