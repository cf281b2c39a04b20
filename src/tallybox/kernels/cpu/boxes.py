"""Boxes inside Numba kernels: numbers or vectors of eight numbers (`vectors`)."""

from tallybox.kernels.cpu.compiling import Array, Number, compiled, inlined
from tallybox.kernels.cpu.vectors import choose

# x1, y1, x2, y2. Where these are single numbers, zero, half and one are of their precision.
Corners = tuple[Number, Number, Number, Number]


@compiled
def real_proposals(image: int, attention: Array, boxes: Array, mask: Array, order: Array, a: Array, b: Array) -> int:
    """Copy an image's real proposals to the front of ``a [N]`` and ``b [4, N]``; return how many there are.

    ``order [N]`` gets their indices. A mask without rows means that all are real.
    """
    number = 0
    for i in range(attention.shape[1]):
        if mask.shape[0] == 0 or mask[image, i]:
            order[number] = i
            a[number] = attention[image, i]
            for corner in range(4):
                b[corner, number] = boxes[image, i, corner]
            number += 1
    return number


@inlined
def overlap(a: Corners, b: Corners) -> tuple[Number, Number]:
    """Return the width and height of the intersection of two boxes, negative where they are apart."""
    return min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])


@inlined
def union_of(a: Corners, b: Corners, shared: Number, zero: Number) -> Number:
    """Return the area of the union of two boxes, given that of their intersection."""
    area_a = max(a[2] - a[0], zero) * max(a[3] - a[1], zero)
    return area_a + max(b[2] - b[0], zero) * max(b[3] - b[1], zero) - shared


@inlined
def box_iou(a: Corners, b: Corners, zero: Number, one: Number) -> Number:
    """Return the IoU of two boxes: of boxes without area 1 where they are equal, else 0; NaN if a corner is."""
    width, height = overlap(a, b)
    shared = max(width, zero) * max(height, zero)
    union = union_of(a, b, shared, zero)
    same = (a[0] == b[0]) & (a[1] == b[1]) & (a[2] == b[2]) & (a[3] == b[3])
    iou = choose(union > zero, shared / union, choose(same, zero * width + one, zero))
    extents = (a[2] - a[0]) + (a[3] - a[1]) + (b[2] - b[0]) + (b[3] - b[1])
    return choose(extents == extents, iou, extents)  # min and max drop NaN


@inlined
def box_iou_backward(a: Corners, b: Corners, grad: Number, zero: Number, half: Number) -> tuple[Corners, Corners]:
    """Return the gradients of both boxes' corners, given that of their IoU; equal edges share their gradient."""
    width, height = overlap(a, b)
    shared = width * height
    union = union_of(a, b, shared, zero)
    # Boxes that are apart stay so by however little they move.
    matters = (width >= zero) & (height >= zero) & (union > zero)
    grad_shared = choose(matters, grad / union, zero)
    grad_area = choose(matters, -grad_shared * shared / union, zero)
    grad_shared = grad_shared - grad_area
    a_x1, a_x2, b_x1, b_x2 = axis_backward(a[0], a[2], b[0], b[2], grad_shared * height, zero, half)
    a_y1, a_y2, b_y1, b_y2 = axis_backward(a[1], a[3], b[1], b[3], grad_shared * width, zero, half)
    a_x, a_y = area_backward(a, grad_area, zero)
    b_x, b_y = area_backward(b, grad_area, zero)
    return (a_x1 - a_x, a_y1 - a_y, a_x2 + a_x, a_y2 + a_y), (b_x1 - b_x, b_y1 - b_y, b_x2 + b_x, b_y2 + b_y)


@inlined
def axis_backward(
    a_low: Number, a_high: Number, b_low: Number, b_high: Number, grad: Number, zero: Number, half: Number
) -> tuple[Number, Number, Number, Number]:
    """Share the gradient of an intersection's extent along one axis out among the edges of both boxes."""
    low = choose(a_low > b_low, grad, choose(a_low < b_low, zero, half * grad))
    high = choose(a_high < b_high, grad, choose(a_high > b_high, zero, half * grad))
    return -low, high, low - grad, grad - high


@inlined
def area_backward(box: Corners, grad: Number, zero: Number) -> tuple[Number, Number]:
    """Return the gradients of a box's width and height, given that of its area."""
    width, height = box[2] - box[0], box[3] - box[1]
    grad_width = choose(width >= zero, grad * max(height, zero), zero)
    return grad_width, choose(height >= zero, grad * max(width, zero), zero)
