from __future__ import annotations

import math

import numpy as np
import pytest
import supervision
import torch
from hypothesis import given
from hypothesis import strategies as st

from tallybox import box_iou
from tallybox.detections.suppression import nms, pairwise_iou, soft_nms
from tests.support.strategies import box_sets
from tests.support.tolerances import ROUNDING

THRESHOLDS = (0.0, 0.3, 0.5, 0.71, 1.0)
SIGMAS = (0.05, 0.5, 1.0)


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


def soft_nms_by_hand(boxes, scores, sigma) -> list[float]:
    waiting, current = set(range(len(boxes))), list(scores)
    while waiting:
        best = max(waiting, key=lambda i: current[i])
        waiting.remove(best)
        for i in waiting:
            current[i] *= math.exp(-(overlap(boxes[best], boxes[i]) ** 2) / sigma)
    return current


@given(box_sets(0, 8))
def test_overlaps_are_those_of_the_library(boxes):
    torch.testing.assert_close(torch.from_numpy(pairwise_iou(boxes.numpy())), box_iou(boxes, boxes))


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
    kept = nms(
        predictions[:, :4], predictions[:, 4], (0.31, 0.52, 0.73)
    )  # thresholds that no quotient of the grid hits
    for row, threshold in zip(kept, (0.31, 0.52, 0.73), strict=True):
        assert row.tolist() == supervision.box_non_max_suppression(predictions, threshold).tolist()


@given(scored_boxes())
def test_soft_nms_gives_the_scores_of_a_plain_loop(case):
    boxes, scores = case
    softened = soft_nms(boxes, scores, SIGMAS)
    for row, sigma in zip(softened, SIGMAS, strict=True):
        np.testing.assert_allclose(row, soft_nms_by_hand(boxes, scores, sigma), *ROUNDING[torch.float64])


@given(scored_boxes(), st.floats(0, 1))
def test_a_score_threshold_may_come_after_nms(case, least):
    boxes, scores = case
    high = scores >= least
    np.testing.assert_array_equal(nms(boxes, scores, THRESHOLDS)[:, high], nms(boxes[high], scores[high], THRESHOLDS))


@given(scored_boxes(), st.sampled_from(SIGMAS), st.floats(0.01, 1))
def test_a_score_threshold_may_come_after_soft_nms(case, sigma, least):
    boxes, scores = case
    all_at_once = soft_nms(boxes, scores, [sigma])[0]
    left = all_at_once >= least
    alone = soft_nms(boxes[left], scores[left], [sigma])[0]
    np.testing.assert_allclose(alone, all_at_once[left], *ROUNDING[torch.float64])


def test_of_equal_scores_the_earlier_is_kept():
    boxes = np.array([[0, 0, 4, 4], [0, 0, 4, 4], [0, 0, 4, 4.5]], np.float32)
    assert nms(boxes, np.array([0.5, 0.5, 0.5]), [0.5]).tolist() == [[True, False, False]]


@pytest.mark.parametrize("function", [nms, soft_nms])
def test_no_boxes_are_no_boxes(function):
    assert function(np.zeros((0, 4)), np.zeros(0), [0.3, 0.5]).shape == (2, 0)
