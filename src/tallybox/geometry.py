"""Boxes: areas, overlaps and formats. A box is its corners x1 y1 x2 y2, in any unit."""

from __future__ import annotations

import torch
from torch import Tensor


def box_area(boxes_xyxy: Tensor) -> Tensor:
    """Return the area of each box: ``[..., 4]`` to ``[...]``.

    >>> box_area(torch.tensor([[0.0, 0.0, 2.0, 3.0]]))
    tensor([6.])
    """
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

    No constant is added to the union, so the unit of the boxes does not matter. Where the union has
    no area the quotient is undefined; there it is 1 for two identical boxes and 0 otherwise, so a
    box overlaps itself fully whatever its area. Half precision is computed in float32.

    >>> a = torch.tensor([[0.0, 0.0, 2.0, 2.0], [5.0, 5.0, 5.0, 5.0]])
    >>> box_iou(a, torch.tensor([[1.0, 0.0, 3.0, 2.0], [5.0, 5.0, 5.0, 5.0]]))
    tensor([[0.3333, 0.0000],
            [0.0000, 1.0000]])
    """
    if boxes_a.dtype in (torch.float16, torch.bfloat16):  # areas in pixels overflow
        boxes_a, boxes_b = boxes_a.float(), boxes_b.float()
    intersection = box_intersection(boxes_a, boxes_b)
    union = box_area(boxes_a).unsqueeze(-1) + box_area(boxes_b).unsqueeze(-2) - intersection
    has_area = union > 0
    identical = (boxes_a.unsqueeze(-2) == boxes_b.unsqueeze(-3)).all(-1)
    # The inner where keeps 0/0 out of the quotient, whose gradient would be NaN even if unselected.
    quotient = intersection / torch.where(has_area, union, 1)
    return torch.where(has_area, quotient, identical.to(quotient.dtype))


def box_xywh_to_xyxy(boxes_xywh: Tensor) -> Tensor:
    """Turn left, top, width, height (COCO's form) into corners, ``[..., 4]`` to ``[..., 4]``.

    >>> box_xywh_to_xyxy(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
    tensor([[1., 2., 4., 6.]])
    """
    left_top, size = boxes_xywh[..., :2], boxes_xywh[..., 2:]
    return torch.cat((left_top, left_top + size), dim=-1)
