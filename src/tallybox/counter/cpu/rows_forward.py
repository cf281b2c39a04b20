"""The forward kernel for many boxes: one image at a time."""

from __future__ import annotations

import numpy as np

from tallybox.counter.cpu.likeness import likeness
from tallybox.counter.cpu.parts import (
    F1,
    F3,
    F6,
    F7,
    Array,
    Number,
    compiled,
    empty_table,
    normalise,
    value,
    write_features,
)
from tallybox.counter.cpu.rows import fill_distance, fill_matrices, row_length
from tallybox.kernels.cpu.boxes import real_proposals
from tallybox.kernels.cpu.vectors import LANES, load, store


@compiled
def row_product(i: int, j: int, n: int, rows: Array, base: Array, rise: Array, products: Array) -> Number:
    """∏_k f3(1 - |X_ik - X_jk|), by way of eight products side by side."""
    product = likeness(load(rows, (i, 0)), load(rows, (j, 0)), base, rise)
    for k in range(LANES, n, LANES):
        product = product * likeness(load(rows, (i, k)), load(rows, (j, k)), base, rise)
    store(products, (0,), product)
    whole = products[0]
    for lane in range(1, LANES):
        whole *= products[lane]
    return whole


@compiled
def rows_forward_kernel(
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

    Keep in state [M * R, 1 + N + N * N] what backward needs: certainty, s, and for each pair of boxes
    the row product of Sim above the diagonal and D below it.
    """
    dtype = attention.dtype.type
    zero, half, one = dtype(0), dtype(0.5), dtype(1)
    boxes_number = attention.shape[1]
    images_per_counter = attention.shape[0] // weight.shape[0]
    base, rise = empty_table(weight.shape[2], attention), empty_table(weight.shape[2], attention)
    order = np.empty(boxes_number, np.int32)
    a = np.empty(boxes_number, attention.dtype)
    b = np.empty((4, boxes_number), attention.dtype)
    rows = np.empty((boxes_number, row_length(boxes_number)), attention.dtype)
    edges = np.empty_like(rows)
    alike, products = np.empty_like(a), np.empty(LANES, attention.dtype)
    counter = -1
    for image in range(first, stop):
        if image // images_per_counter != counter:
            counter = image // images_per_counter
            normalise(weight[counter], base, rise)
        scale = state[image, 1 : 1 + boxes_number]
        pairs = state[image, 1 + boxes_number :].reshape(boxes_number, boxes_number)
        n = real_proposals(image, attention, boxes, mask, order, a, b)
        fill_distance(n, b, pairs)
        fill_matrices(n, a, pairs, base, rise, rows, edges)
        for i in range(n):
            alike[i] = one
        for i in range(n):
            for j in range(i + 1, n):
                product = row_product(i, j, n, rows, base, rise, products)
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
        write_features(image, total, mean, base, rise, features, count)
        state[image, 0] = mean
