"""The backward kernel for many boxes: one image at a time."""

from __future__ import annotations

import numpy as np

from tallybox.counter.cpu.likeness import likeness_backward
from tallybox.counter.cpu.parts import (
    F1,
    F2,
    F3,
    F4,
    F5,
    F6,
    F7,
    STEPS_BETWEEN_SETTLEMENTS,
    Array,
    Number,
    compiled,
    empty_table,
    features_backward,
    locate,
    normalise,
    owe,
    settle,
)
from tallybox.counter.cpu.rows import fill_matrices, row_length
from tallybox.kernels.cpu.boxes import real_proposals
from tallybox.kernels.cpu.vectors import LANES, load, store


@compiled
def row_backward(
    i: int,
    j: int,
    n: int,
    product: Number,
    rows: Array,
    grad_rows: Array,
    steps: Array,
    base: Array,
    rise: Array,
    owed: Array,
) -> None:
    """Add the gradients of a row product of boxes i and j, whose value times its own gradient is given."""
    dtype = rise.dtype.type
    products = load(steps, (0,)) * dtype(0) + product
    for k in range(0, n, LANES):
        is_real = load(steps, (k,)) < dtype(n)
        slope = likeness_backward(load(rows, (i, k)), load(rows, (j, k)), products, is_real, base, rise, owed)
        store(grad_rows, (i, k), load(grad_rows, (i, k)) - slope)
        store(grad_rows, (j, k), load(grad_rows, (j, k)) + slope)


@compiled
def overlap_backward(i: int, j: int, b: Array, grad_distance: Number, grad_b: Array) -> None:
    """Add what boxes i and j owe to D_ij = 1 - IoU; equal edges share their gradient."""
    dtype = b.dtype.type
    zero, half, one = dtype(0), dtype(0.5), dtype(1)
    ax1, ay1, ax2, ay2 = b[0, i], b[1, i], b[2, i], b[3, i]
    bx1, by1, bx2, by2 = b[0, j], b[1, j], b[2, j], b[3, j]
    width, height = min(ax2, bx2) - max(ax1, bx1), min(ay2, by2) - max(ay1, by1)
    if width < zero or height < zero:  # apart, and so by however little they move
        return
    a_width, a_height = max(ax2 - ax1, zero), max(ay2 - ay1, zero)
    b_width, b_height = max(bx2 - bx1, zero), max(by2 - by1, zero)
    shared = width * height
    union = a_width * a_height + b_width * b_height - shared
    if not union > zero:
        return
    inverse = one / union
    grad_area = grad_distance * shared * inverse * inverse
    grad_shared = -grad_distance * inverse - grad_area
    wide, high = grad_shared * height, grad_shared * width
    a_wide = grad_area * a_height if ax2 >= ax1 else zero
    a_high = grad_area * a_width if ay2 >= ay1 else zero
    b_wide = grad_area * b_height if bx2 >= bx1 else zero
    b_high = grad_area * b_width if by2 >= by1 else zero
    left = wide if ax1 > bx1 else (zero if ax1 < bx1 else half * wide)
    right = wide if ax2 < bx2 else (zero if ax2 > bx2 else half * wide)
    top = high if ay1 > by1 else (zero if ay1 < by1 else half * high)
    bottom = high if ay2 < by2 else (zero if ay2 > by2 else half * high)
    grad_b[0, i] -= a_wide + left
    grad_b[0, j] -= b_wide + wide - left
    grad_b[1, i] -= a_high + top
    grad_b[1, j] -= b_high + high - top
    grad_b[2, i] += a_wide + right
    grad_b[2, j] += b_wide + wide - right
    grad_b[3, i] += a_high + bottom
    grad_b[3, j] += b_high + high - bottom


@compiled
def rows_backward_kernel(
    attention: Array,
    boxes: Array,
    mask: Array,
    weight: Array,
    count: Array,
    state: Array,
    grad_features: Array,
    grad_count: Array,
    grad_attention: Array,
    grad_boxes: Array,
    grad_rise: Array,
    boxes_need_grad: bool,
    first: int,
    stop: int,
) -> None:
    """Write the gradients of images first ... stop - 1, and add what their counters' segments are owed."""
    dtype = attention.dtype.type
    zero, half, one, two = dtype(0), dtype(0.5), dtype(1), dtype(2)
    boxes_number = attention.shape[1]
    images_per_counter = attention.shape[0] // weight.shape[0]
    base, rise = empty_table(weight.shape[2], attention), empty_table(weight.shape[2], attention)
    owed = np.zeros((8, weight.shape[2], LANES, 2), attention.dtype)
    order = np.empty(boxes_number, np.int32)
    a = np.empty(boxes_number, attention.dtype)
    b = np.empty((4, boxes_number), attention.dtype)
    grad_a, grad_b = np.empty_like(a), np.empty_like(b)
    rows = np.empty((boxes_number, row_length(boxes_number)), attention.dtype)
    edges, grad_rows = np.empty_like(rows), np.empty_like(rows)
    grad_alike = np.empty_like(a)
    steps = np.arange(row_length(boxes_number)).astype(attention.dtype)
    unsettled = 0
    counter = -1
    for image in range(first, stop):
        if image // images_per_counter != counter:
            if counter >= 0:
                settle(owed, grad_rise[counter])
            counter = image // images_per_counter
            normalise(weight[counter], base, rise)
        elif unsettled > STEPS_BETWEEN_SETTLEMENTS:
            settle(owed, grad_rise[counter])
            unsettled = 0
        scale = state[image, 1 : 1 + boxes_number]
        pairs = state[image, 1 + boxes_number :].reshape(boxes_number, boxes_number)
        n = real_proposals(image, attention, boxes, mask, order, a, b)
        fill_matrices(n, a, pairs, base, rise, rows, edges)
        for i in range(n):
            grad_a[i] = zero
            for corner in range(4):
                grad_b[corner, i] = zero
            for k in range(row_length(n)):
                grad_rows[i, k] = zero

        grad_total, grad_mean = features_backward(
            image, state[image, 0], count, grad_features, grad_count, base, rise, owed
        )

        # From C to the row sums of Sim, and to each weight on its own.
        for i in range(n):
            inner = zero
            for j in range(n):
                inner += edges[i, j] * scale[j]
            scale_i = scale[i]
            s, place = locate(a[i] * a[i], rise)
            grad_scale = grad_total * (base[F1, s] + rise[F1, s] * place + inner + inner)
            grad_alike[i] = -grad_scale * scale_i * scale_i
            grad_a[i] += owe(F1, s, place, grad_total * scale_i, rise, owed) * two * a[i]
            s, place = locate(a[i], rise)
            side = np.sign(base[F6, s] + rise[F6, s] * place - half)
            grad_a[i] += owe(F6, s, place, grad_mean / dtype(n) * side, rise, owed)

        # From Sim to the rows of X, and to the differences of weights.
        for i in range(n):
            for j in range(i + 1, n):
                grad_similarity = grad_alike[i] + grad_alike[j]
                product = pairs[i, j]
                s, place = locate(one - abs(a[i] - a[j]), rise)
                grad_product = grad_similarity * product * (base[F3, s] + rise[F3, s] * place)
                row_backward(i, j, n, grad_product, rows, grad_rows, steps, base, rise, owed)
                grad_closeness = owe(F3, s, place, grad_similarity * product, rise, owed)
                grad_closeness = grad_closeness if a[i] > a[j] else (-grad_closeness if a[i] < a[j] else zero)
                grad_a[i] -= grad_closeness
                grad_a[j] += grad_closeness
        unsettled += n * n * n

        # From Ã, X and the confidence to relevance and distance, and on to weights and boxes.
        grad_pair = two * grad_mean / dtype(max(n * n, 1))
        for i in range(n):
            for j in range(i + 1, n):
                s, place = locate(a[i] * a[j], rise)
                t, there = locate(pairs[j, i], rise)
                grad_edge = two * grad_total * scale[i] * scale[j]
                grad_row = grad_rows[i, j] + grad_rows[j, i]
                sure = base[F7, t] + rise[F7, t] * there
                grad_sure = grad_pair if sure > half else (-grad_pair if sure < half else zero)
                grad_relevance = owe(F1, s, place, grad_edge * (base[F2, t] + rise[F2, t] * there), rise, owed) + owe(
                    F4, s, place, grad_row * (base[F5, t] + rise[F5, t] * there), rise, owed
                )
                grad_distance = (
                    owe(F2, t, there, grad_edge * (base[F1, s] + rise[F1, s] * place), rise, owed)
                    + owe(F5, t, there, grad_row * (base[F4, s] + rise[F4, s] * place), rise, owed)
                    + owe(F7, t, there, grad_sure, rise, owed)
                )
                grad_a[i] += grad_relevance * a[j]
                grad_a[j] += grad_relevance * a[i]
                if boxes_need_grad:
                    overlap_backward(i, j, b, grad_distance, grad_b)

        if n < boxes_number:
            grad_attention[image] = zero
            grad_boxes[image] = zero
        for i in range(n):
            grad_attention[image, order[i]] = grad_a[i]
            for corner in range(4):
                grad_boxes[image, order[i], corner] = grad_b[corner, i]
    if counter >= 0:
        settle(owed, grad_rise[counter])
