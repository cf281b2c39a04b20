"""Boxes: areas, IoU, formats and non-maximum suppression, for torch tensors and for numpy arrays.

A box is its corners x1 y1 x2 y2, in any unit. NMS removes a box that overlaps a better one by more than the threshold;
of equal scores the earlier box comes first.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

Floats = NDArray[Any]  # float32 or float64
Booleans = NDArray[np.bool_]
Integers = NDArray[np.int64]

FIRST_OF_CATEGORY = 192  # boxes of a category that go through NMS at first: enough for nearly all photos


def box_area(boxes_xyxy: Tensor) -> Tensor:
    """Return the area of each box: ``[..., 4]`` to ``[...]``."""
    width, height = (boxes_xyxy[..., 2:] - boxes_xyxy[..., :2]).clamp(min=0).unbind(-1)
    return width * height


def box_intersection(boxes_a: Tensor, boxes_b: Tensor) -> Tensor:
    """Return the shared area of every pair: ``[..., N, 4]``, ``[..., M, 4]`` to ``[..., N, M]``."""
    a, b = boxes_a.unsqueeze(-2), boxes_b.unsqueeze(-3)  # [..., N, 1, 4], [..., 1, M, 4]
    top_left = torch.maximum(a[..., :2], b[..., :2])
    bottom_right = torch.minimum(a[..., 2:], b[..., 2:])
    width, height = (bottom_right - top_left).clamp(min=0).unbind(-1)
    return width * height


def box_iou(boxes_a: Tensor, boxes_b: Tensor) -> Tensor:
    """Return intersection over union of every pair: ``[..., N, 4]``, ``[..., M, 4]`` to ``[..., N, M]``.

    No constant is added to the union, so the unit of the boxes does not matter. Where the union has no area the
    quotient is undefined; there it is 1 for two identical boxes and 0 otherwise, so a box overlaps itself fully
    whatever its area. Half precision and whole numbers are computed in float32, mixed dtypes in the wider one.
    If an area exceeds the largest number of the dtype (float32: sides of about 1e19), the result is NaN.

    >>> a = torch.tensor([[0.0, 0.0, 2.0, 2.0], [5.0, 5.0, 5.0, 5.0]])
    >>> box_iou(a, torch.tensor([[1.0, 0.0, 3.0, 2.0], [5.0, 5.0, 5.0, 5.0]]))
    tensor([[0.3333, 0.0000],
            [0.0000, 1.0000]])
    """
    dtype = torch.promote_types(torch.promote_types(boxes_a.dtype, boxes_b.dtype), torch.float32)  # halves overflow
    boxes_a, boxes_b = boxes_a.to(dtype), boxes_b.to(dtype)
    intersection = box_intersection(boxes_a, boxes_b)
    union = box_area(boxes_a).unsqueeze(-1) + box_area(boxes_b).unsqueeze(-2) - intersection
    has_area = ~(union <= 0)  # NaN stays NaN
    identical = (boxes_a.unsqueeze(-2) == boxes_b.unsqueeze(-3)).all(-1)
    # The inner where keeps 0/0 out of the quotient, whose gradient would be NaN even if unselected.
    quotient = intersection / torch.where(has_area, union, 1)
    return torch.where(has_area, quotient, identical.to(quotient.dtype))


def numpy_box_iou(boxes_a: Floats, boxes_b: Floats) -> Floats:
    """Return `box_iou` for arrays: ``[..., N, 4]``, ``[..., M, 4]`` to ``[..., N, M]``."""
    dtype = np.result_type(boxes_a, boxes_b, np.float32)  # areas in pixels overflow halves
    boxes_a, boxes_b = np.asarray(boxes_a, dtype), np.asarray(boxes_b, dtype)
    intersection, area_a, area_b = _intersections_and_areas(boxes_a, boxes_b)
    union = area_a[..., :, None] + area_b[..., None, :]
    union -= intersection
    no_area = union <= 0
    if no_area.any():
        *image, a, b = np.nonzero(no_area)
        union[no_area] = 1
        intersection[no_area] = (boxes_a[(*image, a)] == boxes_b[(*image, b)]).all(-1)
    iou: Floats = np.divide(intersection, union, out=intersection)
    return iou


def overlap_by_more(boxes_xyxy: Floats, iou_threshold: float) -> Booleans:
    """Return which pairs have an IoU above a threshold greater than 0, ``[..., N, 4]`` to ``[..., N, N]``.

    Without a division, IoU > t is intersection > t / (1 + t) times the sum of both areas: an eighth of the time.
    """
    intersection, area, _ = _intersections_and_areas(boxes_xyxy, boxes_xyxy)
    share = area * boxes_xyxy.dtype.type(iou_threshold / (1 + iou_threshold))
    more: Booleans = intersection > share[..., :, None] + share[..., None, :]
    return more


def _intersections_and_areas(boxes_a: Floats, boxes_b: Floats) -> tuple[Floats, Floats, Floats]:
    """Return ``[..., N, M]``, ``[..., N]`` and ``[..., M]``, in place where possible: memory is most of the time."""
    a, b = ([np.ascontiguousarray(boxes[..., side]) for side in range(4)] for boxes in (boxes_a, boxes_b))
    sides = []
    for low, high in ((0, 2), (1, 3)):
        shared = np.minimum(a[high][..., :, None], b[high][..., None, :])
        shared -= np.maximum(a[low][..., :, None], b[low][..., None, :])
        sides.append(np.maximum(shared, 0, out=shared))
    width, height = sides
    width *= height
    return width, *((x2 - x1) * (y2 - y1) for x1, y1, x2, y2 in (a, b))


def box_xywh_to_xyxy(boxes_xywh: Tensor) -> Tensor:
    """Turn left, top, width, height (COCO's form) into corners, ``[..., 4]`` to ``[..., 4]``.

    >>> box_xywh_to_xyxy(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
    tensor([[1., 2., 4., 6.]])
    """
    left_top, size = boxes_xywh[..., :2], boxes_xywh[..., 2:]
    return torch.cat((left_top, left_top + size), dim=-1)


def batched_nms(boxes_xyxy: Tensor, scores: Tensor, mask: Tensor, iou_threshold: float) -> Tensor:
    """Return which proposals NMS keeps: ``[B, N, 4]``, ``[B, N]``, ``[B, N]`` to ``[B, N]`` bool.

    All images go through it at once, and the host never waits for a GPU.
    """
    order = scores.masked_fill(~mask, -torch.inf).argsort(dim=-1, descending=True, stable=True)  # padding comes last
    ordered = boxes_xyxy.gather(1, order.unsqueeze(-1).expand_as(boxes_xyxy))
    overlaps = box_iou(ordered, ordered) > iou_threshold
    kept, _ = suppress_in_steps(overlaps, mask.gather(1, order), steps=boxes_xyxy.shape[1])
    return torch.zeros_like(kept).scatter(1, order, kept)


def batched_overlap_by_more(boxes_xyxy: Tensor, iou_threshold: float) -> Tensor:
    """Return `overlap_by_more` for tensors, to the last bit: ``[B, N, 4]`` to ``[B, N, N]``."""
    x1, y1, x2, y2 = boxes_xyxy.unbind(-1)
    shared = [
        (high.unsqueeze(-1).minimum(high.unsqueeze(-2)) - low.unsqueeze(-1).maximum(low.unsqueeze(-2))).clamp_(min=0)
        for low, high in ((x1, x2), (y1, y2))
    ]
    share = (x2 - x1) * (y2 - y1) * (iou_threshold / (1 + iou_threshold))
    return shared[0].mul_(shared[1]) > share.unsqueeze(-1) + share.unsqueeze(-2)


def suppress_in_steps(overlaps: Tensor, candidates: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Return `suppress` for tensors, ``[B, N, N]``, ``[B, N]`` to ``[B, N]``, and which images are settled, ``[B]``.

    A step decides at once over all boxes whose better neighbours are decided: a chain of boxes, each of which overlaps
    only the one before, takes as many steps as it has boxes. The host does not wait for a GPU.
    """
    better = overlaps.triu(1)
    kept = before = candidates
    for _ in range(steps):
        kept, before = candidates & ~(better & kept.unsqueeze(-1)).any(-2), kept
    return kept, (kept == before).all(-1)


def nms(boxes_xyxy: Floats, scores: Floats, iou_thresholds: ArrayLike) -> Booleans:
    """Return which boxes each IoU threshold keeps: ``[N, 4]``, ``[N]``, ``[T]`` to ``[T, N]``.

    A box changes only boxes that score lower, so a threshold on the score may be applied afterwards.
    """
    thresholds = np.asarray(iou_thresholds, boxes_xyxy.dtype)
    order = np.argsort(-scores, kind="stable")
    ordered = boxes_xyxy[order]
    overlaps = numpy_box_iou(ordered, ordered) > thresholds[:, None, None]  # [T, N, N]
    kept = np.empty((len(thresholds), len(order)), np.bool_)
    kept[:, order] = suppress(overlaps)
    return kept


def suppress(overlaps: Booleans, candidates: Booleans | None = None) -> Booleans:
    """Return which boxes NMS keeps of boxes in order of their scores: ``[..., N, N]`` to ``[..., N]``.

    ``overlaps`` says which pairs overlap too much, ``candidates`` ``[..., N]`` which boxes there are.
    """
    removed = np.zeros(overlaps.shape[:-1], np.bool_) if candidates is None else ~candidates
    if overlaps.ndim == 2:
        later = np.triu(overlaps, 1)
        for best in np.flatnonzero(later.any(1)).tolist():  # most boxes remove none and need no step
            if not removed[best]:
                removed |= later[best]
        return ~removed
    for best in range(overlaps.shape[-1] - 1):
        removed[..., best + 1 :] |= overlaps[..., best, best + 1 :] & ~removed[..., best, None]
    return ~removed


def nms_by_category(boxes_xyxy: Floats, categories: Integers, iou_threshold: float, *, enough: int) -> Integers:
    """Return which boxes ``[N, 4]``, in order of their scores, NMS keeps: up to ``enough`` of each category ``[N]``."""

    def keep(indices: Integers) -> Booleans:
        return suppress(overlap_by_more(boxes_xyxy[indices], iou_threshold))

    kept = [
        first_kept(np.flatnonzero(categories == category), keep, enough=enough, candidates=FIRST_OF_CATEGORY)
        for category in np.unique(categories)
    ]
    return np.sort(np.concatenate([np.zeros(0, np.int64), *kept]))


def first_kept(order: Integers, keep: Callable[[Integers], NDArray[Any]], *, enough: int, candidates: int) -> Integers:
    """Return the first ``enough`` boxes that ``keep`` leaves of boxes in ``order`` of their scores.

    Only better boxes suppress a box, so that the best ``candidates`` give the first boxes exactly; twice as many
    are taken where they do not give enough. Overlaps grow with the square of the boxes. ``keep`` takes indices of
    boxes and returns which of them are left, as a mask or as indices into them.
    """
    while True:
        some = order[:candidates]
        kept: Integers = some[keep(some)]
        if len(kept) >= enough or candidates >= len(order):
            return kept[:enough]
        candidates *= 2
