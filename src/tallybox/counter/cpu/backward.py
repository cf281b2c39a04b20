"""The backward kernel, from the gradient of the features to those of weights, boxes and segments."""

from __future__ import annotations

import numpy as np

from tallybox.counter.cpu.parts import (
    BOXES_OF_A_LONG_ROW,
    F1,
    F2,
    F3,
    F4,
    F5,
    F6,
    F7,
    F8,
    TINY,
    Array,
    Number,
    compiled,
    fill_matrices,
    locate,
    locate_row,
    normalise,
    owe,
    real_proposals,
    segment_start,
    split_state,
    value,
)

# Gradients of the likeness activation are summed in this many places in turn, so that an addition
# need not wait for the one before it to reach memory; and in the inputs' precision for at most this
# many steps, then in double.
LANES = 8
STEPS_BETWEEN_SETTLEMENTS = 1 << 16


@compiled
def short_row_backward(
    i: int,
    j: int,
    n: int,
    product: Number,
    rows: Array,
    grad_rows: Array,
    base: Array,
    rise: Array,
    owed: Array,
) -> None:
    """Add the gradients of a row product of boxes i and j, whose value times its own gradient is given."""
    dtype = rise.dtype.type
    zero, one, segments, tiny = dtype(0), dtype(1), dtype(rise.shape[1]), dtype(TINY)
    for k in range(n):
        difference = rows[i, k] - rows[j, k]
        position = (one - abs(difference)) * segments
        start = segment_start(position, segments - one)
        s = np.uint32(np.int32(start))
        factor = base[F3, s] + rise[F3, s] * (position - start)
        others = product / (factor if factor > tiny else tiny)
        slope = others * rise[F3, s] * segments
        slope = slope if difference > zero else (-slope if difference < zero else zero)
        grad_rows[i, k] -= slope
        grad_rows[j, k] += slope
        lane = np.uint32(k) % np.uint32(LANES)
        owed[lane, s, 0] += others
        owed[lane, s, 1] += others * (position - start)


@compiled
def long_row_backward(
    i: int,
    j: int,
    n: int,
    product: Number,
    rows: Array,
    grad_rows: Array,
    base: Array,
    rise: Array,
    owed: Array,
    places: Array,
    factors: Array,
    slopes: Array,
    segment: Array,
) -> None:
    """Do as `short_row_backward`, in loops that are vectorised or go four at a time."""
    dtype = rise.dtype.type
    zero, segments, tiny = dtype(0), dtype(rise.shape[1]), dtype(TINY)
    locate_row(i, j, n, rows, rise, places, segment)
    for k in range(n):
        s = np.uint32(segment[k])
        factor = base[F3, s] + rise[F3, s] * places[k]
        factors[k] = factor if factor > tiny else tiny
        slopes[k] = rise[F3, s]
    for k in range(n):
        others = product / factors[k]
        difference = rows[i, k] - rows[j, k]
        slope = others * slopes[k] * segments
        slope = slope if difference > zero else -slope
        slopes[k] = slope if difference != zero else zero
        factors[k] = others
        places[k] *= others
    for k in range(n):
        grad_rows[i, k] -= slopes[k]
    for k in range(n):
        grad_rows[j, k] += slopes[k]
    whole = n // 4 * 4
    for k in range(0, whole, 4):
        owe_in_lane(0, k, factors, places, segment, owed)
        owe_in_lane(1, k + 1, factors, places, segment, owed)
        owe_in_lane(2, k + 2, factors, places, segment, owed)
        owe_in_lane(3, k + 3, factors, places, segment, owed)
    for k in range(whole, n):
        owe_in_lane(0, k, factors, places, segment, owed)


@compiled
def owe_in_lane(lane: int, k: int, grads: Array, places: Array, segment: Array, owed: Array) -> None:
    """Note what step k of a long row owes to its segment: its gradient, and that times its place."""
    s = np.uint32(segment[k])
    owed[lane, s, 0] += grads[k]
    owed[lane, s, 1] += places[k]


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
def count_backward_kernel(
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
    boxes_number, max_objects = attention.shape[1], grad_features.shape[1] - 1
    images_per_counter = attention.shape[0] // weight.shape[0]
    segments = weight.shape[2]
    base = np.empty(weight.shape[1:], attention.dtype)
    rise = np.empty_like(base)
    order = np.empty(boxes_number, np.int32)
    a = np.empty(boxes_number, attention.dtype)
    b = np.empty((4, boxes_number), attention.dtype)
    grad_a, grad_b = np.empty_like(a), np.empty_like(b)
    rows = np.empty((boxes_number, boxes_number), attention.dtype)
    edges, grad_rows = np.empty_like(rows), np.empty_like(rows)
    grad_alike = np.empty(boxes_number, attention.dtype)
    places, factors, slopes = np.empty_like(a), np.empty_like(a), np.empty_like(a)
    segment = np.empty(boxes_number, np.int32)
    # What each segment is owed: by values in it (how far it starts up), and by their place in it.
    owed = np.zeros((8, segments, 2))
    likeness_owed = np.zeros((LANES, segments, 2), attention.dtype)
    scales, all_pairs = split_state(state, boxes_number)
    unsettled = 0
    counter = -1
    for image in range(first, stop):
        if image // images_per_counter != counter:
            if counter >= 0:
                settle(likeness_owed, owed, grad_rise[counter])
            counter = image // images_per_counter
            normalise(weight[counter], base, rise)
        elif unsettled > STEPS_BETWEEN_SETTLEMENTS:
            settle(likeness_owed, owed, grad_rise[counter])
            unsettled = 0
        scale, pairs = scales[image], all_pairs[image]
        n = real_proposals(image, attention, boxes, mask, order, a, b)
        fill_matrices(n, a, pairs, base, rise, rows, edges)
        for i in range(n):
            grad_a[i] = zero
            for corner in range(4):
                grad_b[corner, i] = zero
            for k in range(n):
                grad_rows[i, k] = zero

        # From the features to the sum of C and the confidence.
        c, mean = count[image], state[image]
        confidence = value(F8, mean, base, rise)
        lower = max(min(np.int32(np.floor(c)), max_objects), 0)  # a place in the features even if c is NaN
        upper = min(lower + 1, max_objects)
        upper_share = c - np.floor(c)
        grad_lower, grad_upper = grad_features[image, lower], grad_features[image, upper]
        grad_confidence = (one - upper_share) * grad_lower + upper_share * grad_upper
        grad_total = (confidence * (grad_upper - grad_lower) + grad_count[image]) / (two * c)
        s, place = locate(mean, rise)
        grad_mean = owe(F8, s, place, grad_confidence, rise, owed)

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
                if n < BOXES_OF_A_LONG_ROW:
                    short_row_backward(i, j, n, grad_product, rows, grad_rows, base, rise, likeness_owed)
                else:
                    long_row_backward(
                        i,
                        j,
                        n,
                        grad_product,
                        rows,
                        grad_rows,
                        base,
                        rise,
                        likeness_owed,
                        places,
                        factors,
                        slopes,
                        segment,
                    )
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
        settle(likeness_owed, owed, grad_rise[counter])


@compiled
def settle(likeness_owed: Array, owed: Array, grad_rise: Array) -> None:
    """Add what is owed to a counter's gradient [8, S] and forget it: a start is the sum of the rises before it."""
    segments = owed.shape[1]
    for lane in range(LANES):
        for s in range(segments):
            owed[F3, s, 0] += likeness_owed[lane, s, 0]
            owed[F3, s, 1] += likeness_owed[lane, s, 1]
    for role in range(8):
        later = 0.0
        for s in range(segments - 1, -1, -1):
            grad_rise[role, s] += owed[role, s, 1] + later
            later += owed[role, s, 0]
    owed[:] = 0.0
    likeness_owed[:] = 0.0
