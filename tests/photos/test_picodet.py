import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tallybox.detections.categories import COCO_CATEGORY_IDS
from tallybox.errors import InputError
from tallybox.photos import Photo, PicoDet, read_photo, sample_photos
from tallybox.photos.network import load_picodet_network
from tallybox.photos.picodet import MAX_PER_CATEGORY, MIN_SCORE, NMS_IOU
from tests.support.photos import embedded_detector, embedded_estimator, gradient
from tests.support.shared_data import data_folder
from tests.support.tolerances import STORED_BOXES, STORED_SCORES

PERSON, BUS, HORSE, SUITCASE = 1, 6, 19, 33


@pytest.fixture(scope="module")
def samples():
    return [read_photo(path) for path in sample_photos()]


@pytest.fixture(scope="module")
def detected(samples):
    return embedded_detector().detect(samples)


def unmatched(image, results) -> tuple[int, int]:
    """Return how many stored results have no equal detection, and how many detections are left over."""
    left = np.ones(len(image), np.bool_)
    missing = 0
    for result in results:
        x, y, width, height = result["bbox"]
        equal = left & (image.category_ids == result["category_id"])
        equal &= np.abs(image.boxes - [x, y, x + width, y + height]).max(1) <= STORED_BOXES.atol
        equal &= np.abs(image.scores - result["score"]) <= STORED_SCORES.atol
        if equal.any():
            left[np.argmax(equal)] = False
        else:
            missing += 1
    return missing, int(left.sum())


def stored_results(folder: Path) -> dict[int, list[dict]]:
    with gzip.open(folder / "detections_picodet_val.json.gz") as file:
        results: dict[int, list[dict]] = {}
        for result in json.load(file):
            results.setdefault(result["image_id"], []).append(result)
    return results


def compare_with_stored(paths: list[Path]) -> tuple[int, int, int]:
    """Return how many results are stored for some photos, how many are missing, and how many come besides them."""
    results = stored_results(data_folder("coco-count"))
    stored = missing = extra = 0
    for path in paths:
        expected = results.get(int(path.stem), [])
        (image,) = embedded_detector().detect([read_photo(path)])
        lost, left = unmatched(image, expected)
        stored, missing, extra = stored + len(expected), missing + lost, extra + left
    return stored, missing, extra


@pytest.mark.parametrize("photos", [8, pytest.param(100, marks=pytest.mark.slow)])
def test_photos_give_the_stored_boxes_and_scores(photos):
    paths = sorted(data_folder("coco-photos").glob("*.jpg"))[:photos]
    stored, missing, extra = compare_with_stored(paths)
    assert len(paths) == photos
    assert stored > 100 * photos
    assert missing <= 0.005 * stored
    assert extra <= missing  # one takes the place of another where scores are equal


def test_detections_have_the_form_that_the_estimator_learned_from(detected, samples):
    for image, photo in zip(detected, samples, strict=True):
        assert image.image_size == photo.size_wh
        assert image.image_id == photo.name
        assert 0 < len(image) <= 200
        assert (image.scores > MIN_SCORE).all()
        assert (np.diff(image.scores) <= 0).all()
        assert set(image.category_ids.tolist()) <= set(COCO_CATEGORY_IDS)
        assert (image.boxes >= 0).all()
        assert (image.boxes[:, 2:] <= np.array(photo.size_wh)).all()
        assert (image.boxes[:, 2:] > image.boxes[:, :2]).all()


def test_nms_is_within_categories(detected):
    from tallybox.boxes import numpy_box_iou

    crossing = 0
    for image in detected:
        iou = np.triu(numpy_box_iou(image.boxes, image.boxes), 1)
        same = image.category_ids[:, None] == image.category_ids
        assert iou[same].max() <= NMS_IOU + 1e-6
        crossing += (iou[~same] > NMS_IOU).sum()
        assert np.unique(image.category_ids, return_counts=True)[1].max() <= MAX_PER_CATEGORY
    assert crossing > 0


def test_the_sample_photos_are_counted(detected):
    buses, riders, lobby = embedded_estimator().predict_many(detected)
    assert buses["bus"].count == 2
    assert buses["car"].low <= 4 <= buses["car"].high
    assert (riders["person"].count, riders["horse"].count) == (2, 2)
    assert lobby["suitcase"].low <= 12 <= lobby["suitcase"].high


def test_convolutions_use_all_bits_whatever_is_allowed_elsewhere(samples):
    allowed = []
    detector = PicoDet(device="cpu")
    detector.network = load_picodet_network()  # as on a GPU
    detector.network.register_forward_pre_hook(lambda *_: allowed.append(torch.backends.cudnn.allow_tf32))
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
    assert embedded_detector().detect([blank])[0].best_scores().get(PERSON, 0) < 0.3
    assert embedded_estimator().predict(embedded_detector().detect([blank])[0], ["person"])["person"].count == 0
    assert embedded_detector().detect([]) == []


@pytest.mark.parametrize("size", [0, 63, -640, 640.0, True, 5000])
def test_a_wrong_size_is_one_line(size):
    with pytest.raises(InputError, match="from 64 to 4096"):
        PicoDet(size=size)


def test_a_large_photo_is_seen_as_its_reduced_copy(samples):
    photo = samples[0]
    large = photo.image.resize((2560, 1920), Image.Resampling.BICUBIC)
    whole = Photo(large, large.size, "large")
    reduced = Photo(large.reduce(2), large.size, "large")
    expected = embedded_detector().detect([photo])[0].best_scores()[BUS]
    for image in embedded_detector().detect([whole, reduced]):
        assert image.image_size == (2560, 1920)
        assert image.best_scores()[BUS] == pytest.approx(expected, abs=0.05)
        assert image.boxes[:, 2].max() > 2000
