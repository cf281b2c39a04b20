import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tallybox import box_iou
from tallybox.boxes import box_area, box_intersection, box_xywh_to_xyxy, numpy_box_iou
from tests.support import oracle
from tests.support.problems import random_boxes
from tests.support.strategies import box_sets
from tests.support.tolerances import ROUNDING

DTYPES = [torch.float64, torch.float32]


def boxes_of(*rows: tuple[float, float, float, float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((0, 0, 2, 2), (0, 0, 2, 2), 1.0),
        ((0, 0, 2, 2), (1, 0, 3, 2), 1 / 3),
        ((0, 0, 4, 4), (1, 1, 3, 3), 1 / 4),
        ((0, 0, 2, 2), (1, 1, 3, 3), 1 / 7),
        ((0, 0, 2, 2), (2, 0, 4, 2), 0.0),
        ((0, 0, 2, 2), (5, 5, 6, 6), 0.0),
        ((-3, -3, -1, -1), (-2, -3, 0, -1), 1 / 3),
    ],
    ids=["identical", "half shifted", "inside", "corner", "touching", "apart", "negative coordinates"],
)
def test_iou_of_a_pair_worked_out_by_hand(a, b, expected):
    assert box_iou(boxes_of(a), boxes_of(b)).item() == pytest.approx(expected, abs=1e-15)


def test_a_box_without_area_overlaps_its_copy_fully_and_nothing_else():
    point, line, square = (1, 1, 1, 1), (1, 1, 3, 1), (0, 0, 4, 4)
    boxes = boxes_of(point, point, line, square)
    expected = boxes_of((1, 1, 0, 0), (1, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1))
    assert torch.equal(box_iou(boxes, boxes), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@given(boxes=box_sets())
def test_every_box_overlaps_itself_exactly_fully(dtype, boxes):
    boxes = boxes.to(dtype)
    assert (box_iou(boxes, boxes).diagonal() == 1).all()


@pytest.mark.parametrize("dtype", DTYPES)
@given(a=box_sets(), b=box_sets(), scale=st.sampled_from([1e-6, 0.1, 1.0, 640.0]))
def test_iou_is_symmetric_and_in_the_unit_interval(dtype, a, b, scale):
    a, b = a.to(dtype) * scale, b.to(dtype) * scale
    iou = box_iou(a, b)
    assert torch.equal(iou, box_iou(b, a).mT)
    assert (iou >= 0).all()
    assert (iou <= 1).all()


@pytest.mark.parametrize("dtype", DTYPES)
@given(boxes=box_sets(), shift=st.integers(-100, 100), power=st.integers(-20, 20))
def test_iou_does_not_depend_on_origin_or_unit(dtype, boxes, shift, power):
    boxes = boxes.to(dtype)
    assert torch.equal(box_iou((boxes + shift) * 2.0**power, (boxes + shift) * 2.0**power), box_iou(boxes, boxes))


@pytest.mark.parametrize("dtype", DTYPES)
@given(a=box_sets(), b=box_sets())
def test_iou_is_that_of_the_loop_over_pairs(dtype, a, b):
    expected = [[oracle.iou(tuple(i), tuple(j)) for j in b.tolist()] for i in a.tolist()]
    got = box_iou(a.to(dtype), b.to(dtype))
    torch.testing.assert_close(got, torch.tensor(expected, dtype=dtype), **ROUNDING[dtype]._asdict())


def test_batch_equals_loop():
    a, b = random_boxes(2, 3, 5, seed=0), random_boxes(2, 3, 4, seed=1)
    got = box_iou(a, b)
    assert got.shape == (2, 3, 5, 4)
    for i, j in itertools.product(range(2), range(3)):
        assert torch.equal(got[i, j], box_iou(a[i, j], b[i, j]))


def test_leading_dimensions_broadcast():
    a, b = random_boxes(2, 1, 5, seed=2), random_boxes(3, 4, seed=3)
    got = box_iou(a, b)
    assert got.shape == (2, 3, 5, 4)
    assert torch.equal(got[1, 2], box_iou(a[1, 0], b[2]))


def test_non_contiguous_equals_contiguous():
    boxes = random_boxes(6, seed=4).mT.contiguous().mT
    assert not boxes.is_contiguous()
    assert torch.equal(box_iou(boxes, boxes), box_iou(boxes.contiguous(), boxes.contiguous()))


@pytest.mark.parametrize(("first", "second"), [(0, 3), (3, 0), (0, 0)])
def test_no_boxes_have_no_overlaps(first, second):
    assert box_iou(torch.ones(first, 4), torch.ones(second, 4)).shape == (first, second)


def test_gradients_are_those_of_finite_differences():
    a, b = random_boxes(4, seed=5).requires_grad_(), random_boxes(3, seed=6).requires_grad_()
    assert torch.autograd.gradcheck(box_iou, (a, b))


def test_gradients_are_finite_where_boxes_have_no_area_or_coincide():
    boxes = boxes_of((1, 1, 1, 1), (1, 1, 1, 1), (0, 0, 2, 2), (0, 0, 2, 2), (0, 0, 2, 0)).requires_grad_()
    box_iou(boxes, boxes).sum().backward()
    assert boxes.grad.isfinite().all()


PIXELS = boxes_of((0, 0, 640, 480), (320, 0, 640, 480))


@pytest.mark.parametrize("first", [torch.float16, torch.bfloat16, torch.float32, torch.int32])
@pytest.mark.parametrize("second", [torch.float16, torch.float32])
def test_pixel_boxes_of_any_dtypes_do_not_overflow(first, second):
    for got in (box_iou(PIXELS.to(first), PIXELS.to(second)), box_iou(PIXELS.to(second), PIXELS.to(first))):
        assert got.dtype == torch.float32
        torch.testing.assert_close(got.double(), box_iou(PIXELS, PIXELS), **ROUNDING[torch.float32]._asdict())


def test_arrays_in_half_precision_do_not_overflow():
    pixels = PIXELS.numpy()
    for first, second in itertools.product((np.float16, np.float32), repeat=2):
        got = numpy_box_iou(pixels.astype(first), pixels.astype(second))
        np.testing.assert_allclose(got, numpy_box_iou(pixels, pixels), rtol=ROUNDING[torch.float32].rtol)


def test_area_is_width_times_height_and_never_negative():
    boxes = boxes_of((0, 0, 2, 3), (1, 1, 1, 5), (5, 5, 4, 4))
    assert box_area(boxes).tolist() == [6, 0, 0]


def test_intersection_is_the_shared_area_of_every_pair():
    a, b = boxes_of((0, 0, 2, 2), (10, 10, 11, 11)), boxes_of((1, 0, 3, 2), (1, 1, 3, 3), (2, 2, 3, 3))
    assert box_intersection(a, b).tolist() == [[2, 1, 0], [0, 0, 0]]


def test_left_top_width_height_become_corners():
    boxes = boxes_of((1, 2, 3, 4), (-1, -1, 0, 2))
    assert torch.equal(box_xywh_to_xyxy(boxes), boxes_of((1, 2, 4, 6), (-1, -1, -1, 1)))
