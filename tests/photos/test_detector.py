from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image

from tallybox.detections.category_names import COCO_CATEGORY_IDS
from tallybox.detections.files import read_detections
from tallybox.errors import InputError
from tallybox.photos import DarknetDetector, Photo, YoloV4Tiny, read_photo, sample_photos, yolov4tiny_files
from tests.support.detection_sets import coco_results, write_json
from tests.support.photos import embedded_detector, embedded_estimator, gradient

PERSON, BUS = 1, 6


@pytest.fixture(scope="module")
def samples():
    return [read_photo(path) for path in sample_photos()]


@pytest.fixture(scope="module")
def detected(samples):
    return embedded_detector().detect(samples)


def test_detections_have_the_form_that_the_estimator_learned_from(detected, samples):
    for image, photo in zip(detected, samples, strict=True):
        assert image.image_size == photo.size_wh
        assert image.image_id == photo.name
        assert len(np.unique(image.boxes, axis=0)) <= 100
        assert (image.scores > 0.01).all()
        assert set(image.category_ids.tolist()) <= set(COCO_CATEGORY_IDS)
        assert (image.boxes >= 0).all()
        assert (image.boxes[:, 2:] <= np.array(photo.size_wh)).all()
        assert (image.boxes[:, 2:] > image.boxes[:, :2]).all()


def busy() -> Photo:
    """Four buses with people: more than 100 proposals score above 0.01."""
    bus = read_photo(sample_photos()[1]).image
    collage = Image.new("RGB", (2 * bus.width, 2 * bus.height))
    for place in range(4):
        collage.paste(bus, (place % 2 * bus.width, place // 2 * bus.height))
    return Photo(collage, collage.size, "busy")


@pytest.mark.parametrize("photo", [read_photo(sample_photos()[0]), busy()], ids=["two men", "busy"])
def test_the_best_hundred_proposals_are_there_before_suppression(photo):
    raw = embedded_detector().propose([photo])
    scores = (raw.objectness.sigmoid()[..., None] * raw.classes.sigmoid())[0].numpy()
    best = scores[np.argsort(-scores.max(1))[:100]]
    image = embedded_detector().detect([photo])[0]
    np.testing.assert_allclose(np.sort(image.scores), np.sort(best[best > 0.01]), atol=1e-6)
    if photo.name == "busy":
        assert len(np.unique(image.boxes, axis=0)) == 100


def test_a_batch_is_seen_as_each_photo_alone(samples, detected):
    for photo, together in zip(samples, detected, strict=True):
        alone = embedded_detector().detect([photo])[0]
        np.testing.assert_allclose(np.sort(alone.scores)[-80:], np.sort(together.scores)[-80:], atol=1e-4)
        best = together.scores > 0.3
        np.testing.assert_allclose(alone.boxes[alone.scores > 0.3], together.boxes[best], atol=0.05)


def test_photos_count_as_the_file_of_their_detections(tmp_path, detected):
    estimator = embedded_estimator()
    path = write_json(tmp_path / "detections.json", json.dumps(coco_results(detected)))
    for direct, from_file in zip(
        estimator.predict(detected), estimator.predict(list(read_detections(path))), strict=True
    ):
        assert direct.keys() == from_file.keys()
        for category, prediction in direct.items():
            assert prediction.to_dict() == pytest.approx(from_file[category].to_dict(), abs=2e-3)


def test_the_bus_and_the_people_at_it(detected):
    counts = embedded_estimator().predict(detected[1], [PERSON, BUS])
    assert counts[BUS].count == 1
    assert counts[PERSON].count in (3, 4)  # one is cut by the edge


def test_the_two_men_lie_in_the_interval(detected):
    men = embedded_estimator().predict(detected[0], [PERSON])[PERSON]
    assert men.low <= 2 <= men.high


@pytest.mark.xfail(reason="the estimator says 3: this detector draws a box between them, and faint ones on the crowd")
def test_the_two_men_are_counted_right(detected):
    assert embedded_estimator().predict(detected[0], [PERSON])[PERSON].count == 2


def test_convolutions_use_all_bits_whatever_is_allowed_elsewhere(samples):
    allowed = []
    detector = YoloV4Tiny(device="cpu")
    detector.model.register_forward_pre_hook(lambda *_: allowed.append(torch.backends.cudnn.allow_tf32))
    before = torch.backends.cudnn.allow_tf32
    detector.propose(samples[:1])
    assert allowed == [False]
    assert torch.backends.cudnn.allow_tf32 == before


@pytest.mark.parametrize("size", [(1, 1), (4000, 3), (3, 4000)])
def test_any_shape_is_detected_in(size):
    image = embedded_detector().detect([Photo(gradient(*size), size)])[0]
    assert (image.boxes[:, 2:] <= np.array(size)).all()


def test_a_blank_photo_shows_nothing():
    blank = Photo(Image.new("RGB", (640, 480), (114, 114, 114)), (640, 480), "blank")
    assert embedded_detector().detect([blank])[0].best_scores().get(PERSON, 0) < 0.05
    assert embedded_detector().detect([]) == []


@pytest.mark.parametrize("size", [0, 400, -32, 416.0, True])
def test_a_wrong_size_is_one_line(size):
    with pytest.raises(InputError, match="multiple of 32 pixels"):
        YoloV4Tiny(size=size)


def test_every_class_needs_a_category():
    with pytest.raises(InputError, match="one id for each of the 80 classes"):
        DarknetDetector(yolov4tiny_files(), [1, 2, 3])
