"""What both kernels share: an image's saved state, its pairs, and the functions of a counter's table."""

from typing import NamedTuple

import numba.extending
import numpy as np

from tallybox.kernels import TINY
from tallybox.kernels.cpu.boxes import Corners, box_iou, overlap
from tallybox.kernels.cpu.compiling import Array, Number, compiled, inlined
from tallybox.presence import weights
from tallybox.presence.weights import CALIBRATION, CELLS, LOGIT_BEND, LOGIT_LIMIT, STEP

KNOTS = CELLS + 1

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


@inlined
def logistic(x: Number) -> Number:
    """σ(x)."""
    one = type(x)(1)
    return one / (one + np.exp(-x))


@inlined
def coordinate_of(logit: Number) -> Number:
    """Return where a score lies among the knots, as `score_coordinate`."""
    dtype = type(logit)
    limit, bend, half = dtype(LOGIT_LIMIT), dtype(LOGIT_BEND), dtype(0.5)
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
    cells = type(iou)(CELLS)
    e, of_row = locate(iou * cells, CELLS)
    f, of_column = locate(coordinate * cells, CELLS)
    k = start + e * KNOTS + f
    low = table[k] + of_column * (table[k + 1] - table[k])
    high = table[k + KNOTS] + of_column * (table[k + KNOTS + 1] - table[k + KNOTS])
    return low + of_row * (high - low)


@inlined
def order_value(table: Array, lead: Number, before: bool) -> tuple[Number, Number, int, Number]:
    """Return τ, its slope along ``lead``, the offset of its segment in the table and the fraction of that segment."""
    segments = segments_of_table(table.shape[0])
    s, fraction = locate(lead * type(lead)(segments), segments)
    knot = CALIBRATION + segments + 1 + s
    rise = table[knot + 1] - table[knot]
    step = table[STEP] if before else type(lead)(0)
    return table[knot] + fraction * rise + step, rise * type(lead)(segments), knot, fraction


@inlined
def calibration_value(table: Array, z: Number, sigmoid: Number) -> tuple[Number, Number, int, Number]:
    """Return φ(σ(z)) before it is clamped, its slope along z, the offset of its segment and the fraction of it."""
    segments = segments_of_table(table.shape[0])
    s, _ = locate(coordinate_of(z) * type(z)(segments), segments)
    knot, edge = CALIBRATION + s, CALIBRATION + 2 * (segments + 1) + s
    rise, width = table[knot + 1] - table[knot], table[edge + 1] - table[edge]
    fraction = (sigmoid - table[edge]) / width
    return table[knot] + fraction * rise, rise / width * sigmoid * (type(z)(1) - sigmoid), knot, fraction


@inlined
def factor(suppression: Number, presence: Number) -> Number:
    """1 - s_ij p_j, not below TINY; NaN stays."""
    value = type(presence)(1) - suppression * presence
    tiny = type(presence)(TINY)
    return tiny if value <= tiny else value
