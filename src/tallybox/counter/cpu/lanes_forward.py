"""The forward kernel for few boxes: eight images at once."""

from __future__ import annotations

import numpy as np

from tallybox.counter.cpu.lanes import distance, fill_matrices, group_end, keep_state, load_group
from tallybox.counter.cpu.likeness import likeness, locate_all, value_at
from tallybox.counter.cpu.parts import F1, F3, F6, F7, Array, compiled, empty_table, normalise, write_features
from tallybox.kernels.cpu.vectors import LANES, choose, load, store


@compiled
def fill_products(
    n: int, a: Array, sizes: Array, base: Array, rise: Array, rows: Array, pairs: Array, alike: Array
) -> None:
    """Compute the row products of Sim above the diagonal of pairs, and Sim's row sums."""
    dtype = a.dtype.type
    zero, one = dtype(0), dtype(1)
    for i in range(n):
        is_real = load(sizes, (0,)) > dtype(i)
        alike_i = load(sizes, (0,)) * zero + one
        for j in range(i):
            product = likeness(load(rows, (i, 0, 0)), load(rows, (j, 0, 0)), base, rise)
            for k in range(1, n):
                product = product * likeness(load(rows, (i, k, 0)), load(rows, (j, k, 0)), base, rise)
            s, place = locate_all(one - abs(load(a, (i, 0)) - load(a, (j, 0))), rise)
            similarity = choose(is_real, value_at(F3, s, place, base, rise) * product, zero)
            alike_i = alike_i + similarity
            store(alike, (j, 0), load(alike, (j, 0)) + similarity)
            store(pairs, (j, i, 0), product)
        store(alike, (i, 0), alike_i)


@compiled
def sum_up(
    n: int,
    a: Array,
    sizes: Array,
    base: Array,
    rise: Array,
    edges: Array,
    pairs: Array,
    alike: Array,
    scale: Array,
    total: Array,
    mean: Array,
) -> None:
    """Compute s, the sum of C, and the certainty."""
    dtype = a.dtype.type
    zero, half, one = dtype(0), dtype(0.5), dtype(1)
    number = load(sizes, (0,))
    sum_of_c = from_attention = from_distance = number * zero
    for i in range(n):
        is_real = number > dtype(i)
        scale_i = one / load(alike, (i, 0))
        store(scale, (i, 0), scale_i)
        inner = number * zero
        for j in range(i):
            inner = inner + load(edges, (i, j, 0)) * load(scale, (j, 0))
            t, there = locate_all(load(pairs, (i, j, 0)), rise)
            sure = abs(value_at(F7, t, there, base, rise) - half)
            from_distance = from_distance + choose(is_real, sure, zero)
        a_i = load(a, (i, 0))
        s, place = locate_all(a_i * a_i, rise)
        sum_of_c = sum_of_c + scale_i * (value_at(F1, s, place, base, rise) + inner + inner)
        s, place = locate_all(a_i, rise)
        from_attention = from_attention + choose(is_real, abs(value_at(F6, s, place, base, rise) - half), zero)
    store(total, (0,), sum_of_c)
    certainty = from_attention / number + (half * number + from_distance + from_distance) / (number * number)
    store(mean, (0,), choose(number > zero, certainty, one))  # as certain as an image whose every weight is 0


@compiled
def lanes_forward_kernel(
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
    """Do as `rows_forward_kernel`."""
    boxes_number, images_per_counter = attention.shape[1], attention.shape[0] // weight.shape[0]
    base, rise = empty_table(weight.shape[2], attention), empty_table(weight.shape[2], attention)
    order = np.empty((boxes_number, LANES), np.int32)
    a = np.empty((boxes_number, LANES), attention.dtype)
    b = np.empty((4, boxes_number, LANES), attention.dtype)
    sizes, total, mean = (
        np.empty(LANES, attention.dtype),
        np.empty(LANES, attention.dtype),
        np.empty(LANES, attention.dtype),
    )
    alike, scale = np.empty_like(a), np.empty_like(a)
    rows = np.empty((boxes_number, boxes_number, LANES), attention.dtype)
    edges, pairs = np.empty_like(rows), np.empty_like(rows)
    counter = -1
    while first < stop:
        if first // images_per_counter != counter:
            counter = first // images_per_counter
            normalise(weight[counter], base, rise)
        end = group_end(first, stop, images_per_counter)
        n = load_group(first, end, attention, boxes, mask, order, a, b, sizes)
        for i in range(n):
            is_real = load(sizes, (0,)) > attention.dtype.type(i)
            for j in range(i):
                store(pairs, (i, j, 0), choose(is_real, distance(i, j, b), attention.dtype.type(0)))
        fill_matrices(n, a, pairs, base, rise, rows, edges)
        fill_products(n, a, sizes, base, rise, rows, pairs, alike)
        sum_up(n, a, sizes, base, rise, edges, pairs, alike, scale, total, mean)
        for image in range(first, end):
            lane = image - first
            write_features(image, total[lane], mean[lane], base, rise, features, count)
            state[image, 0] = mean[lane]
        keep_state(first, end, state, sizes, scale, pairs)
        first = end
