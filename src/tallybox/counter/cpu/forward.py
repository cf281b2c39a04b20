"""The forward kernel."""

import numpy as np

from tallybox.counter import reference
from tallybox.counter.cpu import group
from tallybox.counter.cpu.activations import (
    Tables,
    Vector,
    empty_table,
    locate,
    nan_among,
    normalise,
    row_similarity,
    value,
)
from tallybox.counter.cpu.group import Group, Saved
from tallybox.kernels.cpu.boxes import box_iou
from tallybox.kernels.cpu.compiling import Array, Arrays, Number, compiled
from tallybox.kernels.cpu.vectors import LANES, choose, load, store


@compiled
def fill_distances(n: int, g: Group, saved: Saved) -> None:
    """Compute D = 1 - IoU below the diagonal of pairs."""
    zero, one = g.a.dtype.type(0), g.a.dtype.type(1)
    for i in range(n):
        is_real = load(g.number, (0,)) > g.a.dtype.type(i)
        for j in range(i):
            distance = one - box_iou(group.corners(i, g), group.corners(j, g), zero, one)
            store(saved.pairs, (i, j, 0), choose(is_real, distance, zero))


@compiled
def fill_products(n: int, f: Tables, g: Group, saved: Saved, similarity_sum: Array) -> None:
    """Compute the row products of Sim above the diagonal of pairs, and Sim's row sums."""
    dtype = g.a.dtype.type
    zero, one = dtype(0), dtype(1)
    for i in range(n):
        is_real = load(g.number, (0,)) > dtype(i)
        similarity_sum_i = load(g.number, (0,)) * zero + one
        for j in range(i):
            product = row_similarity(load(g.rows, (i, 0, 0)), load(g.rows, (j, 0, 0)), f)
            for k in range(1, n):
                product = product * row_similarity(load(g.rows, (i, k, 0)), load(g.rows, (j, k, 0)), f)
            s, fraction = locate(one - abs(load(g.a, (i, 0)) - load(g.a, (j, 0))), f)
            similarity = choose(is_real, value(reference.SIMILARITY, s, fraction, f) * product, zero)
            similarity_sum_i = similarity_sum_i + similarity
            store(similarity_sum, (j, 0), load(similarity_sum, (j, 0)) + similarity)
            store(saved.pairs, (j, i, 0), product)
        store(similarity_sum, (i, 0), similarity_sum_i)


@compiled
def sum_up(n: int, f: Tables, g: Group, saved: Saved, similarity_sum: Array) -> tuple[Vector, Vector]:
    """Compute s; return the sum of C, and the certainty p_a + p_D."""
    dtype = g.a.dtype.type
    zero, half, one = dtype(0), dtype(0.5), dtype(1)
    number = load(g.number, (0,))
    total = from_attention = from_distance = number * zero
    for i in range(n):
        is_real = number > dtype(i)
        scale_i = one / load(similarity_sum, (i, 0))
        store(saved.scale, (i, 0), scale_i)
        inner = number * zero
        for j in range(i):
            inner = inner + load(g.edges, (i, j, 0)) * load(saved.scale, (j, 0))
            s, fraction = locate(load(saved.pairs, (i, j, 0)), f)
            certainty = abs(value(reference.DISTANCE_CONFIDENCE, s, fraction, f) - half)
            from_distance = from_distance + choose(is_real, certainty, zero)
        a_i = load(g.a, (i, 0))
        s, fraction = locate(a_i * a_i, f)
        total = total + scale_i * (value(reference.RELEVANCE_EDGE, s, fraction, f) + inner + inner)
        s, fraction = locate(a_i, f)
        certainty = abs(value(reference.ATTENTION_CONFIDENCE, s, fraction, f) - half)
        from_attention = from_attention + choose(is_real, certainty, zero)
    # The kernels skip diagonals, whose values are constant, unless an activation is NaN.
    from_distance = from_distance + nan_among(reference.DISTANCE_CONFIDENCE, reference.DISTANCE_CONFIDENCE, f)
    certainty = from_attention / number + (half * number + from_distance + from_distance) / (number * number)
    certainty = choose(number > zero, certainty, one)  # as certain as an image whose every weight is 0
    return total + nan_among(reference.RELEVANCE_EDGE, reference.DISTANCE_ROW, f), certainty


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
def count_forward_kernel(inputs: Arrays, results: Arrays, state: Array, first_group: int, stop: int) -> None:
    """Write features and count of groups first_group ... stop - 1, and their state unless it is empty."""
    (attention, boxes, mask, weight), (features, count) = inputs, results
    number, max_objects = attention.shape[1], attention.dtype.type(features.shape[1] - 1)
    f = Tables(empty_table(weight.shape[2], attention), empty_table(weight.shape[2], attention))
    g, scratch = group.empty_group(number, attention), np.empty(group.saved_size(number), attention.dtype)
    similarity_sum, totals = np.empty_like(g.a), np.empty((2, LANES), attention.dtype)
    total, confidence = totals[0], totals[1]
    last_counter = -1
    for index in range(first_group, stop):
        counter, first, end = group.group_images(index, attention.shape[0] // weight.shape[0])
        if counter != last_counter:
            normalise(weight[counter], f)
            last_counter = counter
        saved = group.saved_group(state[index] if state.shape[1] else scratch, number)
        n = group.load_proposals(first, end, attention, boxes, mask, g)
        fill_distances(n, g, saved)
        group.fill_matrices(n, f, g, saved)
        fill_products(n, f, g, saved, similarity_sum)
        sum_of_c, certainty = sum_up(n, f, g, saved, similarity_sum)
        s, fraction = locate(certainty, f)
        store(total, (0,), sum_of_c)
        store(saved.certainty, (0,), certainty)
        store(confidence, (0,), value(reference.CONFIDENCE, s, fraction, f))
        for image in range(first, end):
            lane = image - first
            c = np.sqrt(total[lane] + attention.dtype.type(reference.EDGE_FLOOR))
            c = max_objects if c > max_objects else c
            write_features(c, confidence[lane], features[image])
            count[image] = saved.c[lane] = c
