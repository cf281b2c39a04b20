"""What both kernels are made of: places in a table, and the order of proposals."""

from __future__ import annotations

import math

import numpy as np

from tallybox.kernels.cpu.compiling import Array, Number, inlined
from tallybox.presence.table import PAIR_ROWS, ROWS
from tallybox.presence.weights import CELLS, LOGIT_BEND, LOGIT_LIMIT

KNOTS = CELLS + 1
LEAST_SCORE = 1 / (1 + math.exp(LOGIT_LIMIT + 1))

# Places in a table.
SLOPE, SHIFT, SHARPNESS, STEP, CALIBRATION = range(5)

# What an image's state holds of each proposal, and of each pair that overlaps: how much j stands for i and i for j,
# σ(γ (L_j - L_i)), τ for j and for i, η by i's and by j's score.
LOGIT, LOGIT_SLOPE, COORDINATE, Z, SIGMOID, CALIBRATED, SURVIVAL_1, PRESENCE_1, SURVIVAL_2, PRESENCE_2 = range(ROWS)
FOR_I, FOR_J, AHEAD, ORDER_OF_J, ORDER_OF_I, SHARED_BY_I, SHARED_BY_J = range(PAIR_ROWS)


@inlined
def segments_of(tables: Array) -> int:
    """Return how many segments φ and τ have in such tables."""
    return int(tables.shape[1] - CALIBRATION - 2 * KNOTS * KNOTS) // 2 - 1


@inlined
def rows_and_pairs(state: Array, number: int) -> tuple[Array, Array]:
    """Return the two tables of an image's state, ``[ROWS, N]`` and ``[PAIR_ROWS, N (N - 1) / 2]``."""
    rows = ROWS * number
    most_pairs = number * (number - 1) // 2
    pairs = state[rows : rows + PAIR_ROWS * most_pairs].reshape(PAIR_ROWS, most_pairs)
    return state[:rows].reshape(ROWS, number), pairs


@inlined
def logistic(x: Number) -> Number:
    """σ(x)."""
    one = type(x)(1)
    return one / (one + np.exp(-x))


@inlined
def logit_of(score: Number, is_logit: bool) -> tuple[Number, Number]:
    """Return a score's logit within its limits, as `score_logit`, and its slope."""
    dtype = type(score)
    one, limit, slope = dtype(1), dtype(LOGIT_LIMIT), dtype(1)
    logit = score
    if not is_logit:
        least = dtype(LEAST_SCORE)
        score = min(max(score, least), one - least)
        logit, slope = np.log(score / (one - score)), one / (score * (one - score))
    if logit > limit:
        return limit, dtype(0)
    if logit < -limit:
        return -limit, dtype(0)
    return logit, slope


@inlined
def coordinate_of(logit: Number) -> Number:
    """Where a score lies among the knots, as `score_coordinate`."""
    dtype = type(logit)
    limit, bend, half = dtype(LOGIT_LIMIT), dtype(LOGIT_BEND), dtype(0.5)
    logit = min(max(logit, -limit), limit)
    return half + half * (dtype(1) + bend / limit) * logit / (abs(logit) + bend)


@inlined
def locate(position: Number, segments: int) -> tuple[int, Number]:
    """Return a position's segment, within the table whatever the position (NaN too), and the place in it."""
    lower = 0
    if position > 0:
        lower = min(int(position), segments - 1)
    return lower, position - type(position)(lower)


@inlined
def locate_scores(n: int, coordinate: Array, column: Array, place: Array) -> None:
    """Fill ``column [2, N]`` and ``place [2, N]``: where scores, and 1 less them, fall among a table's columns.

    Once for each proposal, since every pair asks for them.
    """
    one, cells = coordinate.dtype.type(1), coordinate.dtype.type(CELLS)
    for i in range(n):
        column[0, i], place[0, i] = locate(coordinate[i] * cells, CELLS)
        column[1, i], place[1, i] = locate((one - coordinate[i]) * cells, CELLS)


@inlined
def comes_before(j: int, i: int, logit: Array, b: Array) -> bool:
    """Whether proposal j comes before i: by score, then by corners, then as they stand."""
    if logit[j] != logit[i]:
        return bool(logit[j] > logit[i])
    for corner in range(4):
        if b[corner, j] != b[corner, i]:
            return bool(b[corner, j] < b[corner, i])
    return j < i


@inlined
def cell_value(table: Array, start: int, e: int, at: Number, f: int, place: Number) -> Number:
    """Evaluate a function of two numbers inside the cell (e, f)."""
    k = start + e * KNOTS + f
    low = table[k] + place * (table[k + 1] - table[k])
    high = table[k + KNOTS] + place * (table[k + KNOTS + 1] - table[k + KNOTS])
    return low + at * (high - low)


@inlined
def cell_backward(
    table: Array, owed: Array, start: int, e: int, at: Number, f: int, place: Number, grad: Number
) -> tuple[Number, Number]:
    """Note what a cell's four knots are owed; return the gradients of both arguments."""
    cells, one = type(grad)(CELLS), type(grad)(1)
    k = start + e * KNOTS + f
    low, high = table[k + 1] - table[k], table[k + KNOTS + 1] - table[k + KNOTS]
    rise = (table[k + KNOTS] + place * high) - (table[k] + place * low)
    owed[k] += grad * (one - at) * (one - place)
    owed[k + 1] += grad * (one - at) * place
    owed[k + KNOTS] += grad * at * (one - place)
    owed[k + KNOTS + 1] += grad * at * place
    return grad * rise * cells, grad * (low + at * (high - low)) * cells


@inlined
def order_places(difference: Number, table: Array, segments: int) -> tuple[Number, int, Number, int, Number]:
    """Return σ(γ (L_j - L_i)), and where it and 1 less it fall among τ's segments."""
    ahead = logistic(table[SHARPNESS] * difference)
    s, place = locate(ahead * type(ahead)(segments), segments)
    t, there = locate((type(ahead)(1) - ahead) * type(ahead)(segments), segments)
    return ahead, s, place, t, there
