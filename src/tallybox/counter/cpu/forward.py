"""The forward kernel."""

from __future__ import annotations

import numpy as np

from tallybox.counter.cpu.parts import (
    F1,
    F3,
    F6,
    F7,
    F8,
    TINY,
    Array,
    Number,
    compiled,
    fill_matrices,
    normalise,
    real_proposals,
    segment_start,
    value,
)


@compiled
def row_product(row_i: Array, row_j: Array, base: Array, rise: Array) -> Number:
    """∏_k f3(1 - |X_ik - X_jk|)."""
    dtype = rise.dtype.type
    one, segments = dtype(1), dtype(rise.shape[0])
    last, tiny = segments - one, dtype(TINY)
    product = one
    for k in range(row_i.shape[0]):
        position = (one - abs(row_i[k] - row_j[k])) * segments
        start = segment_start(position, last)
        s = np.uint32(np.int32(start))
        factor = base[s] + rise[s] * (position - start)
        product *= factor if factor > tiny else tiny
    return product


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

    Keep in state [M * R, 1 + N + N * N] what backward needs: certainty, s, and the row products of Sim.
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
    distance = np.empty((boxes_number, boxes_number), attention.dtype)
    rows, edges = np.empty_like(distance), np.empty_like(distance)
    alike = np.empty(boxes_number, attention.dtype)
    counter = -1
    for image in range(first, stop):
        if image // images_per_counter != counter:
            counter = image // images_per_counter
            normalise(weight[counter], base, rise)
        scale = state[image, 1 : 1 + boxes_number]
        products = state[image, 1 + boxes_number :].reshape(boxes_number, boxes_number)
        n = real_proposals(image, attention, boxes, mask, order, a, b)
        fill_matrices(n, a, b, base, rise, distance, rows, edges)
        alike[:n] = one
        for i in range(n):
            for j in range(i + 1, n):
                product = row_product(rows[i, :n], rows[j, :n], base[F3], rise[F3])
                similarity = value(F3, one - abs(a[i] - a[j]), base, rise) * product
                alike[i] += similarity
                alike[j] += similarity
                products[i, j] = product
        total = zero
        from_attention, from_distance = zero, zero
        for i in range(n):
            scale_i = one / alike[i]
            scale[i] = scale_i
            inner = zero
            for j in range(i):
                inner += edges[i, j] * scale[j]
                from_distance += abs(value(F7, distance[i, j], base, rise) - half)
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
        state[image, 0] = mean
