"""The backward kernel, from the gradient of the features to those of weights, boxes and segments."""

from __future__ import annotations

import numpy as np

from tallybox.counter.cpu.parts import (
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
    normalise,
    owe,
    real_proposals,
    segment_start,
    value,
)

# Gradients of the likeness activation are summed in this many places in turn, so that an addition
# need not wait for the one before it to reach memory; and in the inputs' precision for at most this
# many steps, then in double.
LANES = 8
STEPS_BETWEEN_SETTLEMENTS = 1 << 16

# From this many boxes on, a row's steps pay for loops of their own that the compiler can vectorise
# (measured on one AMD EPYC core: 6.6 against 14 ns a step at 10 boxes, 6.2 against 2.9 at 100).
BOXES_WORTH_SPLITTING = 24


@compiled
def short_row_backward(
    row_i: Array, row_j: Array, grad_i: Array, grad_j: Array, product: Number, base: Array, rise: Array, owed: Array
) -> None:
    """Add the gradients of a row product whose value times its own gradient is given."""
    dtype = rise.dtype.type
    zero, one, segments, tiny = dtype(0), dtype(1), dtype(rise.shape[0]), dtype(TINY)
    for k in range(row_i.shape[0]):
        difference = row_i[k] - row_j[k]
        position = (one - abs(difference)) * segments
        start = segment_start(position, segments - one)
        s = np.uint32(np.int32(start))
        factor = base[s] + rise[s] * (position - start)
        others = product / (factor if factor > tiny else tiny)
        slope = others * rise[s] * segments
        slope = slope if difference > zero else (-slope if difference < zero else zero)
        grad_i[k] -= slope
        grad_j[k] += slope
        lane = np.uint32(k) % np.uint32(LANES)
        owed[lane, s, 0] += others
        owed[lane, s, 1] += others * (position - start)


@compiled
def long_row_backward(
    row_i: Array,
    row_j: Array,
    grad_i: Array,
    grad_j: Array,
    product: Number,
    base: Array,
    rise: Array,
    owed: Array,
    steps: Array,
    segment: Array,
) -> None:
    """Do as `short_row_backward`, in loops that are each vectorised: table look-ups stand alone."""
    dtype = rise.dtype.type
    zero, one, segments, tiny = dtype(0), dtype(1), dtype(rise.shape[0]), dtype(TINY)
    n = row_i.shape[0]
    place, others, slope = steps[0, :n], steps[1, :n], steps[2, :n]
    for k in range(n):
        position = (one - abs(row_i[k] - row_j[k])) * segments
        start = segment_start(position, segments - one)
        place[k] = position - start
        segment[k] = np.int32(start)
    for k in range(n):
        s = np.uint32(segment[k])
        factor = base[s] + rise[s] * place[k]
        others[k] = factor if factor > tiny else tiny
        slope[k] = rise[s]
    for k in range(n):
        without = product / others[k]
        difference = row_i[k] - row_j[k]
        grad = without * slope[k] * segments
        grad = grad if difference > zero else -grad
        slope[k] = grad if difference != zero else zero
        others[k] = without
        place[k] = without * place[k]
    for k in range(n):
        grad_i[k] -= slope[k]
        grad_j[k] += slope[k]
    for k in range(n):
        s, lane = np.uint32(segment[k]), np.uint32(k) % np.uint32(LANES)
        owed[lane, s, 0] += others[k]
        owed[lane, s, 1] += place[k]


@compiled
def overlap_backward(i: int, j: int, b: Array, grad_distance: Number, grad_b: Array) -> None:
    """Add what boxes i and j owe to D_ij = 1 - IoU; equal edges share their gradient."""
    dtype = b.dtype.type
    zero, half, one = dtype(0), dtype(0.5), dtype(1)
    width = min(b[2, i], b[2, j]) - max(b[0, i], b[0, j])
    height = min(b[3, i], b[3, j]) - max(b[1, i], b[1, j])
    shared = max(width, zero) * max(height, zero)
    area_i = max(b[2, i] - b[0, i], zero) * max(b[3, i] - b[1, i], zero)
    area_j = max(b[2, j] - b[0, j], zero) * max(b[3, j] - b[1, j], zero)
    union = area_i + area_j - shared
    if not union > zero:
        return
    grad_area = grad_distance * shared / (union * union)
    grad_shared = -grad_distance / union - grad_area
    for axis in range(2):
        low, high = axis, axis + 2
        across = 1 - axis
        for box in (i, j):
            if b[high, box] >= b[low, box]:
                grad = grad_area * max(b[across + 2, box] - b[across, box], zero)
                grad_b[low, box] -= grad
                grad_b[high, box] += grad
        extent, other = (width, height) if axis == 0 else (height, width)
        if extent >= zero:
            grad = grad_shared * max(other, zero)
            share = one if b[low, i] > b[low, j] else (zero if b[low, i] < b[low, j] else half)
            grad_b[low, i] -= grad * share
            grad_b[low, j] -= grad * (one - share)
            share = one if b[high, i] < b[high, j] else (zero if b[high, i] > b[high, j] else half)
            grad_b[high, i] += grad * share
            grad_b[high, j] += grad * (one - share)


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
    distance = np.empty((boxes_number, boxes_number), attention.dtype)
    rows, edges, grad_rows = np.empty_like(distance), np.empty_like(distance), np.empty_like(distance)
    grad_alike = np.empty(boxes_number, attention.dtype)
    steps, segment = np.empty((3, boxes_number), attention.dtype), np.empty(boxes_number, np.int32)
    # What each segment is owed: by values in it (how far it starts up), and by their place in it.
    owed = np.zeros((8, segments, 2))
    likeness_owed = np.zeros((LANES, segments, 2), attention.dtype)
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
        scale = state[image, 1 : 1 + boxes_number]
        products = state[image, 1 + boxes_number :].reshape(boxes_number, boxes_number)
        n = real_proposals(image, attention, boxes, mask, order, a, b)
        fill_matrices(n, a, b, base, rise, distance, rows, edges)
        grad_a[:n] = zero
        grad_b[:, :n] = zero
        grad_rows[:n, :n] = zero

        # From the features to the sum of C and the confidence.
        c, mean = count[image], state[image, 0]
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
                row_i, row_j, grad_i, grad_j = rows[i, :n], rows[j, :n], grad_rows[i, :n], grad_rows[j, :n]
                grad_similarity = grad_alike[i] + grad_alike[j]
                product = products[i, j]
                s, place = locate(one - abs(a[i] - a[j]), rise)
                grad_product = grad_similarity * product * (base[F3, s] + rise[F3, s] * place)
                if n < BOXES_WORTH_SPLITTING:
                    short_row_backward(row_i, row_j, grad_i, grad_j, grad_product, base[F3], rise[F3], likeness_owed)
                else:
                    long_row_backward(
                        row_i, row_j, grad_i, grad_j, grad_product, base[F3], rise[F3], likeness_owed, steps, segment
                    )
                grad_closeness = owe(F3, s, place, grad_similarity * product, rise, owed)
                grad_a[i] -= grad_closeness * np.sign(a[i] - a[j])
                grad_a[j] += grad_closeness * np.sign(a[i] - a[j])
        unsettled += n * n * n

        # From Ã, X and the confidence to relevance and distance, and on to weights and boxes.
        for i in range(n):
            for j in range(i + 1, n):
                s, place = locate(a[i] * a[j], rise)
                t, there = locate(distance[i, j], rise)
                grad_edge = two * grad_total * scale[i] * scale[j]
                grad_row = grad_rows[i, j] + grad_rows[j, i]
                side = np.sign(base[F7, t] + rise[F7, t] * there - half)
                grad_relevance = owe(F1, s, place, grad_edge * (base[F2, t] + rise[F2, t] * there), rise, owed) + owe(
                    F4, s, place, grad_row * (base[F5, t] + rise[F5, t] * there), rise, owed
                )
                grad_distance = (
                    owe(F2, t, there, grad_edge * (base[F1, s] + rise[F1, s] * place), rise, owed)
                    + owe(F5, t, there, grad_row * (base[F4, s] + rise[F4, s] * place), rise, owed)
                    + owe(F7, t, there, two * grad_mean / dtype(n * n) * side, rise, owed)
                )
                grad_a[i] += grad_relevance * a[j]
                grad_a[j] += grad_relevance * a[i]
                overlap_backward(i, j, b, grad_distance, grad_b)

        grad_attention[image, :] = zero
        grad_boxes[image, :, :] = zero
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
