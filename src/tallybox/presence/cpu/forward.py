"""The forward kernel."""

from __future__ import annotations

import numpy as np

from tallybox.kernels.cpu.boxes import real_proposals
from tallybox.kernels.cpu.compiling import TINY, Array, compiled
from tallybox.presence.cpu.parts import (
    AHEAD,
    CALIBRATED,
    CALIBRATION,
    COORDINATE,
    FOR_I,
    FOR_J,
    KNOTS,
    LOGIT,
    LOGIT_SLOPE,
    ORDER_OF_I,
    ORDER_OF_J,
    PRESENCE_1,
    PRESENCE_2,
    SHARED_BY_I,
    SHARED_BY_J,
    SHIFT,
    SIGMOID,
    SLOPE,
    STEP,
    SURVIVAL_1,
    SURVIVAL_2,
    Z,
    cell_value,
    comes_before,
    coordinate_of,
    locate,
    locate_scores,
    logistic,
    logit_of,
    order_places,
    rows_and_pairs,
    segments_of,
)
from tallybox.presence.cpu.tables import calibration_edges
from tallybox.presence.table import PAIR_ROWS, ROWS
from tallybox.presence.weights import CELLS, LOG_FLOOR


@compiled
def find_pairs(n: int, b: Array, first: Array, second: Array, iou: Array) -> int:
    """List the pairs that overlap or touch; return how many there are."""
    zero, one = b.dtype.type(0), b.dtype.type(1)
    pairs = 0
    for i in range(n):
        x1, y1, x2, y2 = b[0, i], b[1, i], b[2, i], b[3, i]
        area = max(x2 - x1, zero) * max(y2 - y1, zero)
        for j in range(i):
            width, height = min(x2, b[2, j]) - max(x1, b[0, j]), min(y2, b[3, j]) - max(y1, b[1, j])
            if width < zero or height < zero:
                continue
            shared = width * height
            union = area + max(b[2, j] - b[0, j], zero) * max(b[3, j] - b[1, j], zero) - shared
            overlap = zero
            if union > zero:
                overlap = shared / union
            elif x1 == b[0, j] and y1 == b[1, j] and x2 == b[2, j] and y2 == b[3, j]:
                overlap = one
            first[pairs], second[pairs], iou[pairs] = i, j, overlap
            pairs += 1
    return pairs


@compiled
def survive(pairs: int, n: int, first: Array, second: Array, kept: Array, given: Array, survival: Array) -> None:
    """∏_j (1 - s_ij p_j) for every i, of the presences given."""
    one, tiny = given.dtype.type(1), given.dtype.type(TINY)
    for i in range(n):
        survival[i] = one
    for pair in range(pairs):
        i, j = first[pair], second[pair]
        of_i, of_j = one - kept[FOR_I, pair] * given[j], one - kept[FOR_J, pair] * given[i]
        survival[i] *= of_i if not of_i <= tiny else tiny
        survival[j] *= of_j if not of_j <= tiny else tiny


@compiled
def presence_of_image(
    n: int,
    b: Array,
    table: Array,
    edges: Array,
    rows: Array,
    column: Array,
    place: Array,
    first: Array,
    second: Array,
    iou: Array,
    kept: Array,
) -> int:
    """Fill an image's rows and its pairs from its logits; return how many pairs overlap."""
    dtype = table.dtype.type
    zero, one, cells = dtype(0), dtype(1), dtype(CELLS)
    segments = edges.shape[0] - 1
    order, evidence = CALIBRATION + segments + 1, CALIBRATION + 2 * (segments + 1)
    shared = evidence + KNOTS * KNOTS
    logit, coordinate, z = rows[LOGIT], rows[COORDINATE], rows[Z]
    for i in range(n):
        coordinate[i] = coordinate_of(logit[i])
        z[i] = table[SLOPE] * logit[i] + table[SHIFT]
    locate_scores(n, coordinate, column, place)
    pairs: int = find_pairs(n, b, first, second, iou)
    for pair in range(pairs):
        i, j = first[pair], second[pair]
        e, at = locate(iou[pair] * cells, CELLS)
        z[i] += cell_value(table, evidence, e, at, column[0, j], place[0, j])
        z[j] += cell_value(table, evidence, e, at, column[0, i], place[0, i])
        ahead, s, here, t, there = order_places(logit[j] - logit[i], table, segments)
        j_before = comes_before(j, i, logit, b)
        of_j = table[order + s] + here * (table[order + s + 1] - table[order + s])
        of_i = table[order + t] + there * (table[order + t + 1] - table[order + t])
        of_j += table[STEP] if j_before else zero
        of_i += zero if j_before else table[STEP]
        shared_by_i = cell_value(table, shared, e, at, column[1, i], place[1, i])
        shared_by_j = cell_value(table, shared, e, at, column[1, j], place[1, j])
        kept[FOR_I, pair], kept[FOR_J, pair] = shared_by_i * of_j, shared_by_j * of_i
        kept[AHEAD, pair], kept[ORDER_OF_J, pair], kept[ORDER_OF_I, pair] = ahead, of_j, of_i
        kept[SHARED_BY_I, pair], kept[SHARED_BY_J, pair] = shared_by_i, shared_by_j
    for i in range(n):
        s, _ = locate(coordinate_of(z[i]) * dtype(segments), segments)
        rows[SIGMOID, i] = logistic(z[i])
        here = (rows[SIGMOID, i] - edges[s]) / (edges[s + 1] - edges[s])
        low = table[CALIBRATION + s]
        value = low + here * (table[CALIBRATION + s + 1] - low)
        rows[CALIBRATED, i] = one if value > one else (zero if value < zero else value)
    survive(pairs, n, first, second, kept, rows[CALIBRATED], rows[SURVIVAL_1])
    for i in range(n):
        rows[PRESENCE_1, i] = rows[CALIBRATED, i] * rows[SURVIVAL_1, i]
    survive(pairs, n, first, second, kept, rows[PRESENCE_1], rows[SURVIVAL_2])
    for i in range(n):
        rows[PRESENCE_2, i] = rows[CALIBRATED, i] * rows[SURVIVAL_2, i]
    return pairs


@compiled
def distribute(n: int, presence: Array, prefixes: Array) -> None:
    """Fill ``prefixes [N + 1, K + 1]``: row i is the distribution of the count of the first i presences."""
    zero, one = presence.dtype.type(0), presence.dtype.type(1)
    most = prefixes.shape[1] - 1
    for k in range(most + 1):
        prefixes[0, k] = zero
    prefixes[0, 0] = one
    for i in range(n):
        here, away = presence[i], one - presence[i]
        prefixes[i + 1, 0] = prefixes[i, 0] * away
        for k in range(1, most + 1):
            prefixes[i + 1, k] = prefixes[i, k] * away + prefixes[i, k - 1] * here
        prefixes[i + 1, most] += prefixes[i, most] * here


@compiled
def scored_proposals(
    image: int, attention: Array, boxes: Array, mask: Array, logits: bool, order: Array, rows: Array, b: Array
) -> int:
    """Copy an image's real proposals to the front of rows and b, with their logits; return how many there are."""
    n: int = real_proposals(image, attention, boxes, mask, order, rows[LOGIT], b)
    for i in range(n):
        rows[LOGIT, i], rows[LOGIT_SLOPE, i] = logit_of(rows[LOGIT, i], logits)
    return n


@compiled
def presence_forward_kernel(
    attention: Array,
    boxes: Array,
    tables: Array,
    mask: Array,
    logits: bool,
    features: Array,
    presence: Array,
    distribution: Array,
    state: Array,
    first_image: int,
    stop: int,
) -> None:
    """Write features, presence and distribution of images first_image ... stop - 1, and their state if it is kept."""
    dtype = attention.dtype.type
    number, classes = attention.shape[1], distribution.shape[1]
    segments = segments_of(tables)
    edges = np.empty(segments + 1, attention.dtype)
    calibration_edges(segments, edges)
    b = np.empty((4, number), attention.dtype)
    order, column = np.empty(number, np.int32), np.empty((2, number), np.int32)
    place = np.empty((2, number), attention.dtype)
    most_pairs = number * (number - 1) // 2
    scratch = np.empty(ROWS * number + PAIR_ROWS * most_pairs, attention.dtype)  # for a state that is not kept
    first, second = np.empty(most_pairs, np.int32), np.empty(most_pairs, np.int32)
    iou = np.empty(most_pairs, attention.dtype)
    prefixes = np.empty((number + 1, classes), attention.dtype)
    a_counter = attention.shape[0] // tables.shape[0]
    for image in range(first_image, stop):
        rows, kept = rows_and_pairs(state[image] if state.shape[1] else scratch, number)
        n = scored_proposals(image, attention, boxes, mask, logits, order, rows, b)
        presence_of_image(n, b, tables[image // a_counter], edges, rows, column, place, first, second, iou, kept)
        distribute(n, rows[PRESENCE_2], prefixes)
        if n < number:
            presence[image] = 0
        expected = dtype(0)
        for i in range(n):
            presence[image, order[i]] = rows[PRESENCE_2, i]
            expected += rows[PRESENCE_2, i]
        for k in range(classes):
            distribution[image, k] = prefixes[n, k]
            features[image, k] = np.log(prefixes[n, k] + dtype(LOG_FLOOR))
        features[image, classes] = expected
