import numpy as np
import supervision
import torch
from hypothesis import given
from hypothesis import strategies as st

from tallybox import box_iou
from tallybox.boxes import (
    batched_nms,
    batched_overlap_by_more,
    first_kept,
    nms,
    numpy_box_iou,
    overlap_by_more,
    suppress,
    suppress_in_steps,
)
from tests.support.strategies import box_sets

THRESHOLDS = (0.0, 0.3, 0.5, 0.71, 1.0)


@st.composite
def scored_boxes(draw, minimal_side: int = 0):
    """Boxes with scores of which no two are equal, so that every implementation takes them in one order."""
    boxes = draw(box_sets(0, 12, minimal_side)).numpy()
    scores = draw(st.lists(st.integers(1, 997), min_size=len(boxes), max_size=len(boxes), unique=True))
    return boxes, np.array(scores) / 997


def overlap(a, b) -> float:
    if list(a) == list(b):
        return 1.0
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(width, 0.0) * max(height, 0.0)
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared
    return shared / union if union else 0.0


def nms_by_hand(boxes, scores, threshold) -> list[int]:
    waiting, kept = sorted(range(len(boxes)), key=lambda i: -scores[i]), []
    while waiting:
        best = waiting.pop(0)
        kept.append(best)
        waiting = [i for i in waiting if overlap(boxes[best], boxes[i]) <= threshold]
    return sorted(kept)


@given(box_sets(0, 8))
def test_overlaps_are_those_of_the_library(boxes):
    array = boxes.numpy()
    torch.testing.assert_close(torch.from_numpy(numpy_box_iou(array, array[:3])), box_iou(boxes, boxes[:3]))
    stacked = np.stack((array, array[::-1]))
    for one, expected in zip(numpy_box_iou(stacked, stacked), stacked, strict=True):
        np.testing.assert_array_equal(one, numpy_box_iou(expected, expected))


@given(box_sets(0, 8, 1))
def test_a_comparison_without_division_agrees_with_the_iou(boxes):
    array = boxes.numpy()
    for threshold in (0.31, 0.52, 0.73):  # no quotient of the grid that boxes are drawn from
        more = overlap_by_more(array, threshold)
        np.testing.assert_array_equal(more, numpy_box_iou(array, array) > threshold)
        np.testing.assert_array_equal(batched_overlap_by_more(boxes[None], threshold)[0], more)


@given(st.integers(1, 30), st.integers(1, 10), st.floats(0, 1), st.integers(0, 999))
def test_suppression_in_steps_is_exact_or_says_that_it_is_not(number, steps, share, seed):
    random = np.random.default_rng(seed)
    overlaps = random.random((4, number, number)) < share
    candidates = random.random((4, number)) < 0.8
    expected = suppress(overlaps, candidates)
    tensors = torch.from_numpy(overlaps), torch.from_numpy(candidates)
    kept, is_settled = suppress_in_steps(*tensors, steps)
    np.testing.assert_array_equal(kept.numpy()[is_settled], expected[is_settled])
    np.testing.assert_array_equal(suppress_in_steps(*tensors, number + 1)[0], expected)
    assert suppress_in_steps(*tensors, number + 1)[1].all()


@given(scored_boxes(), st.integers(1, 4))
def test_nms_of_tensors_keeps_what_nms_of_arrays_keeps(case, copies):
    boxes, scores = case
    batch = torch.from_numpy(boxes).expand(copies, -1, -1), torch.from_numpy(scores).expand(copies, -1)
    mask = torch.ones(batch[1].shape, dtype=torch.bool)
    for threshold in THRESHOLDS:
        kept = batched_nms(*batch, mask, threshold)
        assert kept.tolist() == [nms(boxes, scores, [threshold])[0].tolist()] * copies


@given(scored_boxes(), st.integers(1, 5), st.integers(1, 5))
def test_the_first_kept_boxes_are_those_of_all(case, enough, candidates):
    boxes, scores = case
    order = np.argsort(-scores, kind="stable")

    def keep(some):
        return suppress(numpy_box_iou(boxes[some], boxes[some]) > 0.3)

    expected = order[keep(order)][:enough]
    assert first_kept(order, keep, enough=enough, candidates=candidates).tolist() == expected.tolist()


@given(scored_boxes())
def test_nms_keeps_what_a_plain_loop_keeps(case):
    boxes, scores = case
    kept = nms(boxes, scores, THRESHOLDS)
    for row, threshold in zip(kept, THRESHOLDS, strict=True):
        assert np.flatnonzero(row).tolist() == nms_by_hand(boxes, scores, threshold)


@given(scored_boxes(minimal_side=1))
def test_nms_keeps_what_supervision_keeps(case):
    boxes, scores = case
    if not len(boxes):
        return
    predictions = np.column_stack((boxes, scores)).astype(np.float32)
    thresholds = (0.31, 0.52, 0.73)  # no quotient of the grid that boxes are drawn from
    for row, threshold in zip(nms(predictions[:, :4], predictions[:, 4], thresholds), thresholds, strict=True):
        assert row.tolist() == supervision.box_non_max_suppression(predictions, threshold).tolist()


@given(scored_boxes(), st.floats(0, 1))
def test_a_score_threshold_may_come_after_nms(case, least):
    boxes, scores = case
    high = scores >= least
    np.testing.assert_array_equal(nms(boxes, scores, THRESHOLDS)[:, high], nms(boxes[high], scores[high], THRESHOLDS))


def test_boxes_in_order_of_their_scores():
    overlaps = np.array([[True, True, False], [True, True, True], [False, True, True]])
    assert suppress(overlaps).tolist() == [True, False, True]
    assert first_kept(np.arange(100), lambda some: some % 3 == 0, enough=4, candidates=6).tolist() == [0, 3, 6, 9]


def test_of_equal_scores_the_earlier_is_kept():
    boxes = np.array([[0, 0, 4, 4], [0, 0, 4, 4], [0, 0, 4, 4.5]], np.float32)
    assert nms(boxes, np.array([0.5, 0.5, 0.5]), [0.5]).tolist() == [[True, False, False]]


def test_no_boxes_are_no_boxes():
    assert nms(np.zeros((0, 4)), np.zeros(0), [0.3, 0.5]).shape == (2, 0)
