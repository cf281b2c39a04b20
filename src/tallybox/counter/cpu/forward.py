"""The forward kernel."""

from __future__ import annotations

import numpy as np

from tallybox.counter.cpu.parts import (
    BOXES_OF_A_LONG_ROW,
    F1,
    F3,
    F6,
    F7,
    F8,
    TINY,
    Array,
    Number,
    compiled,
    compiled_in_order,
    fill_distance,
    fill_matrices,
    locate_row,
    normalise,
    real_proposals,
    segment_start,
    split_state,
    value,
)


@compiled_in_order
def short_row_product(i: int, j: int, n: int, rows: Array, base: Array, rise: Array) -> Number:
    """∏_k f3(1 - |X_ik - X_jk|)."""
    dtype = rise.dtype.type
    one, segments, tiny = dtype(1), dtype(rise.shape[1]), dtype(TINY)
    product = one
    for k in range(n):
        position = (one - abs(rows[i, k] - rows[j, k])) * segments
        start = segment_start(position, segments - one)
        s = np.uint32(np.int32(start))
        factor = base[F3, s] + rise[F3, s] * (position - start)
        product *= factor if factor > tiny else tiny
    return product


@compiled
def factor_at(k: int, base: Array, rise: Array, places: Array, segment: Array) -> Number:
    """f3 where `locate_row` found place k, not below TINY."""
    s, tiny = np.uint32(segment[k]), rise.dtype.type(TINY)
    factor = base[F3, s] + rise[F3, s] * places[k]
    return factor if factor > tiny else tiny


@compiled
def long_row_product(
    i: int, j: int, n: int, rows: Array, base: Array, rise: Array, places: Array, segment: Array
) -> Number:
    """Do as `short_row_product`, by four products side by side."""
    locate_row(i, j, n, rows, rise, places, segment)
    first = second = third = fourth = rise.dtype.type(1)
    whole = n // 4 * 4
    for k in range(0, whole, 4):
        first *= factor_at(k, base, rise, places, segment)
        second *= factor_at(k + 1, base, rise, places, segment)
        third *= factor_at(k + 2, base, rise, places, segment)
        fourth *= factor_at(k + 3, base, rise, places, segment)
    for k in range(whole, n):
        first *= factor_at(k, base, rise, places, segment)
    return (first * second) * (third * fourth)


@compiled
def count_forward_kernel(
    attention: Array,
    boxes: Array,
    mask: Array,
    weight: Array,
    features: Array,
    count: Array,
    state: Array,
    first: int,
    stop: int,
) -> None:
    """Count images first ... stop - 1 of [M * R].

    Keep in state what backward needs (`split_state`): certainty, s, and for each pair of boxes
    the row product of Sim above the diagonal and D below it.
    """
    dtype = attention.dtype.type
    zero, half, one = dtype(0), dtype(0.5), dtype(1)
    boxes_number, max_objects = attention.shape[1], features.shape[1] - 1
    images_per_counter = attention.shape[0] // weight.shape[0]
    base = np.empty(weight.shape[1:], attention.dtype)
    rise = np.empty_like(base)
    order = np.empty(boxes_number, np.int32)
    a = np.empty(boxes_number, attention.dtype)
    b = np.empty((4, boxes_number), attention.dtype)
    rows = np.empty((boxes_number, boxes_number), attention.dtype)
    edges = np.empty_like(rows)
    alike, places = np.empty_like(a), np.empty_like(a)
    segment = np.empty(boxes_number, np.int32)
    scales, all_pairs = split_state(state, boxes_number)
    counter = -1
    for image in range(first, stop):
        if image // images_per_counter != counter:
            counter = image // images_per_counter
            normalise(weight[counter], base, rise)
        scale, pairs = scales[image], all_pairs[image]
        n = real_proposals(image, attention, boxes, mask, order, a, b)
        fill_distance(n, b, pairs)
        fill_matrices(n, a, pairs, base, rise, rows, edges)
        for i in range(n):
            alike[i] = one
        for i in range(n):
            for j in range(i + 1, n):
                if n < BOXES_OF_A_LONG_ROW:
                    product = short_row_product(i, j, n, rows, base, rise)
                else:
                    product = long_row_product(i, j, n, rows, base, rise, places, segment)
                similarity = value(F3, one - abs(a[i] - a[j]), base, rise) * product
                alike[i] += similarity
                alike[j] += similarity
                pairs[i, j] = product
        total = zero
        from_attention, from_distance = zero, zero
        for i in range(n):
            scale_i = one / alike[i]
            scale[i] = scale_i
            inner = zero
            for j in range(i):
                inner += edges[i, j] * scale[j]
                from_distance += abs(value(F7, pairs[i, j], base, rise) - half)
            total += scale_i * (value(F1, a[i] * a[i], base, rise) + inner + inner)
            from_attention += abs(value(F6, a[i], base, rise) - half)
        if n > 0:
            real = dtype(n)
            mean = from_attention / real + (half * real + from_distance + from_distance) / (real * real)
        else:
            mean = one  # as certain as an image whose every weight is 0
        c = min(np.sqrt(total + dtype(1e-20)), dtype(max_objects))
        confidence = value(F8, mean, base, rise)
        lower = max(min(np.int32(np.floor(c)), max_objects), 0)  # a place in the features even if c is NaN
        upper_share = c - np.floor(c)
        features[image, :] = zero
        features[image, lower] = confidence * (one - upper_share)
        features[image, min(lower + 1, max_objects)] += confidence * upper_share
        count[image] = c
        state[image] = mean
