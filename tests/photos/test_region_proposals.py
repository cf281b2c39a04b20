"""Regions with the features of other detectors than PicoDet."""

import numpy as np
import pytest
import torch

from tallybox.detections.detections import Detections
from tallybox.errors import TallyboxError
from tallybox.files import import_optional
from tallybox.photos.detectors.torchvision_models import TorchvisionDetector
from tallybox.photos.features import describe_regions
from tallybox.photos.specs import detector_of
from tests.support.small_photos import small_photos
from tests.support.transformers_models import save_detr, save_owlvit, save_rt_detr

NAMES = {0: "apple", 1: "cup", 2: "dog"}


@pytest.mark.parametrize(("save", "features"), [(save_detr, 16), (save_rt_detr, 16)])
def test_regions_of_a_transformer_are_its_boxes_with_the_states_of_its_queries(tmp_path, save, features):
    detector = detector_of(f"transformers:{save(tmp_path / 'model', NAMES)}", device="cpu")
    photos = small_photos()
    found = describe_regions(detector, photos)
    for regions, detected, photo in zip(found, detector.detect(photos), photos, strict=True):
        assert regions.features.shape == (len(regions.boxes_xyxy), features)
        assert regions.features.any(1).all()
        assert (np.diff(regions.scores) <= 0).all()
        # The processor's own post-processing, which keeps fewer of RT-DETR's, gives these boxes the same scores.
        near = np.abs(detected.boxes[None] - regions.boxes_xyxy[:, None]).max(-1) < 1e-3 * max(photo.size_wh)  # [R, N]
        assert near[0].any()
        for region in np.flatnonzero(near.any(1)):
            assert detected.scores[near[region]].max() == pytest.approx(regions.scores[region], rel=1e-5)
    alone = describe_regions(detector, photos[:1])[0]
    np.testing.assert_allclose(alone.features, found[0].features, rtol=1e-4, atol=1e-5)


class Boxes:
    """A detector of one's own, which tells boxes and scores only."""

    def __init__(self):
        self.categories = {3: "cup", 7: "dog", 9: "cat"}

    def detect(self, photos):
        boxes = np.array([[0, 0, 9, 9], [0, 0, 9, 9], [20, 0, 30, 9], [20, 0, 30, 9.5]], np.float32)
        scores, category_ids = np.array([0.6, 0.5, 0.9, 0.7]), np.array([3, 9, 7, 7])
        full = Detections(boxes, scores, category_ids, photos[0].size_wh, photos[0].name)
        empty = Detections(np.empty((0, 4)), np.empty(0), np.empty(0, int), photos[0].size_wh, photos[0].name)
        return [full, empty][: len(photos)]


def test_regions_of_any_detector_have_the_scores_of_its_categories():
    full, empty = describe_regions(Boxes(), small_photos([(64, 48), (64, 48)]))
    assert full.boxes_xyxy.tolist() == [[20, 0, 30, 9], [0, 0, 9, 9]]  # the best first, duplicates suppressed
    np.testing.assert_allclose(full.features, [[0, 0.9, 0], [0.6, 0, 0.5]])
    assert empty.boxes_xyxy.tolist() == [[0, 0, 64, 48]]
    assert empty.features.tolist() == [[0, 0, 0]]


def test_regions_of_a_zero_shot_model_have_the_scores_of_its_phrases(tmp_path):
    detector = detector_of(f"transformers:{save_owlvit(tmp_path / 'model')}", texts=["dog", "cup"], device="cpu")
    (regions,) = describe_regions(detector, small_photos([(64, 48)]))
    assert regions.features.shape[1] == 2


def test_regions_of_an_r_cnn_have_the_outputs_of_its_box_head():
    try:
        models = import_optional("torchvision.models", needed_for="this detector", install="torchvision")
    except TallyboxError as error:
        pytest.skip(str(error))
    torch.manual_seed(0)
    model = models.get_model(
        "fasterrcnn_mobilenet_v3_large_320_fpn", weights=None, weights_backbone=None, num_classes=4, min_size=64
    )
    model.rpn.score_thresh = 0.0
    names = {1: "apple", 2: "cup", 3: "dog"}
    detector = TorchvisionDetector(model, names=names, device="cpu")
    model.roi_heads.score_thresh, model.roi_heads.nms_thresh, model.roi_heads.detections_per_img = 0.0, 0.99, 1000
    photos = small_photos([(96, 64), (64, 96)])
    for regions, detected in zip(describe_regions(detector, photos), detector.detect(photos), strict=True):
        assert regions.features.shape == (len(regions.boxes_xyxy), 1024)
        # The model's own forward pass finds the same boxes with the same scores.
        distance = np.abs(detected.boxes[None] - regions.boxes_xyxy[:, None]).max(-1)
        nearest = distance.argmin(1)
        assert (distance.min(1) < 0.01).mean() > 0.5  # it leaves out small boxes and near duplicates
        same = distance.min(1) < 0.01
        np.testing.assert_allclose(detected.scores[nearest[same]], regions.scores[same], rtol=0.02)
