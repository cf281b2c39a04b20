from __future__ import annotations

import numpy as np
import pytest

from tallybox.detections.suppression import nms, pairwise_iou
from tallybox.photos import read_photo, sample_photos
from tallybox.photos.features import choose_regions, evidence, region_features
from tests.support.photos import embedded_detector
from tests.support.shared_data import data_folder


@pytest.fixture(scope="module")
def regions():
    return region_features(embedded_detector(), [read_photo(path) for path in sample_photos()])


def test_features_are_the_logits_of_objectness_and_categories(regions):
    for one in regions:
        assert one.features.shape == (len(one.boxes_xyxy), 81)
        assert one.features.dtype == one.scores.dtype == np.float16
        probabilities = 1 / (1 + np.exp(-one.features.astype(np.float64)))
        np.testing.assert_allclose(probabilities[:, 0] * probabilities[:, 1:].max(1), one.scores, atol=1e-3)
        assert np.abs(one.features).max() <= 13.82
        assert (np.diff(one.scores) <= 0).all()


def test_evidence_is_the_log_odds_of_an_object_and_of_one_of_each_category(regions):
    for one in regions:
        found = evidence(one.features)
        assert found.dtype == np.float32
        assert found.min() == 0
        objectness, categories = np.split(1 / (1 + np.exp(-one.features.astype(np.float64))), [1], axis=1)
        probability = np.concatenate((objectness, objectness * categories), axis=1)
        log_odds = np.log(probability / (1 - probability))
        likely = log_odds > -5
        np.testing.assert_allclose(found[likely], (log_odds[likely] + 5) / 4, rtol=1e-5)
        assert not found[~likely].any()
        np.testing.assert_array_equal(found[:, 1:].argmax(1), categories.argmax(1))


def test_regions_are_ten_to_thirty_six_and_apart(regions):
    for one in regions:
        assert 10 <= len(one.scores) <= 36
        assert (one.scores[10:] > 0.03).all()
        overlap = pairwise_iou(one.boxes_xyxy)
        assert overlap[~np.eye(len(overlap), dtype=bool)].max() <= 0.7


def test_regions_are_those_of_suppressing_everything():
    random = np.random.default_rng(0)
    for scale in (0.02, 0.2, 1.0):
        corner = random.uniform(0, 300, (600, 2))
        boxes = np.concatenate((corner, corner + random.uniform(20, 200, (600, 2))), 1).astype(np.float32)
        scores = (random.beta(1, 4, 600) * scale).astype(np.float32)
        kept = np.flatnonzero(nms(boxes, scores, [0.7])[0])
        kept = kept[np.argsort(-scores[kept], kind="stable")]
        expected = [box for rank, box in enumerate(kept) if rank < 10 or scores[box] > 0.03][:36]
        assert choose_regions(boxes, scores).tolist() == expected


def test_many_copies_of_one_box_leave_no_gap():
    boxes = np.concatenate(
        (np.tile([[0, 0, 50, 50]], (900, 1)), [[200 * i, 0, 200 * i + 90, 90] for i in range(1, 13)])
    )
    scores = np.concatenate((np.linspace(0.9, 0.8, 900), np.linspace(0.02, 0.01, 12)))
    assert len(choose_regions(boxes.astype(np.float32), scores.astype(np.float32))) == 10


def test_the_data_of_coco_was_chosen_likewise():
    data = np.load(data_folder("coco-vqa") / "features_yolov4tiny_val.npz")
    ends = data["num_boxes"].cumsum()
    for end, number in list(zip(ends, data["num_boxes"], strict=True))[:50]:
        boxes, scores = data["boxes_xyxy"][end - number : end], data["scores"][end - number : end].astype(np.float32)
        assert len(choose_regions(boxes, scores)) == number
