"""Large photos and crowds: each object is counted once, at one scale and in one window."""

import numpy as np
import pytest
from PIL import Image

from tallybox import Detections, PhotoCounter
from tallybox.errors import InputError
from tallybox.photos import Photo, read_photo, sample_photos
from tallybox.photos.tiles import (
    WINDOW,
    count_windows,
    crop_windows,
    join_windows,
    owned,
    plan_windows,
    split_windows,
    window_side,
)
from tests.support.photos import embedded_detector, embedded_estimator, gradient

SIZES = [(1280, 720), (1920, 1920), (3000, 500), (4032, 3024), (1300, 1290), (20_000, 90)]


@pytest.fixture(scope="module")
def mosaic():
    """Nine riders' photos side by side."""
    photo = read_photo(sample_photos()[1]).image
    canvas = Image.new("RGB", (3 * photo.width, 3 * photo.height))
    for index in range(9):
        canvas.paste(photo, (index % 3 * photo.width, index // 3 * photo.height))
    return canvas


@pytest.mark.parametrize("size_wh", SIZES)
@pytest.mark.parametrize("side", [WINDOW, 400])
def test_each_box_belongs_to_one_window_that_holds_it_unless_it_is_large(size_wh, side):
    random = np.random.default_rng(0)
    centres, sides = random.uniform(0, size_wh, (500, 2)), np.exp(random.uniform(0, np.log(max(size_wh)), (500, 2)))
    boxes = (
        np.concatenate((centres - sides / 2, centres + sides / 2), 1).clip(0, np.tile(size_wh, 2)).astype(np.float32)
    )
    windows = plan_windows(size_wh, side)
    owners = np.array([owned(boxes, window) for window in windows])
    assert (owners.sum(0) == 1).all()
    for window, rows in zip(windows, owners, strict=True):
        small = boxes[rows & ((boxes[:, 2:] - boxes[:, :2]).max(1) * window.scale < 300)]
        assert (small[:, :2] >= np.array(window.box[:2]) - 1).all()
        assert (small[:, 2:] <= np.array(window.box[2:]) + 1).all()


@pytest.mark.parametrize("size_wh", SIZES[:-1])
def test_windows_show_their_part_of_the_photo(size_wh):
    photo = Photo(gradient(*size_wh), size_wh, "large")
    windows = plan_windows(size_wh)
    whole = np.asarray(photo.image, float)
    for window, crop in zip(windows, crop_windows(photo, windows), strict=True):
        x1, y1, x2, y2 = window.box
        assert crop.size_wh == (x2 - x1, y2 - y1)
        assert np.abs(np.asarray(crop.image, float).mean((0, 1)) - whole[y1:y2, x1:x2].mean((0, 1))).max() < 6


def test_joined_detections_are_split_into_the_same_windows():
    size_wh = (1920, 1080)
    windows = plan_windows(size_wh)
    found = [Detections([[300, 200, 340, 260], [10, 10, 20, 20]], [0.9, 0.5], [1, 18], (640, 640)) for _ in windows]
    joined = join_windows(Photo(gradient(8, 8), size_wh, "large"), windows, found)
    assert sum(map(len, split_windows(joined, WINDOW))) == len(joined) > 0
    nothing = join_windows(Photo(gradient(8, 8), size_wh), windows, [Detections.empty(None) for _ in windows])
    assert split_windows(nothing, WINDOW) == []
    assert count_windows(embedded_estimator(), nothing, WINDOW, ["dog"])["dog"].count == 0


def test_a_mosaic_counts_nine_times_as_many(mosaic):
    counter = PhotoCounter(embedded_detector())
    (counted,) = counter.count_many([mosaic])
    assert counted.window == WINDOW
    for name in ("horse", "person"):
        prediction = counted.counts[name]
        assert prediction.low <= prediction.count <= prediction.high
        assert prediction.to_dict()["expected"] == pytest.approx(18, abs=8)
    assert counter.draw(counted).width == mosaic.width
    whole = PhotoCounter(embedded_detector(), tiles="off").count(mosaic)
    assert whole["horse"].count < counted.counts["horse"].count
    assert counter.count(mosaic, ["horse", "zebra"]).keys() == {"horse", "zebra"}


def test_a_crowd_in_a_small_photo_is_counted_in_windows(mosaic):
    small = mosaic.resize((960, 636))
    (counted,) = PhotoCounter(embedded_detector()).count_many([small])
    assert counted.window == 480
    (other,) = PhotoCounter(embedded_detector()).count_many([sample_photos()[1]])
    assert other.window == 0


def test_settings():
    assert [window_side((1279, 9), "auto"), window_side((1280, 9), "auto"), window_side((9000, 9), "off")] == [
        0,
        640,
        0,
    ]
    assert [window_side((900, 9), 300), window_side((300, 9), 300)] == [300, 0]
    for tiles in ("yes", 0, 63, True, 1.5, None):
        with pytest.raises(InputError, match="tiles"):
            PhotoCounter(embedded_detector(), tiles=tiles)
