"""What the kernels share: an image's saved state, its proposals, and the functions of a counter's table."""

import triton
import triton.language as tl

from tallybox.kernels.cuda.boxes import TINY, corners, load_weights
from tallybox.presence import weights

E = tl.constexpr(weights.CELLS)
KNOTS = tl.constexpr(weights.CELLS + 1)
BEND = tl.constexpr(weights.LOGIT_BEND)
LIMIT = tl.constexpr(weights.LOGIT_LIMIT)
SMALLEST = tl.constexpr(weights.SMALLEST_SCORE)
FLOOR = tl.constexpr(weights.LOG_FLOOR)
BEND_SCALE = tl.constexpr(0.5 * (1 + weights.LOGIT_BEND / weights.LOGIT_LIMIT))

# Offsets in a table.
SLOPE, SHIFT, SHARPNESS = tl.constexpr(weights.SLOPE), tl.constexpr(weights.SHIFT), tl.constexpr(weights.SHARPNESS)
STEP, EVIDENCE, OVERLAP = tl.constexpr(weights.STEP), tl.constexpr(weights.EVIDENCE), tl.constexpr(weights.OVERLAP)
CALIBRATION = tl.constexpr(weights.CALIBRATION)


def saved_size(number: int, max_objects: int) -> int:
    """Return how many numbers are saved of an image, see `saved_image`."""
    return number * number + 4 * number + (number + 1) * (max_objects + 1)


@triton.jit
def saved_image(state, N):
    """s [N, N], z, p⁰ and the products of both rounds [N] each, and the distributions of the first 0 ... N presences.

    The last is [N + 1, K + 1].
    """
    z = state + N * N
    return state, z, z + N, z + 2 * N, z + 3 * N, z + 4 * N


@triton.jit
def tables_behind(state, IMAGES, STATE_SIZE):
    """The tables of all counters [M, T], behind what is saved of all images."""
    return state + tl.cast(IMAGES, tl.int64) * STATE_SIZE


@triton.jit
def image_gradients(scratch, N):
    """What the backward kernel notes: the gradients of z and p⁰, and gradients times presences of both rounds, [N]."""
    return scratch, scratch + N, scratch + 2 * N, scratch + 3 * N


@triton.jit
def load(row, index, inside):
    """Values of a row [N], 0 where there is none."""
    return tl.load(row + index, mask=inside, other=0.0)


@triton.jit
def rows_of_counter(row, counter, IMAGES_PER_COUNTER, N):
    """Images and proposals i of some rows, and which of them there are; a counter's rows are its images' proposals."""
    of_counter = row // N
    return counter * IMAGES_PER_COUNTER + of_counter, row - of_counter * N, of_counter < IMAGES_PER_COUNTER


@triton.jit
def rows_of_block(IMAGES_PER_COUNTER, BLOCKS_PER_COUNTER, N, LANES: tl.constexpr):
    """A block's counter, and images and proposals i of the block's rows, one in each lane."""
    counter = (tl.program_id(0) // BLOCKS_PER_COUNTER).to(tl.int64)
    row = tl.program_id(0) % BLOCKS_PER_COUNTER * LANES + tl.arange(0, LANES)
    image, i, here = rows_of_counter(row, counter, IMAGES_PER_COUNTER, N)
    return counter, image, i, here


@triton.jit
def rows_of_group(start, first, IMAGES, N, G: tl.constexpr, R: tl.constexpr):
    """Images and proposals of R rows of a group from ``start`` on, and which of them there are."""
    row = start + tl.arange(0, R)
    image = first + row // N
    here = (row < G * N) & (image < IMAGES)
    return tl.where(here, image, first), row % N, here  # an image that there is has a table


@triton.jit
def neighbour(values, OFFSET: tl.constexpr, G: tl.constexpr, SIZE: tl.constexpr):
    """values[g, k + OFFSET] of values [G, SIZE], 0 outside; in registers, which is faster than through memory."""
    k = tl.arange(0, SIZE)[None, :] + OFFSET
    inside = (k >= 0) & (k < SIZE)
    return tl.where(inside, tl.gather(values, tl.broadcast_to(tl.where(inside, k, 0), (G, SIZE)), axis=1), 0.0)


@triton.jit
def logistic(x):
    """σ(x)."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def clamp(x, low, high):
    """Clamp x; NaN stays."""
    return tl.where(x < low, low, tl.where(x > high, high, x))


@triton.jit
def factor(suppression, presence):
    """1 - s_ij p_j, not below TINY; NaN stays."""
    value = 1.0 - suppression * presence
    return tl.where(value <= TINY, TINY, value)


@triton.jit
def coordinate_of(logit):
    """Where a score lies among the knots, as `score_coordinate`."""
    logit = clamp(logit, -LIMIT, LIMIT)
    return logit * BEND_SCALE / (tl.abs(logit) + BEND) + 0.5


@triton.jit
def locate(position, SEGMENTS: tl.constexpr):
    """The segment of a position, a valid one even for NaN, and the fraction of the segment before it."""
    start = tl.floor(position)
    start = tl.where(start > 0.0, start, 0.0)  # maxima keep or drop NaN by the version of Triton
    start = tl.where(start < SEGMENTS - 1.0, start, SEGMENTS - 1.0)
    return start.to(tl.int32), position - start


@triton.jit
def cell(knots, iou, coordinate):
    """A function of two numbers, and its slopes along both."""
    e, of_row = locate(iou * E, E)
    f, of_column = locate(coordinate * E, E)
    k = knots + e * KNOTS + f
    low, low_rise = tl.load(k), tl.load(k + 1) - tl.load(k)
    high, high_rise = tl.load(k + KNOTS), tl.load(k + KNOTS + 1) - tl.load(k + KNOTS)
    below, above = low + of_column * low_rise, high + of_column * high_rise
    return below + of_row * (above - below), (above - below) * E, (low_rise + of_row * (high_rise - low_rise)) * E


@triton.jit
def order(table, difference, before, S: tl.constexpr):
    """τ of a difference of logits, its slope along γ times that, its segment's offset and the fraction of it."""
    lead = logistic(tl.load(table + SHARPNESS) * difference)
    s, fraction = locate(lead * S, S)
    knot = CALIBRATION + S + 1 + s
    low = tl.load(table + knot)
    rise = tl.load(table + knot + 1) - low
    step = tl.where(before, tl.load(table + STEP), 0.0)
    return low + fraction * rise + step, rise * S * lead * (1.0 - lead), knot, fraction


@triton.jit
def calibrate(table, z, S: tl.constexpr):
    """φ(σ(z)) in [0, 1], its slope along z (0 where clamped), its segment's offset, the fraction of it, if clamped."""
    s, _ = locate(coordinate_of(z) * S, S)
    score = logistic(z)
    knot = CALIBRATION + s
    edge = table + CALIBRATION + 2 * (S + 1) + s
    width = tl.load(edge + 1) - tl.load(edge)
    fraction = (score - tl.load(edge)) / width
    low = tl.load(table + knot)
    rise = tl.load(table + knot + 1) - low
    value = low + fraction * rise
    clamped = (value > 1.0) | (value < 0.0)
    return clamp(value, 0.0, 1.0), rise / width * score * (1.0 - score), knot, fraction, clamped


@triton.jit
def logit_of(score, LOGITS: tl.constexpr):
    """L, as `score_logit`."""
    if not LOGITS:
        score = clamp(score, SMALLEST, 1.0 - SMALLEST)
        score = tl.log(score / (1.0 - score))
    return clamp(score, -LIMIT, LIMIT)


@triton.jit
def logit_slope(score, LOGITS: tl.constexpr):
    """The slope of L along the score, 0 beyond its limits."""
    slope, logit = 1.0, score
    if not LOGITS:
        score = clamp(score, SMALLEST, 1.0 - SMALLEST)
        slope, logit = 1.0 / (score * (1.0 - score)), tl.log(score / (1.0 - score))
    return tl.where((logit < -LIMIT) | (logit > LIMIT), 0.0, slope)


@triton.jit
def proposals(attention, boxes, mask, index, inside, HAS_MASK: tl.constexpr, LOGITS: tl.constexpr):
    """Whether proposals are real, their logits and corners."""
    real, score = load_weights(attention, mask, index, inside, HAS_MASK)
    x1, y1, x2, y2 = corners(boxes, index, real)
    return real, logit_of(score, LOGITS), x1, y1, x2, y2


@triton.jit
def precedes(a_logit, ax1, ay1, ax2, ay2, a, b_logit, bx1, by1, bx2, by2, b):
    """Whether proposal a comes before b: by score, then by x1, y1, x2, y2, then by index."""
    before = tl.where(ay2 == by2, a < b, ay2 < by2)  # the last key first
    before = tl.where(ax2 == bx2, before, ax2 < bx2)
    before = tl.where(ay1 == by1, before, ay1 < by1)
    before = tl.where(ax1 == bx1, before, ax1 < bx1)
    return tl.where(a_logit == b_logit, before, a_logit > b_logit)


@triton.jit
def suppression_backward(table, s, p1, p0, w2, w1, pair, iou, coordinate, difference, before, S: tl.constexpr):
    """From s_ij = η(IoU, 1 - coordinate of i) τ(L_j - L_i) to the gradients of η, τ, IoU, coordinate and γ (L_j - L_i).

    ``p1`` and ``p0`` are the presences j before each round, ``w2`` and ``w1`` the gradients times presences i after it.
    """
    grad = tl.where(pair, -p1 * w2 / factor(s, p1) - p0 * w1 / factor(s, p0), 0.0)
    shared, iou_slope, score_slope = cell(table + OVERLAP, iou, 1.0 - coordinate)
    ordered, ahead_slope, _knot, _fraction = order(table, difference, before, S)
    grad_shared, grad_order = grad * ordered, grad * shared
    return grad_shared, grad_order, grad_shared * iou_slope, -grad_shared * score_slope, grad_order * ahead_slope
