"""On real photos: what an estimator must reach on unseen ones, beside NMS tuned on the same labels."""

from __future__ import annotations

import pytest

from tallybox import CountEstimator
from tallybox.detections.files import read_counts, read_detections
from tallybox.estimator.evaluation import evaluate
from tests.support.shared_data import data_folder


def figures(photos: int):
    folder = data_folder("coco-count")
    labels = read_counts(folder / "instances_train.json.gz").first_images(photos)
    estimator = CountEstimator().fit(read_detections(folder / "detections_yolov4tiny_train.json.gz"), labels)
    unseen = read_detections(folder / "detections_yolov4tiny_val.json.gz")
    return evaluate(estimator, unseen, read_counts(folder / "instances_val.json.gz")).compute()


@pytest.mark.slow
@pytest.mark.parametrize(("photos", "ahead"), [(30, 0.0), (100, 0.08)])
def test_few_labels_count_better_than_nms(photos, ahead):
    found = figures(photos)
    assert found["estimator"]["exact"] >= found["nms"]["exact"] + ahead
    assert found["estimator"]["mae"] < found["nms"]["mae"]


@pytest.mark.slow
def test_3000_photos_give_right_counts_and_honest_intervals():
    found = figures(3000)
    assert found["estimator"]["exact"] >= 0.60
    assert found["estimator"]["mae"] <= 0.88
    assert 0.88 <= found["coverage90"] <= 0.92
    assert all(found["coverage90_by_true_count"][group] >= 0.8 for group in ("1", "2-4", "5+"))
