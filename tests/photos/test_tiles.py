"""Large photos and crowds: windows, blocks, and counts of mosaics with known truth."""

import gzip
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tallybox import CountEstimator, PhotoCounter
from tallybox.detections.detections import Detections
from tallybox.photos import sample_photos
from tallybox.photos.images import Photo, read_photo
from tallybox.photos.tiles import (
    WINDOW,
    belongs_to,
    blocks_of,
    count_blocks,
    crop_windows,
    join_windows,
    plan_windows,
    window_side,
)
from tests.support.photos import embedded_detector, embedded_estimator, gradient
from tests.support.shared_data import data_folder

SIZES = st.tuples(st.integers(200, 5000), st.integers(200, 5000))
SIDES = st.sampled_from((100, 320, 640, 1000))
FRACTIONS = st.lists(st.tuples(*[st.floats(0, 1, width=32)] * 4), min_size=1, max_size=20)


def boxes_in(size_wh: tuple[int, int], fractions: list[tuple[float, ...]]) -> np.ndarray:
    corners = np.array(fractions, np.float32) * np.tile(np.float32(size_wh), 2)
    return np.concatenate((np.minimum(corners[:, :2], corners[:, 2:]), np.maximum(corners[:, :2], corners[:, 2:])), 1)


@pytest.fixture(scope="module")
def counter():
    return PhotoCounter(embedded_detector(), embedded_estimator())


@pytest.fixture(scope="module")
def mosaic():
    """Four sample photos in one of 1,280 x 1,280."""
    picture = Image.new("RGB", (1280, 1280), (114, 114, 114))
    for place, path in enumerate((*sample_photos(), sample_photos()[1])):
        photo = Image.open(path)
        photo.thumbnail((640, 640))
        picture.paste(photo, (640 * (place % 2), 640 * (place // 2)))
    return picture


@given(SIZES, SIDES, FRACTIONS)
def test_every_box_belongs_to_one_window_at_one_scale(size_wh, side, fractions):
    windows = plan_windows(size_wh, side)
    owners = np.array([belongs_to(window, boxes_in(size_wh, fractions)) for window in windows])
    np.testing.assert_array_equal(owners.sum(0), 1)


@given(SIZES, SIDES, FRACTIONS)
def test_windows_do_not_cut_objects_of_half_their_side(size_wh, side, fractions):
    boxes = boxes_in(size_wh, fractions)
    for window in plan_windows(size_wh, side):
        small = (boxes[:, 2:] - boxes[:, :2]).max(1) * window.scale <= WINDOW / 2
        whole = boxes[belongs_to(window, boxes) & small]
        slack = 1 + 1 / window.scale  # windows and their cells start at whole pixels
        assert (whole >= np.tile(window.box[:2], 2) - slack).all()
        assert (whole <= np.tile(window.box[2:], 2) + slack).all()


@given(SIZES, SIDES, FRACTIONS)
def test_every_box_is_in_one_block(size_wh, side, fractions):
    boxes = boxes_in(size_wh, fractions)
    image = Detections(boxes, np.linspace(0.1, 0.9, len(boxes)), np.ones(len(boxes), np.int64), size_wh)
    blocks = blocks_of(image, side)
    back = np.concatenate([block.in_photo().boxes for block in blocks])
    scores = np.concatenate([block.detections.scores for block in blocks])
    np.testing.assert_allclose(back[np.argsort(scores)], boxes, atol=1e-2)


def test_crops_show_what_their_windows_say():
    photo = Photo(gradient(2000, 1000), (4000, 2000))  # decoded at half its size
    windows = plan_windows(photo.size_wh)
    for window, crop in zip(windows, crop_windows(photo, windows), strict=True):
        assert crop.size_wh == (window.box[2] - window.box[0], window.box[3] - window.box[1])
        left = np.asarray(crop.image)[0, 0, 0] / 255 * photo.size_wh[0]
        assert left == pytest.approx(window.box[0], abs=60)


def test_boxes_of_overlapping_windows_are_joined_once():
    photo = Photo(gradient(1280, 640), (1280, 640))
    windows = plan_windows(photo.size_wh)
    dog = np.float32([500, 200, 700, 400])  # in several windows
    found = []
    for window in windows:
        corner = np.tile(np.float32(window.box[:2]), 2)
        seen = int((dog[:2] >= window.box[:2]).all() and (dog[2:] <= window.box[2:]).all())
        found.append(Detections([dog - corner] * seen, [0.9] * seen, [18] * seen))
    assert sum(map(len, found)) > 1
    joined = join_windows(photo, windows, found)
    np.testing.assert_allclose(joined.boxes, [dog])
    assert count_blocks(embedded_estimator(), joined, 640)[0]["dog"].count == 1


def test_of_an_object_in_two_windows_the_better_box_stays():
    photo = Photo(gradient(1280, 640), (1280, 640))
    windows = plan_windows(photo.size_wh)
    at_edge, beyond = np.float32([[500, 200, 630, 400], [500, 200, 660, 400]])  # in the first tile, and in none
    found = [Detections([], [], []) for _ in windows]
    for box, score in ((at_edge, 0.6), (beyond, 0.7)):
        (owner,) = (index for index, window in enumerate(windows) if belongs_to(window, box[None])[0])
        found[owner] = Detections([box - np.tile(np.float32(windows[owner].box[:2]), 2)], [score], [18])
    assert sum(map(len, found)) == 2
    np.testing.assert_allclose(join_windows(photo, windows, found).boxes, [beyond])


def test_a_part_of_a_large_object_is_not_another_object():
    photo = Photo(gradient(1920, 1920), (1920, 1920))
    windows = plan_windows(photo.size_wh)
    whole, part, apart = np.float32([[300, 300, 1700, 1600], [700, 700, 900, 1000], [1705, 100, 1900, 400]])
    found = [Detections([], [], []) for _ in windows]
    for box, score in ((whole, 0.8), (part, 0.7), (apart, 0.7)):
        (owner,) = (index for index, window in enumerate(windows) if belongs_to(window, box[None])[0])
        assert not len(found[owner])
        found[owner] = Detections([box - np.tile(np.float32(windows[owner].box[:2]), 2)], [score], [18])
    np.testing.assert_allclose(sorted(join_windows(photo, windows, found).boxes.tolist()), [whole, apart])


def test_windows_are_for_large_photos_and_crowds():
    assert window_side((1279, 900), "auto") == 0
    assert window_side((900, 1280), "auto") == 640
    assert window_side((1000, 900), "auto", crowded=True) == 500
    assert window_side((9000, 9000), "off", crowded=True) == 0
    assert window_side((1000, 900), 200) == 200
    assert window_side((1000, 900), 1000) == 0
    assert [window_side((4000, 3000), "auto", fitted_side=side) for side in (0, 1500, 4000)] == [640, 1500, 0]


def test_a_mosaic_counts_about_as_much_as_its_photos(counter, mosaic):
    (counted,) = counter.count_many([mosaic])
    parts = [counter.count(path) for path in (*sample_photos(), sample_photos()[1])]
    assert counted.tiling is not None
    assert counted.tiling.windows == len(plan_windows(mosaic.size))
    for name in ("person", "horse"):
        single = sum(part[name].expected for part in parts)
        prediction = counted.counts[name]
        assert prediction.expected == pytest.approx(single, rel=0.25)
        assert prediction.low <= single <= prediction.high
    whole = PhotoCounter(embedded_detector(), embedded_estimator(), tiles="off").count(mosaic)
    assert counted.predictions.moments.keys() >= {1, 19}
    assert sum(p.expected for p in whole.values()) < 0.9 * sum(p.expected for p in counted.counts.values())


def test_an_ordinary_photo_of_many_pixels_needs_no_windows(counter):
    photo = Image.open(sample_photos()[1])
    enlarged = photo.resize((3 * photo.width, 3 * photo.height))
    (small,), (large,) = counter.count_many([photo]), counter.count_many([enlarged])
    assert large.tiling is None
    for name in small.counts.keys() | large.counts.keys():
        assert abs(large.counts[name].count - small.counts[name].count) <= 1
    assert PhotoCounter(embedded_detector(), embedded_estimator(), tiles=640).count_many([enlarged])[0].tiling


def test_an_estimator_fitted_to_large_photos_counts_such_photos_as_a_whole(mosaic, tmp_path):
    images = [Detections([[0, 0, 9, 9]], [0.9], [1], (1400 + i, 900), i, {1: "person"}) for i in range(9)]
    CountEstimator(members=2).fit(images, {(i, 1): 1 for i in range(9)}).save(tmp_path / "own.safetensors")
    own = PhotoCounter(embedded_detector(), tmp_path / "own.safetensors")
    assert own.count_many([mosaic])[0].tiling is None
    assert own.count_many([read_photo(mosaic.resize((2816, 2816)))])[0].tiling.side == 1404


def test_a_mosaic_of_real_photos_counts_what_its_photos_count(counter):
    photos = sorted(data_folder("coco-photos").glob("*.jpg"))[:9]
    picture = Image.new("RGB", (1920, 1920))
    for place, path in enumerate(photos):
        picture.paste(Image.open(path), (640 * (place % 3), 640 * (place // 3)))
    singles = sum(p.expected for path in photos for p in counter.count(path).values())
    in_windows = sum(p.expected for p in counter.count(picture).values())
    plain = PhotoCounter(embedded_detector(), embedded_estimator(), tiles="off").count(picture)
    assert in_windows == pytest.approx(singles, rel=0.2)
    assert sum(p.expected for p in plain.values()) < 0.6 * singles


def test_a_grid_of_a_hundred_people_counts_at_least_eighty(counter):
    folder = data_folder("coco-photos")
    with gzip.open(data_folder("coco-count") / "instances_val.json.gz") as file:
        people = [a for a in json.load(file)["annotations"] if a["category_id"] == 1 and not a["iscrowd"]]
    crops = []
    for person in people:
        x, y, width, height = person["bbox"]
        path = folder / f"{person['image_id']:012}.jpg"
        if path.exists() and height > 100 and width > 30 and height > 1.2 * width:
            crops.append(Image.open(path).crop((x, y, x + width, y + height)))
    grid = Image.new("RGB", (1600, 1200), (114, 114, 114))
    for place in range(100):
        crop = crops[place % len(crops)]
        scale = min(150 / crop.width, 112 / crop.height)
        crop = crop.resize((int(crop.width * scale), int(crop.height * scale)))
        grid.paste(crop, (160 * (place % 10) + (160 - crop.width) // 2, 120 * (place // 10) + 4))
    assert 80 <= counter.count(grid)["person"].count <= 120
    small = counter.count(grid.resize((640, 480)))["person"]  # the detector's limit of boxes is used up
    assert 40 <= small.count <= 120
    assert small.saturated
    plain = PhotoCounter(embedded_detector(), embedded_estimator(), tiles="off")
    assert plain.count(grid)["person"].count < 50
