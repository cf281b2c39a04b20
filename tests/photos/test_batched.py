"""The route of photos on a GPU, on the CPU: the same numbers as one photo at a time."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tallybox import PhotoCounter
from tallybox.photos import Photo, PicoDet, read_photo, sample_photos
from tallybox.photos.batched import letterbox_on, resize
from tallybox.photos.images import BICUBIC, letterbox
from tallybox.photos.network import load_picodet_network
from tallybox.photos.picodet import MAX_DETECTIONS, best_detections
from tests.support.photos import embedded_detector, embedded_estimator, gradient
from tests.support.shared_data import data_folder

SIDES = st.integers(1, 500)


class BatchedCounter(PhotoCounter):
    """Counts on the CPU by the route of a GPU, with PyTorch's network."""

    def __init__(self):
        detector = PicoDet(device="cpu")
        detector.network = load_picodet_network()
        detector.detect = detector.detect_batched
        super().__init__(detector, embedded_estimator())


@given(SIDES, SIDES, SIDES, SIDES, st.integers(0, 99))
def test_photos_are_resized_to_the_pixels_of_pillow(width, height, new_width, new_height, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    expected = np.asarray(Image.fromarray(pixels).resize((new_width, new_height), BICUBIC))
    found = resize(torch.from_numpy(pixels), (new_width, new_height))
    np.testing.assert_array_equal(found.numpy(), expected)


def test_photos_of_several_sizes_are_letterboxed_together():
    photos = [Photo(gradient(*size), size) for size in ((1000, 700), (320, 240), (640, 448))]
    resized = [(640, 448), (600, 440), (640, 448)]
    found = letterbox_on(torch.device("cpu"), [photo.pixels for photo in photos], resized, (640, 448))
    for photo, size, image in zip(photos, resized, found.numpy(), strict=True):
        np.testing.assert_array_equal(image, letterbox(photo.image, size, (640, 448), BICUBIC))


def assert_same_detections(found, expected, atol):
    """Boxes of nearly equal scores may change places, also with those that are left out behind the last."""
    assert (found.image_id, found.image_size, len(found)) == (expected.image_id, expected.image_size, len(expected))
    if len(found) == MAX_DETECTIONS:
        last = max(found.scores.min(), expected.scores.min()) + atol
        found, expected = (
            replace(image, boxes=image.boxes[kept], scores=image.scores[kept], category_ids=image.category_ids[kept])
            for image in (found, expected)
            for kept in [image.scores > last]
        )
    order, other = (np.lexsort((image.scores.round(3), image.category_ids)) for image in (found, expected))
    np.testing.assert_array_equal(found.category_ids[order], expected.category_ids[other])
    np.testing.assert_allclose(np.sort(found.scores), np.sort(expected.scores), atol=atol)
    for category in np.unique(found.category_ids):
        np.testing.assert_allclose(
            np.sort(found.of_category(category).boxes, 0), np.sort(expected.of_category(category).boxes, 0), atol=0.05
        )


def test_a_batch_gives_the_detections_of_each_photo():
    photos = [read_photo(path, reduced_to=1280) for path in sample_photos()]
    photos += [Photo(gradient(*size), size, "plain") for size in ((1, 1), (3, 4000))]
    found = embedded_detector().detect_batched(photos)
    for one, other in zip(found, embedded_detector().detect(photos), strict=True):
        assert_same_detections(one, other, atol=1e-6)
    assert embedded_detector().detect_batched([]) == []


def test_a_photo_with_too_many_candidates_is_left_to_the_host(monkeypatch):
    photos = [*(read_photo(path) for path in sample_photos()), Photo(Image.new("RGB", (64, 64)), (64, 64))]
    expected = embedded_detector().detect(photos)
    few = PicoDet(device="cpu")
    unfinished = []

    def run(canvas, sizes):
        rows = best_detections(few._maps(canvas), sizes, candidates=600)
        unfinished.extend(rows[:, 0, 0].isnan().tolist())
        return rows

    few._run = run
    for one, other in zip(few.detect_batched(photos), expected, strict=True):
        assert_same_detections(one, other, atol=1e-6)
    assert any(unfinished)
    assert not all(unfinished)


def assert_same_counts(counter, paths):
    found, expected = (each.count_many(paths) for each in (counter, PhotoCounter(embedded_detector())))
    for one, other in zip(found, expected, strict=True):
        assert one.path == other.path
        assert_same_detections(one.detections, other.detections, atol=1e-4)
        assert {n: p.count for n, p in one.counts.items()} == {n: p.count for n, p in other.counts.items()}


@pytest.mark.parametrize("photos", [8, pytest.param(100, marks=pytest.mark.slow)])
def test_photos_are_counted_in_batches_as_alone(photos):
    assert_same_counts(BatchedCounter(), sorted(data_folder("coco-photos").glob("*.jpg"))[:photos])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_photos_are_counted_on_a_gpu_as_on_a_cpu():
    counter, paths = PhotoCounter(device="cuda"), sample_photos()
    for _ in range(4):  # the last times, as CUDA graphs
        assert_same_counts(counter, [*paths, *paths, paths[0]])
