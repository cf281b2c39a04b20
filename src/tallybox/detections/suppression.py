"""Which overlapping boxes of one category are kept: NMS and soft-NMS, for many settings at once.

Both go through boxes by descending score, and a box changes only boxes that score lower. So a threshold on the score
may be applied afterwards with the same result, and one pass serves every score threshold; the overlaps are computed
once for all settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[Any]  # float32 or float64; computed as given


def pairwise_iou(boxes_xyxy: Floats) -> Floats:
    """Return intersection over union of every pair, ``[N, 4]`` to ``[N, N]``, as `tallybox.box_iou` defines it.

    >>> pairwise_iou(np.array([[0.0, 0.0, 2.0, 2.0], [1.0, 0.0, 3.0, 2.0]])).round(2).tolist()
    [[1.0, 0.33], [0.33, 1.0]]
    """
    x1, y1, x2, y2 = boxes_xyxy.T
    width = np.minimum(x2[:, None], x2) - np.maximum(x1[:, None], x1)
    height = np.minimum(y2[:, None], y2) - np.maximum(y1[:, None], y1)
    intersection = width.clip(0) * height.clip(0)
    area = (x2 - x1) * (y2 - y1)
    union = area[:, None] + area - intersection
    has_area = union > 0
    iou: Floats = np.divide(intersection, union, out=np.zeros_like(union), where=has_area)
    if not has_area.all():
        identical = (boxes_xyxy[:, None] == boxes_xyxy).all(-1)
        iou[~has_area & identical] = 1
    return iou


def overlap_by_more(boxes_xyxy: Floats, iou_threshold: float) -> NDArray[np.bool_]:
    """Return which pairs overlap by more than a threshold above 0, ``[N, 4]`` to ``[N, N]``.

    Without a division, IoU > t is intersection > t / (1 + t) times the sum of both areas: an eighth of the time.

    >>> overlap_by_more(np.array([[0.0, 0.0, 2.0, 2.0], [1.0, 0.0, 3.0, 2.0]]), 0.5).tolist()
    [[True, False], [False, True]]
    """
    x1, y1, x2, y2 = np.ascontiguousarray(boxes_xyxy.T)
    width = np.minimum(x2[:, None], x2)
    width -= np.maximum(x1[:, None], x1)
    height = np.minimum(y2[:, None], y2)
    height -= np.maximum(y1[:, None], y1)
    intersection = np.maximum(width, 0, out=width)
    intersection *= np.maximum(height, 0, out=height)
    share = (x2 - x1) * (y2 - y1) * boxes_xyxy.dtype.type(iou_threshold / (1 + iou_threshold))
    more: NDArray[np.bool_] = intersection > np.add(share[:, None], share, out=height)
    return more


def nms(boxes_xyxy: Floats, scores: Floats, iou_thresholds: ArrayLike) -> NDArray[np.bool_]:
    """Return which boxes each IoU threshold keeps: ``[N, 4]``, ``[N]``, ``[T]`` to ``[T, N]``.

    The best box is kept, and every box that overlaps it by more than the threshold goes; then the next best that is
    left. Of equal scores the earlier comes first.

    >>> boxes = np.array([[0.0, 0.0, 2.0, 2.0], [1.0, 0.0, 3.0, 2.0]])
    >>> nms(boxes, np.array([0.6, 0.9]), [0.3, 0.5]).tolist()
    [[False, True], [True, True]]
    """
    thresholds = np.asarray(iou_thresholds, boxes_xyxy.dtype)
    order = np.argsort(-scores, kind="stable")
    ordered_iou = pairwise_iou(boxes_xyxy[order])
    overlap = ordered_iou > thresholds[:, None, None]  # [T, N, N], of a pair in order of score
    removed = np.zeros((len(thresholds), len(order)), np.bool_)
    # Most boxes overlap no later one by even the lowest threshold; they need no step.
    needs_step = np.triu(ordered_iou > thresholds.min(initial=np.inf), 1).any(1)
    for best in np.flatnonzero(needs_step).tolist():
        removed[:, best + 1 :] |= overlap[:, best, best + 1 :] & ~removed[:, best, None]
    kept = np.empty_like(removed)
    kept[:, order] = ~removed
    return kept


def first_kept(
    order: NDArray[np.int64],
    keep: Callable[[NDArray[np.int64]], NDArray[Any]],
    *,
    enough: int,
    candidates: int,
) -> NDArray[np.int64]:
    """Return the first ``enough`` boxes that ``keep`` leaves of boxes in ``order`` of their scores.

    A box is suppressed by better ones only, so that the best ``candidates`` give the first boxes exactly; twice as many
    are taken where they do not give enough. Overlaps grow with the square of the boxes. ``keep`` takes indices of
    boxes and returns which of them are left, as a mask or as places.

    >>> first_kept(np.arange(100), lambda some: some % 3 == 0, enough=4, candidates=6).tolist()
    [0, 3, 6, 9]
    """
    while True:
        some = order[:candidates]
        kept: NDArray[np.int64] = some[keep(some)]
        if len(kept) >= enough or candidates >= len(order):
            return kept[:enough]
        candidates *= 2


def soft_nms(boxes_xyxy: Floats, scores: Floats, sigmas: ArrayLike) -> Floats:
    """Return the scores after Gaussian soft-NMS (Bodla et al. 2017): ``[N, 4]``, ``[N]``, ``[T]`` to ``[T, N]``.

    The best box keeps its score and multiplies every other that is left by exp(-IoU² / sigma); then the next best by
    the new scores.

    >>> boxes = np.array([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 2.0]])
    >>> soft_nms(boxes, np.array([0.9, 0.6]), [0.5]).round(3).tolist()
    [[0.9, 0.081]]
    """
    widths = np.asarray(sigmas, scores.dtype)
    decay = np.exp(-(pairwise_iou(boxes_xyxy) ** 2) / widths[:, None, None])  # [T, N, N]
    current = np.repeat(scores[None], len(widths), axis=0)  # [T, N]
    waiting = np.ones_like(current, np.bool_)
    settings = np.arange(len(widths))
    for _ in range(len(scores) - 1):
        best = np.where(waiting, current, -1).argmax(1)  # [T]
        waiting[settings, best] = False
        current *= np.where(waiting, decay[settings, best], 1)
    return current
