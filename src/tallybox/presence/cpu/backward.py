"""The backward kernel, from the gradients of presence and distribution to those of logits, boxes and tables."""

from __future__ import annotations

import numpy as np

from tallybox.counter.cpu.rows_backward import overlap_backward
from tallybox.kernels.cpu.boxes import real_proposals
from tallybox.kernels.cpu.compiling import TINY, Array, Number, compiled, inlined
from tallybox.presence.cpu.forward import distribute, find_pairs
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
    SHARPNESS,
    SHIFT,
    SIGMOID,
    SLOPE,
    STEP,
    SURVIVAL_1,
    SURVIVAL_2,
    Z,
    cell_backward,
    comes_before,
    coordinate_of,
    locate,
    locate_scores,
    rows_and_pairs,
    segments_of,
)
from tallybox.presence.cpu.tables import calibration_edges
from tallybox.presence.weights import CELLS, LOG_FLOOR, LOGIT_BEND, LOGIT_LIMIT


@compiled
def distribution_backward(n: int, presence: Array, prefixes: Array, owed: Array, grad: Array) -> None:
    """Add to each presence's gradient what the distribution owes it; ``owed [K + 1]`` is used up."""
    one = presence.dtype.type(1)
    most = owed.shape[0] - 1
    for i in range(n - 1, -1, -1):
        here, away = presence[i], one - presence[i]
        total = owed[0] - owed[0]
        for k in range(most):
            total += prefixes[i, k] * (owed[k + 1] - owed[k])
        grad[i] += total
        for k in range(most):
            owed[k] = owed[k] * away + owed[k + 1] * here


@compiled
def survive_backward(
    pairs: int,
    first: Array,
    second: Array,
    kept: Array,
    given: Array,
    weighted: Array,
    grad_stands: Array,
    grad_given: Array,
) -> None:
    """Carry gradients times presences, ``weighted [N]``, back to what stands for what and to the presences given."""
    one, tiny = given.dtype.type(1), given.dtype.type(TINY)
    for pair in range(pairs):
        i, j = first[pair], second[pair]
        of_i, of_j = one - kept[FOR_I, pair] * given[j], one - kept[FOR_J, pair] * given[i]
        share_i = weighted[i] / (of_i if not of_i <= tiny else tiny)
        share_j = weighted[j] / (of_j if not of_j <= tiny else tiny)
        grad_stands[0, pair] -= given[j] * share_i
        grad_stands[1, pair] -= given[i] * share_j
        grad_given[j] -= kept[FOR_I, pair] * share_i
        grad_given[i] -= kept[FOR_J, pair] * share_j


@inlined
def pair_backward(
    pair: int,
    i: int,
    j: int,
    iou: Number,
    b: Array,
    kept: Array,
    table: Array,
    edges: Array,
    rows: Array,
    column: Array,
    score_place: Array,
    grad_z: Array,
    grad_stands: Array,
    grad_logit: Array,
    grad_coordinate: Array,
    owed: Array,
) -> Number:
    """Carry a pair's gradients back to logits, coordinates and the table; return that of its IoU."""
    dtype = table.dtype.type
    one, cells = dtype(1), dtype(CELLS)
    segments = edges.shape[0] - 1
    order, evidence = CALIBRATION + segments + 1, CALIBRATION + 2 * (segments + 1)
    shared = evidence + KNOTS * KNOTS
    logit = rows[LOGIT]
    e, at = locate(iou * cells, CELLS)
    grad_iou, grad_score = cell_backward(table, owed, evidence, e, at, column[0, j], score_place[0, j], grad_z[i])
    grad_coordinate[j] += grad_score
    more, grad_score = cell_backward(table, owed, evidence, e, at, column[0, i], score_place[0, i], grad_z[j])
    grad_iou += more
    grad_coordinate[i] += grad_score
    difference = logit[j] - logit[i]
    ahead = kept[AHEAD, pair]
    s, place = locate(ahead * dtype(segments), segments)
    t, there = locate((one - ahead) * dtype(segments), segments)
    j_before = comes_before(j, i, logit, b)
    rise_j, rise_i = table[order + s + 1] - table[order + s], table[order + t + 1] - table[order + t]
    grad_of_j = grad_stands[0, pair] * kept[SHARED_BY_I, pair]
    more, grad_score = cell_backward(
        table, owed, shared, e, at, column[1, i], score_place[1, i], grad_stands[0, pair] * kept[ORDER_OF_J, pair]
    )
    grad_iou += more
    grad_coordinate[i] -= grad_score
    grad_of_i = grad_stands[1, pair] * kept[SHARED_BY_J, pair]
    more, grad_score = cell_backward(
        table, owed, shared, e, at, column[1, j], score_place[1, j], grad_stands[1, pair] * kept[ORDER_OF_I, pair]
    )
    grad_iou += more
    grad_coordinate[j] -= grad_score
    owed[STEP] += grad_of_j if j_before else grad_of_i
    owed[order + s] += grad_of_j * (one - place)
    owed[order + s + 1] += grad_of_j * place
    owed[order + t] += grad_of_i * (one - there)
    owed[order + t + 1] += grad_of_i * there
    grad_ahead = (grad_of_j * rise_j - grad_of_i * rise_i) * dtype(segments) * ahead * (one - ahead)
    owed[SHARPNESS] += grad_ahead * difference
    grad_logit[j] += grad_ahead * table[SHARPNESS]
    grad_logit[i] -= grad_ahead * table[SHARPNESS]
    return grad_iou


@compiled
def presence_backward_kernel(
    attention: Array,
    boxes: Array,
    tables: Array,
    mask: Array,
    state: Array,
    grad_features: Array,
    grad_presence: Array,
    grad_distribution: Array,
    grad_attention: Array,
    grad_boxes: Array,
    owed_tables: Array,
    boxes_need_grad: bool,
    first_image: int,
    stop: int,
) -> None:
    """Write the gradients of images first_image ... stop - 1, and add what their counters' tables are owed."""
    dtype = attention.dtype.type
    zero, one, bend, limit, half = dtype(0), dtype(1), dtype(LOGIT_BEND), dtype(LOGIT_LIMIT), dtype(0.5)
    number, classes = attention.shape[1], grad_distribution.shape[1]
    segments = segments_of(tables)
    edges = np.empty(segments + 1, attention.dtype)
    calibration_edges(segments, edges)
    grads, weights = np.empty((6, number), attention.dtype), np.empty(number, attention.dtype)
    b, grad_b = np.empty((4, number), attention.dtype), np.empty((4, number), attention.dtype)
    order, column = np.empty(number, np.int32), np.empty((2, number), np.int32)
    score_place = np.empty((2, number), attention.dtype)
    most_pairs = number * (number - 1) // 2
    first, second = np.empty(most_pairs, np.int32), np.empty(most_pairs, np.int32)
    iou = np.empty(most_pairs, attention.dtype)
    grad_stands = np.empty((2, most_pairs), attention.dtype)
    prefixes, owed_classes = np.empty((number + 1, classes), attention.dtype), np.empty(classes, attention.dtype)
    grad_2, grad_1, grad_calibrated, grad_z, grad_l, grad_t = grads[0], grads[1], grads[2], grads[3], grads[4], grads[5]
    a_counter = attention.shape[0] // tables.shape[0]
    for image in range(first_image, stop):
        table, owed = tables[image // a_counter], owed_tables[image // a_counter]
        rows, kept = rows_and_pairs(state[image], number)
        n = real_proposals(image, attention, boxes, mask, order, weights, b)
        pairs = find_pairs(n, b, first, second, iou)
        locate_scores(n, rows[COORDINATE], column, score_place)
        distribute(n, rows[PRESENCE_2], prefixes)
        for i in range(n):
            for row in range(6):
                grads[row, i] = zero
            for corner in range(4):
                grad_b[corner, i] = zero
            grad_2[i] = grad_presence[image, order[i]] + grad_features[image, classes]
        for pair in range(pairs):
            grad_stands[0, pair] = zero
            grad_stands[1, pair] = zero
        for k in range(classes):
            owed_classes[k] = grad_distribution[image, k]
            owed_classes[k] += grad_features[image, k] / (prefixes[n, k] + dtype(LOG_FLOOR))
        distribution_backward(n, rows[PRESENCE_2], prefixes, owed_classes, grad_2)

        # Both rounds of the fixed point, last first; grad_z and grad_l lend their space.
        for i in range(n):
            grad_z[i] = grad_2[i] * rows[PRESENCE_2, i]
            grad_calibrated[i] = grad_2[i] * rows[SURVIVAL_2, i]
        survive_backward(pairs, first, second, kept, rows[PRESENCE_1], grad_z, grad_stands, grad_1)
        for i in range(n):
            grad_z[i] = grad_1[i] * rows[PRESENCE_1, i]
            grad_calibrated[i] += grad_1[i] * rows[SURVIVAL_1, i]
        survive_backward(pairs, first, second, kept, rows[CALIBRATED], grad_z, grad_stands, grad_calibrated)

        # φ, and what it is given.
        for i in range(n):
            score = rows[SIGMOID, i]
            s, _ = locate(coordinate_of(rows[Z, i]) * dtype(segments), segments)
            width = edges[s + 1] - edges[s]
            place = (score - edges[s]) / width
            rise = table[CALIBRATION + s + 1] - table[CALIBRATION + s]
            value = table[CALIBRATION + s] + place * rise
            grad = zero if value > one or value < zero else grad_calibrated[i]
            owed[CALIBRATION + s] += grad * (one - place)
            owed[CALIBRATION + s + 1] += grad * place
            grad_z[i] = grad * rise / width * score * (one - score)
            owed[SLOPE] += grad_z[i] * rows[LOGIT, i]
            owed[SHIFT] += grad_z[i]
            grad_l[i] = grad_z[i] * table[SLOPE]
        for pair in range(pairs):
            i, j = first[pair], second[pair]
            grad_iou = pair_backward(
                pair,
                i,
                j,
                iou[pair],
                b,
                kept,
                table,
                edges,
                rows,
                column,
                score_place,
                grad_z,
                grad_stands,
                grad_l,
                grad_t,
                owed,
            )
            if boxes_need_grad:
                overlap_backward(i, j, b, -grad_iou, grad_b)

        if n < number:
            grad_attention[image] = zero
            grad_boxes[image] = zero
        for i in range(n):
            distance = abs(rows[LOGIT, i]) + bend
            slope = half * (one + bend / limit) * bend / (distance * distance)
            grad_attention[image, order[i]] = (grad_l[i] + grad_t[i] * slope) * rows[LOGIT_SLOPE, i]
            for corner in range(4):
                grad_boxes[image, order[i], corner] = grad_b[corner, i]
