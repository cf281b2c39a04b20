"""The backward kernel, from the gradients of all results to those of attention, boxes and tables."""

from typing import NamedTuple

import numpy as np

from tallybox.kernels.cpu.boxes import box_iou_backward, real_proposals
from tallybox.kernels.cpu.compiling import Array, Arrays, Number, compiled, inlined
from tallybox.presence import weights
from tallybox.presence.cpu import forward
from tallybox.presence.cpu.forward import BoxPairs, SavedImage


class ImageGradients(NamedTuple):
    """The gradients of an image's quantities."""

    presence_2: Array  # [N]
    presence_1: Array  # [N]
    calibrated: Array  # [N]
    z: Array  # [N]
    logit: Array  # [N]
    coordinate: Array  # [N]
    suppression: Array  # [N (N - 1)], of each pair


@compiled
def distribution_backward(n: int, presence: Array, prefixes: Array, grad_classes: Array, grad: Array) -> None:
    """Add the distribution's share to each presence's gradient; ``grad_classes [K + 1]`` is overwritten."""
    largest = len(grad_classes) - 1
    for i in range(n - 1, -1, -1):
        here, absent = presence[i], 1 - presence[i]
        total = 0.0
        for k in range(largest):
            total += prefixes[i, k] * (grad_classes[k + 1] - grad_classes[k])
        grad[i] += total
        for k in range(largest):
            grad_classes[k] = grad_classes[k] * absent + grad_classes[k + 1] * here


@compiled
def round_backward(
    found: int, pairs: BoxPairs, saved: SavedImage, before: Array, weighted: Array,
    grad: ImageGradients, grad_before: Array,
) -> None:  # fmt: skip
    """Add the gradients of suppressions and of presences ``before``; ``weighted [N]`` are gradients times presences."""
    for pair in range(found):
        j, s = pairs.source[pair], saved.suppression[pair]
        share = weighted[pairs.target[pair]] / forward.factor(s, before[j])
        grad.suppression[pair] -= before[j] * share
        grad_before[j] -= s * share


@inlined
def cell_backward(
    table: Array, grad_table: Array, start: int, iou: Number, coordinate: Number, grad: Number
) -> tuple[Number, Number]:
    """Add to the gradients of a cell's four knots; return the gradients of both arguments."""
    cells = weights.CELLS
    e, of_row = forward.locate(iou * cells, cells)
    f, of_column = forward.locate(coordinate * cells, cells)
    k = start + e * forward.KNOTS + f
    low, high = table[k + 1] - table[k], table[k + forward.KNOTS + 1] - table[k + forward.KNOTS]
    rise = (table[k + forward.KNOTS] + of_column * high) - (table[k] + of_column * low)
    grad_table[k] += grad * (1 - of_row) * (1 - of_column)
    grad_table[k + 1] += grad * (1 - of_row) * of_column
    grad_table[k + forward.KNOTS] += grad * of_row * (1 - of_column)
    grad_table[k + forward.KNOTS + 1] += grad * of_row * of_column
    return grad * rise * cells, grad * (low + of_row * (high - low)) * cells


@inlined
def pair_backward(
    pair: int, pairs: BoxPairs, b: Array, saved: SavedImage, table: Array, grad: ImageGradients, grad_table: Array
) -> Number:
    """Add a pair's gradients to those of logits, coordinates and the table; return that of its IoU."""
    i, j, iou = pairs.target[pair], pairs.source[pair], pairs.iou[pair]
    by_evidence, by_score = cell_backward(table, grad_table, weights.EVIDENCE, iou, saved.coordinate[j], grad.z[i])
    grad.coordinate[j] += by_score
    before = forward.precedes(j, i, saved.logit, b)
    order, slope, knot, fraction = forward.order_value(table, saved.lead[pair], before)
    grad_shared, grad_order = grad.suppression[pair] * order, grad.suppression[pair] * saved.shared[pair]
    by_shared, by_score = cell_backward(table, grad_table, weights.OVERLAP, iou, 1 - saved.coordinate[i], grad_shared)
    grad.coordinate[i] -= by_score
    if before:
        grad_table[weights.STEP] += grad_order
    grad_table[knot] += grad_order * (1 - fraction)
    grad_table[knot + 1] += grad_order * fraction
    grad_lead = grad_order * slope * saved.lead[pair] * (1 - saved.lead[pair])
    grad_table[weights.SHARPNESS] += grad_lead * (saved.logit[j] - saved.logit[i])
    grad.logit[j] += grad_lead * table[weights.SHARPNESS]
    grad.logit[i] -= grad_lead * table[weights.SHARPNESS]
    return by_evidence + by_shared


@inlined
def calibration_backward(i: int, saved: SavedImage, table: Array, grad: ImageGradients, grad_table: Array) -> None:
    """Turn the gradient of p⁰_i into those of z_i, L_i and the table."""
    value, slope, knot, fraction = forward.calibration_value(table, saved.z[i], saved.sigmoid[i])
    grad_value = 0 if value > 1 or value < 0 else grad.calibrated[i]
    grad_table[knot] += grad_value * (1 - fraction)
    grad_table[knot + 1] += grad_value * fraction
    grad.z[i] = grad_value * slope
    grad_table[weights.SLOPE] += grad.z[i] * saved.logit[i]
    grad_table[weights.SHIFT] += grad.z[i]
    grad.logit[i] = grad.z[i] * table[weights.SLOPE]


@compiled
def presence_backward_kernel(
    inputs: Arrays, state: Array, grads_of_results: Arrays, written: Arrays, grad_tables: Array,
    boxes_need_grad: bool, first_image: int, stop: int,
) -> None:  # fmt: skip
    """Write the gradients of images first_image ... stop - 1, and add to those of their counters' tables."""
    (logit, boxes, mask, tables), (grad_logit, grad_boxes) = inputs, written
    grad_features, grad_presence, grad_distribution = grads_of_results
    dtype, bend, images_per_counter = logit.dtype.type, weights.LOGIT_BEND, len(logit) // len(tables)
    number, classes = logit.shape[1], grad_distribution.shape[1]
    # In double precision: at scores of 0 and 1 large terms of both signs add up to a small gradient.
    grads, grad_suppression = np.empty((6, number)), np.empty(number * (number - 1), dtype)
    grad = ImageGradients(grads[0], grads[1], grads[2], grads[3], grads[4], grads[5], grad_suppression)
    b, grad_b, weighted = np.empty((4, number), dtype), np.empty((4, number), dtype), np.empty(number)
    order, pairs = np.empty(number, np.int32), forward.empty_pairs(number, logit)
    prefixes, grad_classes = np.empty((number + 1, classes), dtype), np.empty(classes)
    every_pair = not forward.all_finite(logit[first_image:stop], boxes[first_image:stop], tables)
    for index in range(first_image, stop):
        table, grad_table = tables[index // images_per_counter], grad_tables[index // images_per_counter]
        saved = forward.saved_image(state[index], number)
        n = real_proposals(index, logit, boxes, mask, order, weighted, b)
        found = forward.find_pairs(n, b, every_pair, pairs)
        forward.fill_prefixes(n, saved.presence_2, prefixes)
        grads[:] = 0
        grad_b[:] = 0
        grad_suppression[:found] = 0
        for i in range(n):
            grad.presence_2[i] = grad_presence[index, order[i]] + grad_features[index, classes]
        for k in range(classes):
            by_logarithm = grad_features[index, k] / (prefixes[n, k] + weights.LOG_FLOOR)
            grad_classes[k] = grad_distribution[index, k] + by_logarithm
        distribution_backward(n, saved.presence_2, prefixes, grad_classes, grad.presence_2)

        # Both rounds of the fixed point, last first.
        for i in range(n):
            weighted[i] = grad.presence_2[i] * saved.presence_2[i]
            grad.calibrated[i] = grad.presence_2[i] * saved.survival_2[i]
        round_backward(found, pairs, saved, saved.presence_1, weighted, grad, grad.presence_1)
        for i in range(n):
            weighted[i] = grad.presence_1[i] * saved.presence_1[i]
            grad.calibrated[i] += grad.presence_1[i] * saved.survival_1[i]
        round_backward(found, pairs, saved, saved.calibrated, weighted, grad, grad.calibrated)

        for i in range(n):
            calibration_backward(i, saved, table, grad, grad_table)
        for pair in range(0, found, 2):
            grad_iou = pair_backward(pair, pairs, b, saved, table, grad, grad_table)
            grad_iou += pair_backward(pair + 1, pairs, b, saved, table, grad, grad_table)
            if boxes_need_grad:
                i, j = pairs.target[pair], pairs.source[pair]
                box_i, box_j = forward.corners(b, i), forward.corners(b, j)
                of_i, of_j = box_iou_backward(box_i, box_j, dtype(grad_iou), dtype(0), dtype(0.5))
                for corner in range(4):
                    grad_b[corner, i] += of_i[corner]
                    grad_b[corner, j] += of_j[corner]

        grad_logit[index] = 0
        grad_boxes[index] = 0
        for i in range(n):
            distance = abs(saved.logit[i]) + bend
            slope = (0.5 + 0.5 * bend / weights.LOGIT_LIMIT) * bend / (distance * distance)
            grad_logit[index, order[i]] = grad.logit[i] + grad.coordinate[i] * slope
            for corner in range(4):
                grad_boxes[index, order[i], corner] = grad_b[corner, i]
