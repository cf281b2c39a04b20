"""Boxes inside Triton kernels."""

import triton
import triton.language as tl

from tallybox import kernels

TINY = tl.constexpr(kernels.TINY)


@triton.jit
def sign(x):
    """-1, 0 or 1."""
    return tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, 0.0))


@triton.jit
def is_real(mask, index, inside, HAS_MASK: tl.constexpr):
    """Whether proposals are there at all and not masked."""
    if HAS_MASK:
        return inside & (tl.load(mask + index, mask=inside, other=0) != 0)
    return inside


@triton.jit
def load_weights(attention, mask, index, inside, HAS_MASK: tl.constexpr):
    """Which proposals are real, and their weights, 0 for the others."""
    real = is_real(mask, index, inside, HAS_MASK)
    return real, tl.load(attention + index, mask=real, other=0.0)


@triton.jit
def corners(boxes, index, real):
    """The corners of boxes, 0 where there is none."""
    x1 = tl.load(boxes + index * 4, mask=real, other=0.0)
    y1 = tl.load(boxes + index * 4 + 1, mask=real, other=0.0)
    x2 = tl.load(boxes + index * 4 + 2, mask=real, other=0.0)
    y2 = tl.load(boxes + index * 4 + 3, mask=real, other=0.0)
    return x1, y1, x2, y2


@triton.jit
def store_corners(boxes, index, inside, x1, y1, x2, y2):
    """Write what belongs to the corners of boxes."""
    tl.store(boxes + index * 4, x1, mask=inside)
    tl.store(boxes + index * 4 + 1, y1, mask=inside)
    tl.store(boxes + index * 4 + 2, x2, mask=inside)
    tl.store(boxes + index * 4 + 3, y2, mask=inside)


@triton.jit
def box_iou(ax1, ay1, ax2, ay2, bx1, by1, bx2, by2):
    """IoU of boxes a and b, with the intersection's width and height, and the union."""
    width = tl.minimum(ax2, bx2) - tl.maximum(ax1, bx1)
    height = tl.minimum(ay2, by2) - tl.maximum(ay1, by1)
    shared = tl.maximum(width, 0.0) * tl.maximum(height, 0.0)
    area_a = tl.maximum(ax2 - ax1, 0.0) * tl.maximum(ay2 - ay1, 0.0)
    area_b = tl.maximum(bx2 - bx1, 0.0) * tl.maximum(by2 - by1, 0.0)
    union = area_a + area_b - shared
    same = (ax1 == bx1) & (ay1 == by1) & (ax2 == bx2) & (ay2 == by2)
    iou = tl.where(union > 0, shared / tl.where(union > 0, union, 1.0), tl.where(same, 1.0, 0.0))
    extents = (ax2 - ax1) + (ay2 - ay1) + (bx2 - bx1) + (by2 - by1)
    return tl.where(extents == extents, iou, extents), width, height, union  # minimum and maximum drop NaN


@triton.jit
def box_iou_backward(ax1, ay1, ax2, ay2, bx1, by1, bx2, by2, width, height, union, grad):
    """The gradient of box a's corners, given that of the IoU; equal edges share theirs, as in PyTorch's maximum."""
    divisor = tl.where(union > 0, union, 1.0)
    grad_shared = tl.where(union > 0, grad / divisor, 0.0)
    grad_area = -grad_shared * tl.maximum(width, 0.0) * tl.maximum(height, 0.0) / divisor
    grad_shared -= grad_area
    own_x = grad_area * tl.where(ax2 >= ax1, tl.maximum(ay2 - ay1, 0.0), 0.0)
    own_y = grad_area * tl.where(ay2 >= ay1, tl.maximum(ax2 - ax1, 0.0), 0.0)
    wide = tl.where(width >= 0, grad_shared * tl.maximum(height, 0.0), 0.0)
    high = tl.where(height >= 0, grad_shared * tl.maximum(width, 0.0), 0.0)
    grad_x1 = -own_x - wide * (0.5 + 0.5 * sign(ax1 - bx1))
    grad_y1 = -own_y - high * (0.5 + 0.5 * sign(ay1 - by1))
    grad_x2 = own_x + wide * (0.5 + 0.5 * sign(bx2 - ax2))
    grad_y2 = own_y + high * (0.5 + 0.5 * sign(by2 - ay2))
    return grad_x1, grad_y1, grad_x2, grad_y2
