"""The forward kernel, and what it shares with the backward kernel: eight images at once.

The image is the last dimension of every array. Each image's real proposals stand in front. Behind them, up to the
largest number n in the group, stand proposals of weight 0: their rows of X and Ã are 0, and so their factors in others'
products are 1.
"""

from typing import NamedTuple

import numba.extending
import numpy as np

from tallybox.counter import reference
from tallybox.counter.cpu import activations
from tallybox.counter.cpu.activations import Tables, Vector, locate, nan_among, row_similarity, value
from tallybox.kernels.cpu.boxes import box_iou, real_proposals
from tallybox.kernels.cpu.compiling import Array, Arrays, compiled
from tallybox.kernels.cpu.vectors import LANES, add_to, choose, load, store


class Group(NamedTuple):
    """What both kernels hold of eight images."""

    number: Array  # [LANES] of real proposals, as floating point numbers
    order: Array  # [N, LANES] their indices
    a: Array  # [N, LANES] attention
    b: Array  # [4, N, LANES] corners
    rows: Array  # [N, N, LANES] X
    edges: Array  # [N, N, LANES] Ã


class Saved(NamedTuple):
    """What the forward kernel saves of eight images."""

    c: Array  # [LANES] the count
    certainty: Array  # [LANES] p_a + p_D
    confidence: Array  # [LANES] f8 of it
    scale: Array  # [N, LANES] s
    pairs: Array  # [N, N, LANES] D below the diagonal, row products of Sim above


@compiled
def empty_group(boxes: int, like: Array) -> Group:
    """Allocate for images of so many boxes."""
    order, numbers = np.empty((boxes, LANES), np.int32), np.empty((5, boxes, LANES), like.dtype)
    matrices = np.empty((2, boxes, boxes, LANES), like.dtype)
    return Group(np.empty(LANES, like.dtype), order, numbers[0], numbers[1:], matrices[0], matrices[1])


@numba.extending.register_jitable
def saved_size(boxes: int) -> int:
    """Return how many numbers are saved of a group."""
    return LANES * (3 + boxes + boxes * boxes)


@compiled
def saved_group(state: Array, boxes: int) -> Saved:
    """Return views of a group's row of the saved state."""
    rows = state.reshape(3 + boxes + boxes * boxes, LANES)
    return Saved(rows[0], rows[1], rows[2], rows[3 : 3 + boxes], rows[3 + boxes :].reshape(boxes, boxes, LANES))


@compiled
def group_images(group: int, images_per_counter: int) -> tuple[int, int, int]:
    """Return the counter of a group, and where its images begin and end; a counter's last group may be smaller."""
    groups_per_counter = (images_per_counter + LANES - 1) // LANES
    counter = group // groups_per_counter
    first = counter * images_per_counter + group % groups_per_counter * LANES
    return counter, first, min(first + LANES, (counter + 1) * images_per_counter)


@compiled
def load_proposals(first: int, end: int, attention: Array, boxes: Array, mask: Array, g: Group) -> int:
    """Copy the real proposals of images first ... end - 1; return the largest number of them in an image."""
    g.a[:] = 0
    g.b[:] = 0
    g.number[:] = 0
    largest = 0
    for image in range(first, end):
        lane = image - first
        number = real_proposals(image, attention, boxes, mask, g.order[:, lane], g.a[:, lane], g.b[:, :, lane])
        g.number[lane] = number
        largest = max(largest, number)
    return largest


@compiled
def corners(i: int, g: Group) -> tuple[Vector, Vector, Vector, Vector]:
    """Return x1, y1, x2 and y2 of box i."""
    return load(g.b, (0, i)), load(g.b, (1, i)), load(g.b, (2, i)), load(g.b, (3, i))


@compiled
def fill_distances(n: int, g: Group, saved: Saved) -> None:
    """Compute D = 1 - IoU below the diagonal of pairs."""
    for i in range(n):
        is_real = load(g.number, ()) > i
        for j in range(i):
            store(saved.pairs, (i, j), choose(is_real, 1 - box_iou(corners(i, g), corners(j, g), 0, 1), 0))


@compiled
def fill_matrices(n: int, f: Tables, g: Group, saved: Saved) -> None:
    """Compute X = f4(A) f5(D) and Ã = f1(A) f2(D), both triangles, from D below the diagonal of pairs."""
    for i in range(n):
        store(g.rows, (i, i), 0)
        store(g.edges, (i, i), 0)
        for j in range(i):
            s, of_a = locate(load(g.a, (i,)) * load(g.a, (j,)), f)
            t, of_d = locate(load(saved.pairs, (i, j)), f)
            row = value(reference.RELEVANCE_ROW, s, of_a, f) * value(reference.DISTANCE_ROW, t, of_d, f)
            edge = value(reference.RELEVANCE_EDGE, s, of_a, f) * value(reference.DISTANCE_EDGE, t, of_d, f)
            store(g.rows, (i, j), row)
            store(g.rows, (j, i), row)
            store(g.edges, (i, j), edge)
            store(g.edges, (j, i), edge)


@compiled
def fill_products(n: int, f: Tables, g: Group, saved: Saved) -> None:
    """Compute the row products of Sim above the diagonal of pairs, and s from Sim's row sums."""
    for i in range(n):
        store(saved.scale, (i,), 1)
        for j in range(i):
            product = row_similarity(load(g.rows, (i, 0)), load(g.rows, (j, 0)), f)
            for k in range(1, n):
                product = product * row_similarity(load(g.rows, (i, k)), load(g.rows, (j, k)), f)
            s, fraction = locate(1 - abs(load(g.a, (i,)) - load(g.a, (j,))), f)
            similarity = value(reference.SIMILARITY, s, fraction, f) * product
            similarity = choose(load(g.number, ()) > i, similarity, 0)
            add_to(saved.scale, (i,), similarity)
            add_to(saved.scale, (j,), similarity)
            store(saved.pairs, (j, i), product)
    for i in range(n):
        store(saved.scale, (i,), 1 / load(saved.scale, (i,)))


@compiled
def edges_of(i: int, n: int, f: Tables, g: Group, saved: Saved) -> Vector:
    """Return f1(a_i²) and twice the sum of row i of Ã up to n, scaled by s."""
    total = load(g.edges, (i, i))
    for j in range(n):
        total = total + load(g.edges, (i, j)) * load(saved.scale, (j,))
    s, fraction = locate(load(g.a, (i,)) * load(g.a, (i,)), f)
    return value(reference.RELEVANCE_EDGE, s, fraction, f) + 2 * total


@compiled
def fill_results(n: int, f: Tables, g: Group, saved: Saved) -> None:
    """Compute the sum of C, in place of c, the certainty p_a + p_D and the confidence."""
    number = load(g.number, ())
    total = from_attention = from_distance = number * 0
    for i in range(n):
        is_real = number > i
        total = total + load(saved.scale, (i,)) * edges_of(i, i, f, g, saved)
        for j in range(i):
            s, fraction = locate(load(saved.pairs, (i, j)), f)
            certainty = abs(value(reference.DISTANCE_CONFIDENCE, s, fraction, f) - 0.5)
            from_distance = from_distance + choose(is_real, certainty, 0)
        s, fraction = locate(load(g.a, (i,)), f)
        certainty = abs(value(reference.ATTENTION_CONFIDENCE, s, fraction, f) - 0.5)
        from_attention = from_attention + choose(is_real, certainty, 0)
    # The kernels skip diagonals, whose values are constant, unless an activation is NaN.
    total = total + nan_among(reference.RELEVANCE_EDGE, reference.DISTANCE_ROW, f)
    from_distance = 2 * from_distance + nan_among(reference.DISTANCE_CONFIDENCE, reference.DISTANCE_CONFIDENCE, f)
    certainty = from_attention / number + (0.5 * number + from_distance) / (number * number)
    certainty = choose(number > 0, certainty, 1)  # as certain as an image whose every weight is 0
    s, fraction = locate(certainty, f)
    store(saved.c, (), total)
    store(saved.certainty, (), certainty)
    store(saved.confidence, (), value(reference.CONFIDENCE, s, fraction, f))


@compiled
def write_features(c: float, confidence: float, features: Array) -> None:
    """Write the features ``[max_objects + 1]`` of an image; all are NaN if count or confidence is."""
    features[:] = 0 * (c + confidence)
    if c == c:
        lower, upper_share = int(c), c - np.floor(c)
        features[lower] = confidence * (1 - upper_share)
        features[min(lower + 1, len(features) - 1)] += confidence * upper_share


@compiled
def count_forward_kernel(inputs: Arrays, results: Arrays, state: Array, first_group: int, stop: int) -> None:
    """Write features and count of groups first_group ... stop - 1, and their state unless it is empty."""
    (attention, boxes, mask, weight), (features, count) = inputs, results
    number, max_objects = attention.shape[1], features.shape[1] - 1
    f, g = activations.empty_tables(weight.shape[2], attention), empty_group(number, attention)
    scratch = np.empty(saved_size(number), attention.dtype)
    last_counter = -1
    for index in range(first_group, stop):
        counter, first, end = group_images(index, len(attention) // len(weight))
        if counter != last_counter:
            activations.normalise(weight[counter], f)
            last_counter = counter
        saved = saved_group(state[index] if state.shape[1] else scratch, number)
        n = load_proposals(first, end, attention, boxes, mask, g)
        fill_distances(n, g, saved)
        fill_matrices(n, f, g, saved)
        fill_products(n, f, g, saved)
        fill_results(n, f, g, saved)
        for image in range(first, end):
            lane = image - first
            c = np.sqrt(saved.c[lane] + reference.EDGE_FLOOR)
            count[image] = saved.c[lane] = max_objects if c > max_objects else c
            write_features(count[image], saved.confidence[lane], features[image])
