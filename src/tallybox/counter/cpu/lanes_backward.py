"""The backward kernel for few boxes: eight images at once."""

from __future__ import annotations

import numpy as np

from tallybox.counter.cpu.lanes import extent, fill_matrices, group_end, load_group, load_state, overlap
from tallybox.counter.cpu.likeness import Vector, likeness_backward, locate_all, owe_all, signed, value_at
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
    compiled,
    empty_table,
    features_backward,
    normalise,
    settle,
)
from tallybox.kernels.cpu.vectors import LANES, choose, load, store


@compiled
def add_to(array: Array, i: int, x: Vector) -> None:
    """Add to array [N, LANES] at i."""
    store(array, (i, 0), load(array, (i, 0)) + x)


@compiled
def scales_backward(
    n: int,
    a: Array,
    sizes: Array,
    base: Array,
    rise: Array,
    edges: Array,
    scale: Array,
    grad_total: Vector,
    grad_mean: Vector,
    grad_alike: Array,
    grad_a: Array,
    owed: Array,
) -> None:
    """Carry the gradients from C to the row sums of Sim, and to each weight on its own."""
    dtype = a.dtype.type
    zero, half, two = dtype(0), dtype(0.5), dtype(2)
    number = load(sizes, (0,))
    for i in range(n):
        is_real = number > dtype(i)
        inner = number * zero
        for j in range(n):
            inner = inner + load(edges, (i, j, 0)) * load(scale, (j, 0))
        a_i, scale_i = load(a, (i, 0)), load(scale, (i, 0))
        s, place = locate_all(a_i * a_i, rise)
        grad_scale = grad_total * (value_at(F1, s, place, base, rise) + inner + inner)
        store(grad_alike, (i, 0), -grad_scale * scale_i * scale_i)
        grad_square = owe_all(F1, s, place, choose(is_real, grad_total * scale_i, zero), rise, owed)
        s, place = locate_all(a_i, rise)
        grad_sure = signed(grad_mean / number, value_at(F6, s, place, base, rise) - half, zero)
        grad_sure = choose(is_real, grad_sure, zero)
        store(grad_a, (i, 0), grad_square * two * a_i + owe_all(F6, s, place, grad_sure, rise, owed))


@compiled
def similarity_backward(
    n: int,
    a: Array,
    sizes: Array,
    base: Array,
    rise: Array,
    rows: Array,
    pairs: Array,
    grad_alike: Array,
    grad_a: Array,
    grad_rows: Array,
    owed: Array,
) -> None:
    """Carry the gradients from Sim to the rows of X, and to the differences of weights."""
    dtype = a.dtype.type
    zero, one = dtype(0), dtype(1)
    number = load(sizes, (0,))
    for i in range(n):
        for k in range(n):
            store(grad_rows, (i, k, 0), number * zero)
    for i in range(n):
        is_real = number > dtype(i)
        for j in range(i):
            grad_similarity = choose(is_real, load(grad_alike, (i, 0)) + load(grad_alike, (j, 0)), zero)
            grad_likeness = grad_similarity * load(pairs, (j, i, 0))
            difference = load(a, (i, 0)) - load(a, (j, 0))
            s, place = locate_all(one - abs(difference), rise)
            product = grad_likeness * value_at(F3, s, place, base, rise)
            for k in range(n):
                slope = likeness_backward(
                    load(rows, (i, k, 0)), load(rows, (j, k, 0)), product, number > dtype(k), base, rise, owed
                )
                store(grad_rows, (i, k, 0), load(grad_rows, (i, k, 0)) - slope)
                store(grad_rows, (j, k, 0), load(grad_rows, (j, k, 0)) + slope)
            grad_closeness = signed(owe_all(F3, s, place, grad_likeness, rise, owed), difference, zero)
            add_to(grad_a, i, -grad_closeness)
            add_to(grad_a, j, grad_closeness)


@compiled
def overlap_backward(i: int, j: int, b: Array, grad_distance: Vector, grad_b: Array) -> None:
    """Add what boxes i and j owe to D_ij = 1 - IoU; equal edges share their gradient."""
    dtype = b.dtype.type
    zero, half, one = dtype(0), dtype(0.5), dtype(1)
    width, height = overlap(i, j, b)
    i_width, i_height = extent(i, b)
    j_width, j_height = extent(j, b)
    shared = width * height
    union = i_width * i_height + j_width * j_height - shared
    # Boxes that are apart stay so by however little they move.
    matters = (width >= zero) & (height >= zero) & (union > zero)
    inverse = one / union
    grad_area = grad_distance * shared * inverse * inverse
    grad_shared = -grad_distance * inverse - grad_area
    for axis in range(2):
        i_low, i_high = load(b, (axis, i, 0)), load(b, (axis + 2, i, 0))
        j_low, j_high = load(b, (axis, j, 0)), load(b, (axis + 2, j, 0))
        grad = choose(matters, grad_shared * (height if axis == 0 else width), zero)
        i_grad = choose(matters & (i_high >= i_low), grad_area * (i_height if axis == 0 else i_width), zero)
        j_grad = choose(matters & (j_high >= j_low), grad_area * (j_height if axis == 0 else j_width), zero)
        low = choose(i_low > j_low, grad, choose(i_low < j_low, zero, half * grad))
        high = choose(i_high < j_high, grad, choose(i_high > j_high, zero, half * grad))
        store(grad_b, (axis, i, 0), load(grad_b, (axis, i, 0)) - (i_grad + low))
        store(grad_b, (axis, j, 0), load(grad_b, (axis, j, 0)) - (j_grad + (grad - low)))
        store(grad_b, (axis + 2, i, 0), load(grad_b, (axis + 2, i, 0)) + (i_grad + high))
        store(grad_b, (axis + 2, j, 0), load(grad_b, (axis + 2, j, 0)) + (j_grad + (grad - high)))


@compiled
def matrices_backward(
    n: int,
    a: Array,
    b: Array,
    sizes: Array,
    base: Array,
    rise: Array,
    scale: Array,
    pairs: Array,
    grad_total: Vector,
    grad_mean: Vector,
    grad_rows: Array,
    grad_a: Array,
    grad_b: Array,
    owed: Array,
    boxes_need_grad: bool,
) -> None:
    """Carry the gradients from Ã, X and the certainty to relevance and distance, and on to weights and boxes."""
    dtype = a.dtype.type
    zero, half, one, two = dtype(0), dtype(0.5), dtype(1), dtype(2)
    number = load(sizes, (0,))
    grad_pair = two * grad_mean / max(number * number, one)
    for i in range(n):
        is_real = number > dtype(i)
        a_i = load(a, (i, 0))
        twice = choose(is_real, two * grad_total * load(scale, (i, 0)), zero)
        for corner in range(4):
            store(grad_b, (corner, i, 0), number * zero)
        for j in range(i):
            a_j = load(a, (j, 0))
            s, place = locate_all(a_i * a_j, rise)
            t, there = locate_all(load(pairs, (i, j, 0)), rise)
            grad_edge = twice * load(scale, (j, 0))
            grad_row = load(grad_rows, (i, j, 0)) + load(grad_rows, (j, i, 0))
            grad_sure = signed(grad_pair, value_at(F7, t, there, base, rise) - half, zero)
            grad_sure = choose(is_real, grad_sure, zero)
            grad_relevance = owe_all(F1, s, place, grad_edge * value_at(F2, t, there, base, rise), rise, owed)
            grad_relevance = grad_relevance + owe_all(
                F4, s, place, grad_row * value_at(F5, t, there, base, rise), rise, owed
            )
            grad_distance = owe_all(F2, t, there, grad_edge * value_at(F1, s, place, base, rise), rise, owed)
            grad_distance = grad_distance + owe_all(
                F5, t, there, grad_row * value_at(F4, s, place, base, rise), rise, owed
            )
            grad_distance = grad_distance + owe_all(F7, t, there, grad_sure, rise, owed)
            add_to(grad_a, i, grad_relevance * a_j)
            add_to(grad_a, j, grad_relevance * a_i)
            if boxes_need_grad:
                overlap_backward(i, j, b, grad_distance, grad_b)


@compiled
def lanes_backward_kernel(
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
    """Do as `rows_backward_kernel`."""
    zero, boxes_number = attention.dtype.type(0), attention.shape[1]
    images_per_counter = attention.shape[0] // weight.shape[0]
    base, rise = empty_table(weight.shape[2], attention), empty_table(weight.shape[2], attention)
    owed = np.zeros((8, weight.shape[2], LANES, 2), attention.dtype)
    order = np.empty((boxes_number, LANES), np.int32)
    a = np.empty((boxes_number, LANES), attention.dtype)
    b = np.empty((4, boxes_number, LANES), attention.dtype)
    sizes, grad_total, grad_mean = np.empty(LANES, a.dtype), np.empty(LANES, a.dtype), np.empty(LANES, a.dtype)
    scale, grad_alike, grad_a, grad_b = np.empty_like(a), np.empty_like(a), np.empty_like(a), np.empty_like(b)
    rows = np.empty((boxes_number, boxes_number, LANES), attention.dtype)
    edges, pairs, grad_rows = np.empty_like(rows), np.empty_like(rows), np.empty_like(rows)
    unsettled, counter = 0, -1
    while first < stop:
        if first // images_per_counter != counter:
            if counter >= 0:
                settle(owed, grad_rise[counter])
            counter = first // images_per_counter
            normalise(weight[counter], base, rise)
        elif unsettled > STEPS_BETWEEN_SETTLEMENTS:
            settle(owed, grad_rise[counter])
            unsettled = 0
        end = group_end(first, stop, images_per_counter)
        n = load_group(first, end, attention, boxes, mask, order, a, b, sizes)
        load_state(first, n, state, sizes, scale, pairs)
        for lane in range(LANES):
            grad_total[lane] = grad_mean[lane] = zero
        for image in range(first, end):
            grad_total[image - first], grad_mean[image - first] = features_backward(
                image, state[image, 0], count, grad_features, grad_count, base, rise, owed
            )
        fill_matrices(n, a, pairs, base, rise, rows, edges)
        total, mean = load(grad_total, (0,)), load(grad_mean, (0,))
        scales_backward(n, a, sizes, base, rise, edges, scale, total, mean, grad_alike, grad_a, owed)
        similarity_backward(n, a, sizes, base, rise, rows, pairs, grad_alike, grad_a, grad_rows, owed)
        matrices_backward(
            n,
            a,
            b,
            sizes,
            base,
            rise,
            scale,
            pairs,
            total,
            mean,
            grad_rows,
            grad_a,
            grad_b,
            owed,
            boxes_need_grad,
        )
        unsettled += LANES * n * n * n
        for image in range(first, end):
            lane = image - first
            number = int(sizes[lane])
            if number < boxes_number:
                for i in range(boxes_number):
                    grad_attention[image, i] = zero
                    for corner in range(4):
                        grad_boxes[image, i, corner] = zero
            for i in range(number):
                grad_attention[image, order[i, lane]] = grad_a[i, lane]
                for corner in range(4):
                    grad_boxes[image, order[i, lane], corner] = grad_b[corner, i, lane]
        first = end
    if counter >= 0:
        settle(owed, grad_rise[counter])
