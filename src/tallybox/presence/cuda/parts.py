"""What both kernels are made of: places in a table, pairs of boxes, and the order of proposals."""

from __future__ import annotations

import math

import triton
import triton.language as tl

from tallybox.kernels.cuda.boxes import TINY, corners, is_real, overlap
from tallybox.presence.weights import CELLS, LOG_FLOOR, LOGIT_BEND, LOGIT_LIMIT

E = tl.constexpr(CELLS)
KNOTS = tl.constexpr(CELLS + 1)
BEND = tl.constexpr(LOGIT_BEND)
LIMIT = tl.constexpr(LOGIT_LIMIT)
FLOOR = tl.constexpr(LOG_FLOOR)
LEAST_SCORE = tl.constexpr(1 / (1 + math.exp(LOGIT_LIMIT + 1)))
BEND_SCALE = tl.constexpr(0.5 * (1 + LOGIT_BEND / LOGIT_LIMIT))

# Places in a table; what follows depends on S.
SLOPE, SHIFT, SHARPNESS, STEP, CALIBRATION = (tl.constexpr(place) for place in range(5))


@triton.jit
def order_place(S: tl.constexpr):
    """Where τ stands in a table."""
    return CALIBRATION + S + 1


@triton.jit
def evidence_place(S: tl.constexpr):
    """Where κ stands in a table."""
    return CALIBRATION + 2 * (S + 1)


@triton.jit
def overlap_place(S: tl.constexpr):
    """Where η stands in a table."""
    return CALIBRATION + 2 * (S + 1) + KNOTS * KNOTS


@triton.jit
def table_size(S: tl.constexpr):
    """T."""
    return CALIBRATION + 2 * (S + 1) + 2 * KNOTS * KNOTS


@triton.jit
def multiply(a, b):
    """For a product over an axis."""
    return a * b


@triton.jit
def logistic(x):
    """σ(x)."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def coordinate_of(logit):
    """Where a score lies among the knots, as `score_coordinate`."""
    logit = tl.minimum(tl.maximum(logit, -LIMIT), LIMIT)
    return logit * BEND_SCALE / (tl.abs(logit) + BEND) + 0.5


@triton.jit
def locate(position, SEGMENTS: tl.constexpr):
    """Return a position's segment, within the table whatever the position, and the place in it."""
    start = tl.minimum(tl.maximum(tl.floor(position), 0.0), SEGMENTS - 1.0)
    return start.to(tl.int32), position - start


@triton.jit
def cell(table, overlaps, coordinates):
    """Evaluate a function of two numbers; return its value and its slopes along both."""
    e, at = locate(overlaps * E, E)
    f, place = locate(coordinates * E, E)
    k = table + e * KNOTS + f
    low, low_rise = tl.load(k), tl.load(k + 1) - tl.load(k)
    high, high_rise = tl.load(k + KNOTS), tl.load(k + KNOTS + 1) - tl.load(k + KNOTS)
    below, above = low + place * low_rise, high + place * high_rise
    return below + at * (above - below), (above - below) * E, (low_rise + at * (high_rise - low_rise)) * E


@triton.jit
def order(table, difference, before, S: tl.constexpr):
    """τ of a difference of logits; with its slope along σ(γ difference), and that logistic."""
    ahead = logistic(tl.load(table + SHARPNESS) * difference)
    s, place = locate(ahead * S, S)
    knot = table + order_place(S) + s
    rise = tl.load(knot + 1) - tl.load(knot)
    step = tl.where(before, tl.load(table + STEP), 0.0)
    return tl.load(knot) + place * rise + step, rise * S, ahead


@triton.jit
def calibration_edge(s, S: tl.constexpr):
    """Where φ's segment s begins, as `calibration_edges`."""
    bent = (s * (2.0 / S) - 1.0) * (0.5 / BEND_SCALE)
    inner = logistic(bent * BEND / (1.0 - tl.abs(bent)))
    return tl.where(s <= 0, 0.0, tl.where(s >= S, 1.0, inner))


@triton.jit
def calibrate(table, z, S: tl.constexpr):
    """φ(σ(z)), its slope along z, its segment and the place in it, and whether rounding took it out of [0, 1]."""
    s, _ = locate(coordinate_of(z) * S, S)
    score = logistic(z)
    start = calibration_edge(s.to(tl.float32), S)
    width = calibration_edge(s.to(tl.float32) + 1.0, S) - start
    place = (score - start) / width
    low = tl.load(table + CALIBRATION + s)
    rise = tl.load(table + CALIBRATION + s + 1) - low
    value = low + place * rise
    slope = rise / width * score * (1.0 - score)
    outside = (value > 1.0) | (value < 0.0)
    # Not by tl.minimum, which would make a number of NaN.
    value = tl.where(value > 1.0, 1.0, tl.where(value < 0.0, 0.0, value))
    return tl.where(z == z, value, z), slope, s, place, outside


@triton.jit
def logit_of(score, LOGITS: tl.constexpr):
    """A score's logit within its limits, as `score_logit`, and its slope."""
    logit, slope = score, tl.full(score.shape, 1.0, tl.float32)
    if not LOGITS:
        score = tl.minimum(tl.maximum(score, LEAST_SCORE), 1.0 - LEAST_SCORE)
        logit, slope = tl.log(score / (1.0 - score)), 1.0 / (score * (1.0 - score))
    slope = tl.where(tl.abs(logit) <= LIMIT, slope, 0.0)
    return tl.minimum(tl.maximum(logit, -LIMIT), LIMIT), slope


@triton.jit
def proposals(attention, boxes, mask, place, inside, HAS_MASK: tl.constexpr, LOGITS: tl.constexpr):
    """Whether proposals are real, their logits and corners."""
    real = is_real(mask, place, inside, HAS_MASK)
    x1, y1, x2, y2 = corners(boxes, place, real)
    score = tl.load(attention + place, mask=real, other=0.0)
    logit = tl.where(score == score, logit_of(score, LOGITS)[0], score)  # NaN stays
    return real, logit, x1, y1, x2, y2


@triton.jit
def pair_of(ax1, ay1, ax2, ay2, bx1, by1, bx2, by2):
    """IoU of boxes a and b, with the overlap's width and height, and the union."""
    distance, width, height, union = overlap(ax1, ay1, ax2, ay2, bx1, by1, bx2, by2)
    shared = tl.maximum(width, 0.0) * tl.maximum(height, 0.0)
    return tl.where(union > 0, shared / tl.where(union > 0, union, 1.0), 1.0 - distance), width, height, union


@triton.jit
def comes_before(
    a_logit, ax1, ay1, ax2, ay2, a, b_logit, bx1, by1, bx2, by2, b
):  # fmt: skip
    """Whether proposal a comes before b: by score, then by x1, y1, x2, y2, then as they stand."""
    before = tl.where(ay2 == by2, a < b, ay2 < by2)  # the last key first
    before = tl.where(ax2 == bx2, before, ax2 < bx2)
    before = tl.where(ay1 == by1, before, ay1 < by1)
    before = tl.where(ax1 == bx1, before, ax1 < bx1)
    return tl.where(a_logit == b_logit, before, a_logit > b_logit)


@triton.jit
def stands_backward(s, earlier, first, weighted_2, weighted_1):
    """The gradient of s_ij, of presences j before each round and of weighted gradients i after it."""
    second_round = earlier * weighted_2 / tl.maximum(1.0 - s * earlier, TINY)
    return -second_round - first * weighted_1 / tl.maximum(1.0 - s * first, TINY)
