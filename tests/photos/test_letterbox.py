from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from tallybox.photos import Photo
from tallybox.photos.letterbox import GREY, boxes_in_photo, fitted_size, letterbox
from tests.support.photos import gradient


def test_photos_lie_at_the_top_left_and_the_rest_is_grey():
    wide, high = gradient(64, 48), gradient(48, 64)
    squares = letterbox([Photo(wide, wide.size), Photo(high, high.size)], 32)
    assert squares.shape == (2, 3, 32, 32)
    assert squares.dtype == torch.uint8
    assert (squares[0, :, 24:] == GREY).all()
    assert (squares[1, :, :, 24:] == GREY).all()
    expected = np.asarray(gradient(32, 24)).transpose(2, 0, 1)
    assert np.abs(squares[0, :, :24].numpy().astype(int) - expected).max() < 8


def test_a_reduced_photo_is_placed_by_its_own_size():
    whole = gradient(640, 480)
    reduced = Photo(whole.reduce(2), whole.size)
    assert (letterbox([reduced], 416)[0, 0, 312:] == GREY).all()


@given(
    size=st.tuples(st.integers(1, 5000), st.integers(1, 5000)),
    corners=st.tuples(*[st.floats(0, 1)] * 4),
)
def test_boxes_come_back_where_they_were(size, corners):
    x1, x2 = sorted((corners[0] * size[0], corners[2] * size[0]))
    y1, y2 = sorted((corners[1] * size[1], corners[3] * size[1]))
    fitted = fitted_size(size, 416)
    across, down = fitted[0] / size[0], fitted[1] / size[1]
    on_square = torch.tensor(
        [[(x1 + x2) / 2 * across, (y1 + y2) / 2 * down, (x2 - x1) * across, (y2 - y1) * down]], dtype=torch.float64
    )
    found = boxes_in_photo(on_square, size, 416)[0]
    torch.testing.assert_close(found, torch.tensor([x1, y1, x2, y2], dtype=torch.float64), atol=1e-6, rtol=1e-9)


@given(st.lists(st.tuples(*[st.floats(-1e4, 1e4)] * 2, *[st.floats(0, 1e5)] * 2), max_size=5))
def test_boxes_never_leave_the_photo_nor_turn_over(boxes):
    found = boxes_in_photo(torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4), (640, 480), 416)
    assert (found >= 0).all()
    assert (found <= torch.tensor([640, 480, 640, 480])).all()
    assert (found[:, 2:] >= found[:, :2]).all()
