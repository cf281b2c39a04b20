"""The forward kernel, and what it shares with the backward kernel: an image's state, its pairs, a table's functions.

Arithmetic is in double precision, arrays have that of the inputs.
"""

from typing import NamedTuple

import numba.extending
import numpy as np

from tallybox.kernels import TINY
from tallybox.kernels.cpu.boxes import Corners, box_iou, overlap, real_proposals
from tallybox.kernels.cpu.compiling import Array, Arrays, Number, compiled, inlined
from tallybox.presence import weights

KNOTS = weights.CELLS + 1

segments_of_table = numba.extending.register_jitable(weights.segments_of_table)


class SavedImage(NamedTuple):
    """What the forward kernel saves of an image, real proposals first."""

    logit: Array  # [N]
    coordinate: Array  # [N]
    z: Array  # [N]
    sigmoid: Array  # σ(z) [N]
    calibrated: Array  # p⁰ [N]
    survival_1: Array  # [N], products of the first round
    presence_1: Array  # [N]
    survival_2: Array  # [N]
    presence_2: Array  # [N]
    suppression: Array  # [N (N - 1)], of each pair
    lead: Array  # σ(γ (L_source - L_target)) [N (N - 1)]
    shared: Array  # η [N (N - 1)]


class BoxPairs(NamedTuple):
    """An image's directed pairs; a pair and its reverse follow each other."""

    target: Array
    source: Array
    iou: Array


@numba.extending.register_jitable
def saved_size(number: int) -> int:
    """Return how many numbers are saved of an image."""
    return 9 * number + 3 * number * (number - 1)


@inlined
def saved_image(state: Array, number: int) -> SavedImage:
    """Return views of an image's row of the saved state."""
    p = state[: 9 * number].reshape(9, number)
    q = state[9 * number :].reshape(3, number * (number - 1))
    return SavedImage(p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], q[0], q[1], q[2])


@inlined
def empty_pairs(number: int, like: Array) -> BoxPairs:
    """Allocate the pairs of an image of so many boxes."""
    size = number * (number - 1)
    return BoxPairs(np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, like.dtype))


@inlined
def corners(b: Array, i: int) -> Corners:
    """Return the corners of box i of ``b [4, N]``."""
    return b[0, i], b[1, i], b[2, i], b[3, i]


@compiled
def find_pairs(n: int, b: Array, every_pair: bool, pairs: BoxPairs) -> int:
    """List the pairs that overlap or touch, or every pair; return how many there are."""
    zero, one = b.dtype.type(0), b.dtype.type(1)
    found = 0
    for i in range(n):
        for j in range(i):
            width, height = overlap(corners(b, i), corners(b, j))
            if (width < zero or height < zero) and not every_pair:
                continue
            iou = box_iou(corners(b, i), corners(b, j), zero, one)
            pairs.target[found], pairs.source[found], pairs.iou[found] = i, j, iou
            pairs.target[found + 1], pairs.source[found + 1], pairs.iou[found + 1] = j, i, iou
            found += 2
    return found


@compiled
def all_finite(logit: Array, boxes: Array, tables: Array) -> bool:
    """Whether boxes apart do not influence each other: 0 times NaN is NaN."""
    # Not `np.isfinite`: in these kernels it was true of NaN, with the freedom that LLVM has to reorder sums.
    return bool(abs(logit.sum() + boxes.sum() + tables.sum()) < np.inf)


@inlined
def logistic(x: Number) -> Number:
    """σ(x)."""
    one = type(x)(1)
    return one / (one + np.exp(-x))


@inlined
def coordinate_of(logit: Number) -> Number:
    """Return where a score lies among the knots, as `score_coordinate`."""
    dtype = type(logit)
    limit, bend, half = dtype(weights.LOGIT_LIMIT), dtype(weights.LOGIT_BEND), dtype(0.5)
    logit = min(max(logit, -limit), limit)
    return half + half * (dtype(1) + bend / limit) * logit / (abs(logit) + bend)


@inlined
def precedes(j: int, i: int, logit: Array, b: Array) -> bool:
    """Whether proposal j comes before i: by score, then by corners, then by index."""
    if logit[j] != logit[i]:
        return bool(logit[j] > logit[i])
    for corner in range(4):
        if b[corner, j] != b[corner, i]:
            return bool(b[corner, j] < b[corner, i])
    return j < i


@inlined
def locate(position: Number, segments: int) -> tuple[int, Number]:
    """Return the segment of a position, a valid one even for NaN, and the fraction of the segment before it."""
    lower = 0
    if position > 0:
        lower = min(int(position), segments - 1)
    return lower, position - type(position)(lower)


@inlined
def cell_value(table: Array, start: int, iou: Number, coordinate: Number) -> Number:
    """Evaluate the function of two numbers whose knots begin at ``start``."""
    cells = type(iou)(weights.CELLS)
    e, of_row = locate(iou * cells, weights.CELLS)
    f, of_column = locate(coordinate * cells, weights.CELLS)
    k = start + e * KNOTS + f
    low = table[k] + of_column * (table[k + 1] - table[k])
    high = table[k + KNOTS] + of_column * (table[k + KNOTS + 1] - table[k + KNOTS])
    return low + of_row * (high - low)


@inlined
def order_value(table: Array, lead: Number, before: bool) -> tuple[Number, Number, int, Number]:
    """Return τ, its slope along ``lead``, the offset of its segment in the table and the fraction of that segment."""
    segments = segments_of_table(table.shape[0])
    s, fraction = locate(lead * type(lead)(segments), segments)
    knot = weights.CALIBRATION + segments + 1 + s
    rise = table[knot + 1] - table[knot]
    step = table[weights.STEP] if before else type(lead)(0)
    return table[knot] + fraction * rise + step, rise * type(lead)(segments), knot, fraction


@inlined
def calibration_value(table: Array, z: Number, sigmoid: Number) -> tuple[Number, Number, int, Number]:
    """Return φ(σ(z)) before it is clamped, its slope along z, the offset of its segment and the fraction of it."""
    segments = segments_of_table(table.shape[0])
    s, _ = locate(coordinate_of(z) * type(z)(segments), segments)
    knot, edge = weights.CALIBRATION + s, weights.CALIBRATION + 2 * (segments + 1) + s
    rise, width = table[knot + 1] - table[knot], table[edge + 1] - table[edge]
    fraction = (sigmoid - table[edge]) / width
    return table[knot] + fraction * rise, rise / width * sigmoid * (1 - sigmoid), knot, fraction


@inlined
def factor(suppression: Number, presence: Number) -> Number:
    """1 - s_ij p_j, not below TINY; NaN stays."""
    value = type(presence)(1) - suppression * presence
    tiny = type(presence)(TINY)
    return tiny if value <= tiny else value


@compiled
def one_round(
    found: int, n: int, pairs: BoxPairs, saved: SavedImage, before: Array, survival: Array, out: Array
) -> None:
    """Fill ``survival`` with ∏_j (1 - s_ij p_j) of the presences ``before``, and ``out`` with p⁰ times it."""
    for i in range(n):
        survival[i] = 1
    for pair in range(found):
        survival[pairs.target[pair]] *= factor(saved.suppression[pair], before[pairs.source[pair]])
    for i in range(n):
        out[i] = saved.calibrated[i] * survival[i]


@compiled
def fill_presence(n: int, b: Array, table: Array, found: int, pairs: BoxPairs, saved: SavedImage) -> None:
    """Compute an image's presences from its logits and pairs."""
    one = table.dtype.type(1)
    for i in range(n):
        saved.coordinate[i] = coordinate_of(saved.logit[i])
        saved.z[i] = table[weights.SLOPE] * saved.logit[i] + table[weights.SHIFT]
    for pair in range(found):
        i, j, iou = pairs.target[pair], pairs.source[pair], pairs.iou[pair]
        saved.z[i] += cell_value(table, weights.EVIDENCE, iou, saved.coordinate[j])
        shared = cell_value(table, weights.OVERLAP, iou, one - saved.coordinate[i])
        lead = logistic(table[weights.SHARPNESS] * (saved.logit[j] - saved.logit[i]))
        order = order_value(table, lead, precedes(j, i, saved.logit, b))[0]
        saved.suppression[pair], saved.lead[pair], saved.shared[pair] = shared * order, lead, shared
    for i in range(n):
        saved.sigmoid[i] = logistic(saved.z[i])
        value = calibration_value(table, saved.z[i], saved.sigmoid[i])[0]
        saved.calibrated[i] = 1 if value > 1 else (0 if value < 0 else value)
    one_round(found, n, pairs, saved, saved.calibrated, saved.survival_1, saved.presence_1)
    one_round(found, n, pairs, saved, saved.presence_1, saved.survival_2, saved.presence_2)


@compiled
def fill_prefixes(n: int, presence: Array, prefixes: Array) -> None:
    """Fill ``prefixes [N + 1, K + 1]``: row i is the distribution of the count of the first i presences."""
    one, largest = prefixes.dtype.type(1), prefixes.shape[1] - 1  # in single precision LLVM makes larger vectors
    prefixes[0] = 0
    prefixes[0, 0] = 1
    for i in range(n):
        # Written out, LLVM turns x (1 - p) + y p into x + p (y - x), which loses small probabilities.
        here, absent = presence[i], one - presence[i]
        prefixes[i + 1, 0] = prefixes[i, 0] * absent
        for k in range(1, largest + 1):
            prefixes[i + 1, k] = prefixes[i, k] * absent + prefixes[i, k - 1] * here
        prefixes[i + 1, largest] += prefixes[i, largest] * here


@compiled
def presence_forward_kernel(inputs: Arrays, results: Arrays, state: Array, first_image: int, stop: int) -> None:
    """Write the results of images first_image ... stop - 1, and their state unless it is empty."""
    (logit, boxes, mask, tables), (features, presence, distribution) = inputs, results
    images_per_counter = len(logit) // len(tables)
    number, classes = logit.shape[1], distribution.shape[1]
    b, order = np.empty((4, number), logit.dtype), np.empty(number, np.int32)
    prefixes = np.empty((number + 1, classes), logit.dtype)
    pairs, scratch = empty_pairs(number, logit), np.empty(saved_size(number), logit.dtype)
    every_pair = not all_finite(logit[first_image:stop], boxes[first_image:stop], tables)
    for index in range(first_image, stop):
        saved = saved_image(state[index] if state.shape[1] else scratch, number)
        n = real_proposals(index, logit, boxes, mask, order, saved.logit, b)
        table = tables[index // images_per_counter]
        found = find_pairs(n, b, every_pair, pairs)
        fill_presence(n, b, table, found, pairs, saved)
        fill_prefixes(n, saved.presence_2, prefixes)
        presence[index] = 0
        expected = 0.0
        for i in range(n):
            presence[index, order[i]] = saved.presence_2[i]
            expected += saved.presence_2[i]
        for k in range(classes):
            distribution[index, k] = prefixes[n, k]
            features[index, k] = np.log(prefixes[n, k] + weights.LOG_FLOOR)
        features[index, classes] = expected
