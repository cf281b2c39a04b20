"""The forward kernel."""

from __future__ import annotations

import numpy as np

from tallybox.counter.cpu.activations import Tables, Vector, empty_table, likeness, locate, nan_among, normalise, value
from tallybox.counter.cpu.group import (
    Group,
    corners,
    empty_group,
    fill_matrices,
    group_end,
    load_proposals,
    save,
)
from tallybox.counter.roles import (
    CERTAINTY_OF_ATTENTION,
    CERTAINTY_OF_DISTANCE,
    CONFIDENCE,
    EDGE_OF_RELEVANCE,
    LIKENESS,
    ROW_OF_DISTANCE,
)
from tallybox.kernels.cpu.boxes import box_iou
from tallybox.kernels.cpu.compiling import Array, Number, compiled
from tallybox.kernels.cpu.vectors import LANES, choose, load, store

EDGE_FLOOR = 1e-20  # as in the reference


@compiled
def fill_distances(n: int, g: Group) -> None:
    """Compute D = 1 - IoU below the diagonal of pairs."""
    zero, one = g.a.dtype.type(0), g.a.dtype.type(1)
    for i in range(n):
        is_real = load(g.number, (0,)) > g.a.dtype.type(i)
        for j in range(i):
            distance = one - box_iou(corners(i, g), corners(j, g), zero, one)
            store(g.pairs, (i, j, 0), choose(is_real, distance, zero))


@compiled
def fill_products(n: int, f: Tables, g: Group, alike: Array) -> None:
    """Compute the row products of Sim above the diagonal of pairs, and Sim's row sums."""
    dtype = g.a.dtype.type
    zero, one = dtype(0), dtype(1)
    for i in range(n):
        is_real = load(g.number, (0,)) > dtype(i)
        alike_i = load(g.number, (0,)) * zero + one
        for j in range(i):
            product = likeness(load(g.rows, (i, 0, 0)), load(g.rows, (j, 0, 0)), f)
            for k in range(1, n):
                product = product * likeness(load(g.rows, (i, k, 0)), load(g.rows, (j, k, 0)), f)
            s, fraction = locate(one - abs(load(g.a, (i, 0)) - load(g.a, (j, 0))), f)
            similarity = choose(is_real, value(LIKENESS, s, fraction, f) * product, zero)
            alike_i = alike_i + similarity
            store(alike, (j, 0), load(alike, (j, 0)) + similarity)
            store(g.pairs, (j, i, 0), product)
        store(alike, (i, 0), alike_i)


@compiled
def sum_up(n: int, f: Tables, g: Group, alike: Array) -> tuple[Vector, Vector]:
    """Compute s; return the sum of C, and the certainty p_a + p_D."""
    dtype = g.a.dtype.type
    zero, half, one = dtype(0), dtype(0.5), dtype(1)
    number = load(g.number, (0,))
    total = from_attention = from_distance = number * zero
    for i in range(n):
        is_real = number > dtype(i)
        scale_i = one / load(alike, (i, 0))
        store(g.scale, (i, 0), scale_i)
        inner = number * zero
        for j in range(i):
            inner = inner + load(g.edges, (i, j, 0)) * load(g.scale, (j, 0))
            s, fraction = locate(load(g.pairs, (i, j, 0)), f)
            certainty = abs(value(CERTAINTY_OF_DISTANCE, s, fraction, f) - half)
            from_distance = from_distance + choose(is_real, certainty, zero)
        a_i = load(g.a, (i, 0))
        s, fraction = locate(a_i * a_i, f)
        total = total + scale_i * (value(EDGE_OF_RELEVANCE, s, fraction, f) + inner + inner)
        s, fraction = locate(a_i, f)
        certainty = abs(value(CERTAINTY_OF_ATTENTION, s, fraction, f) - half)
        from_attention = from_attention + choose(is_real, certainty, zero)
    # The kernels skip diagonals, whose values are constant, unless an activation is NaN.
    from_distance = from_distance + nan_among(CERTAINTY_OF_DISTANCE, CERTAINTY_OF_DISTANCE, f)
    certainty = from_attention / number + (half * number + from_distance + from_distance) / (number * number)
    certainty = choose(number > zero, certainty, one)  # as certain as an image whose every weight is 0
    return total + nan_among(EDGE_OF_RELEVANCE, ROW_OF_DISTANCE, f), certainty


@compiled
def write_features(c: Number, confidence: Number, features: Array) -> None:
    """Write the features ``[max_objects + 1]`` of an image; all are NaN if count or confidence is."""
    zero, one, max_objects = features.dtype.type(0), features.dtype.type(1), features.shape[0] - 1
    features[:] = zero * (c + confidence)
    if c == c:
        lower = int(c)
        upper_share = c - np.floor(c)
        features[lower] = confidence * (one - upper_share)
        features[min(lower + 1, max_objects)] += confidence * upper_share


@compiled
def count_forward_kernel(
    attention: Array,
    boxes: Array,
    mask: Array,
    weight: Array,
    features: Array,
    count: Array,
    certainty: Array,
    scale: Array,
    pairs: Array,
    first: int,
    stop: int,
) -> None:
    """Write features and count of images first ... stop - 1 of ``[M * R]``, and save what backward needs."""
    dtype = attention.dtype.type
    images_per_counter = attention.shape[0] // weight.shape[0]
    f = Tables(empty_table(weight.shape[2], attention), empty_table(weight.shape[2], attention))
    g = empty_group(attention.shape[1], attention)
    alike = np.empty_like(g.a)
    total, confidence = np.empty(LANES, attention.dtype), np.empty(LANES, attention.dtype)
    mean = np.empty(LANES, attention.dtype)
    counter = -1
    while first < stop:
        if first // images_per_counter != counter:
            counter = first // images_per_counter
            normalise(weight[counter], f)
        end = group_end(first, stop, images_per_counter)
        n = load_proposals(first, end, attention, boxes, mask, g)
        fill_distances(n, g)
        fill_matrices(n, f, g)
        fill_products(n, f, g, alike)
        sum_of_c, of_group = sum_up(n, f, g, alike)
        s, fraction = locate(of_group, f)
        store(total, (0,), sum_of_c)
        store(mean, (0,), of_group)
        store(confidence, (0,), value(CONFIDENCE, s, fraction, f))
        for image in range(first, end):
            lane = image - first
            c = np.sqrt(total[lane] + dtype(EDGE_FLOOR))
            c = dtype(features.shape[1] - 1) if c > dtype(features.shape[1] - 1) else c
            write_features(c, confidence[lane], features[image])
            count[image] = c
            certainty[image] = mean[lane]
        save(first, end, g, scale, pairs)
        first = end
