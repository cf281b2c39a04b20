"""On real photos, as a dense detector would see them: dozens of near-identical boxes an object, other scores."""

import pytest

from tallybox import CountEstimator
from tallybox.detections.readers import read_counts, read_detections
from tallybox.estimator.evaluation import evaluate
from tests.support.dense_detections import dense
from tests.support.shared_data import data_folder

PHOTOS, UNSEEN = 150, 300


@pytest.mark.slow
def test_near_identical_boxes_are_thinned_and_counted_better_than_by_nms():
    folder = data_folder("coco-count")
    labels = read_counts(folder / "instances_train.json.gz")
    learned_from = labels.only(sorted(labels.counts)[:PHOTOS])
    unseen = labels.only(sorted(labels.counts)[-UNSEEN:])
    image_ids = learned_from.counts.keys() | unseen.counts.keys()
    images = read_detections(folder / "detections_yolov4tiny_train.json.gz")
    photos = [dense(image) for image in images if image.image_id in image_ids]
    assert sum(len(photo) for photo in photos) > 500 * len(photos)
    estimator = CountEstimator(members=2).fit(photos, learned_from)
    assert estimator.fitted.config.nms_iou < 1
    figures = evaluate(estimator, photos, unseen)
    assert figures["estimator"]["exact"] > figures["nms"]["exact"] + 0.04
    assert figures["estimator"]["mae"] < figures["nms"]["mae"] - 0.08
