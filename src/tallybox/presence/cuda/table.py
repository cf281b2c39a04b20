"""A counter's table from its weights in one kernel, and back; as PyTorch operations these are about 100 launches."""

import triton
import triton.language as tl

from tallybox.kernels.cuda.boxes import sign
from tallybox.presence import weights
from tallybox.presence.cuda import image as shared
from tallybox.presence.cuda.image import KNOTS, E

CELLS = tl.constexpr(weights.CELLS * (weights.CELLS + 1))
WIDTH = tl.constexpr(1 << weights.CELLS.bit_length())  # columns of a tile that holds a row of knots
BEND_RANGE = tl.constexpr(1 + weights.LOGIT_BEND / weights.LOGIT_LIMIT)


@triton.jit
def offsets(S: tl.constexpr):
    """The offsets of φ, κ, η, the headroom, τ, the step and the sharpness in a row of `PresenceWeights.rows`."""
    kappa = 2 + S
    headroom = kappa + 2 * CELLS
    return 2, kappa, kappa + CELLS, headroom, headroom + 1, headroom + 1 + S, headroom + 2 + S


@triton.jit
def shares(weight, rest):
    """The share of each weight in the sum of all and the rest, signs aside, 0 of nothing; and the two divisors."""
    size, rest = tl.abs(weight), tl.abs(rest)
    largest = tl.maximum(tl.max(size), rest)
    largest = tl.where(largest > 0, largest, 1.0)  # dividing by it first keeps the sum finite
    total = tl.sum(size / largest) + rest / largest
    total = tl.where(total == 0, 1.0, total)
    return size / largest / total, largest, total


@triton.jit
def shares_backward(grad, weight, rest):
    """From the gradients of shares to those of weights and rest; |w| has the slope 1 at 0, so that w can grow."""
    share, largest, total = shares(weight, rest)
    common = tl.sum(grad * share)
    grad, grad_rest = (grad - common) / total / largest, -common / total / largest
    return tl.where(weight < 0, -grad, grad), tl.where(rest < 0, -grad_rest, grad_rest)


@triton.jit
def load_calibration(first, s, S: tl.constexpr):
    """The weights of φ from ``first`` on, and the same with ones where all are 0."""
    weight = tl.load(first + s, mask=s < S, other=0.0)
    some = tl.max(tl.where(weight == 0, 0.0, 1.0)) > 0  # NaN is not 0
    return weight, tl.where(some, weight, tl.where(s < S, 1.0, 0.0))


@triton.jit
def table_kernel(rows, tables, ROW_SIZE, TABLE_SIZE, S: tl.constexpr, SP: tl.constexpr):
    """Write one counter's table."""
    counter = tl.program_id(0).to(tl.int64)
    row, table = rows + counter * ROW_SIZE, tables + counter * TABLE_SIZE
    phi, kappa, eta, headroom, tau, step, sharpness = offsets(S)
    tl.store(table + shared.SLOPE, tl.load(row))
    tl.store(table + shared.SHIFT, tl.load(row + 1))
    tl.store(table + shared.SHARPNESS, tl.load(row + sharpness))

    e, f = tl.arange(0, E)[:, None], tl.arange(0, WIDTH)[None, :]
    cell, knot = e * KNOTS + f, (e + 1) * KNOTS + f
    evidence = tl.load(row + kappa + cell, mask=f < KNOTS, other=0.0)
    share = shares(tl.load(row + eta + cell, mask=f < KNOTS, other=0.0), tl.load(row + headroom))[0]
    overlap = tl.cumsum(tl.cumsum(share, axis=1), axis=0)
    tl.store(table + shared.EVIDENCE + f, f * 0.0, mask=f < KNOTS)
    tl.store(table + shared.EVIDENCE + knot, evidence, mask=f < KNOTS)
    tl.store(table + shared.OVERLAP + f, f * 0.0, mask=f < KNOTS)
    tl.store(table + shared.OVERLAP + knot, tl.where(overlap > 1, 1.0, overlap), mask=f < KNOTS)

    s = tl.arange(0, SP)
    calibration = table + shared.CALIBRATION
    order, edges = calibration + S + 1, calibration + 2 * (S + 1)
    rise = tl.cumsum(shares(load_calibration(row + phi, s, S)[1], 0.0)[0], axis=0)
    smooth = tl.cumsum(shares(tl.load(row + tau + s, mask=s < S, other=0.0), tl.load(row + step))[0], axis=0)
    bent = (2.0 * s / S - 1.0) / BEND_RANGE
    edge = shared.logistic(bent * shared.BEND / (1.0 - tl.abs(bent)))
    tl.store(calibration, 0.0)
    tl.store(calibration + 1 + s, rise / tl.sum(tl.where(s == S - 1, rise, 0.0)), mask=s < S)  # ends at exactly 1
    tl.store(order, 0.0)
    tl.store(order + 1 + s, smooth, mask=s < S)
    tl.store(table + shared.STEP, 1.0 - tl.sum(tl.where(s == S - 1, smooth, 0.0)))
    tl.store(edges + s, tl.where(s == 0, 0.0, edge), mask=s < S)
    tl.store(edges + S, 1.0)


@triton.jit
def table_backward_kernel(rows, grad_tables, grad_rows, ROW_SIZE, TABLE_SIZE, S: tl.constexpr, SP: tl.constexpr):
    """From the gradient of one counter's table to that of its weights."""
    counter = tl.program_id(0).to(tl.int64)
    row, grad_row = rows + counter * ROW_SIZE, grad_rows + counter * ROW_SIZE
    grad_table = grad_tables + counter * TABLE_SIZE
    phi, kappa, eta, headroom, tau, step, sharpness = offsets(S)
    tl.store(grad_row, tl.load(grad_table + shared.SLOPE))
    tl.store(grad_row + 1, tl.load(grad_table + shared.SHIFT))
    tl.store(grad_row + sharpness, tl.load(grad_table + shared.SHARPNESS))

    e, f = tl.arange(0, E)[:, None], tl.arange(0, WIDTH)[None, :]
    cell, knot = e * KNOTS + f, (e + 1) * KNOTS + f
    tl.store(grad_row + kappa + cell, tl.load(grad_table + shared.EVIDENCE + knot, mask=f < KNOTS), mask=f < KNOTS)
    weight, rest = tl.load(row + eta + cell, mask=f < KNOTS, other=0.0), tl.load(row + headroom)
    is_free = tl.cumsum(tl.cumsum(shares(weight, rest)[0], axis=1), axis=0) <= 1
    grad = tl.load(grad_table + shared.OVERLAP + knot, mask=(f < KNOTS) & is_free, other=0.0)
    grad = tl.cumsum(tl.cumsum(grad, axis=1, reverse=True), axis=0, reverse=True)
    grad, grad_rest = shares_backward(grad, weight, rest)
    tl.store(grad_row + eta + cell, grad, mask=f < KNOTS)
    tl.store(grad_row + headroom, grad_rest)

    s = tl.arange(0, SP)
    calibration = grad_table + shared.CALIBRATION
    weight, used = load_calibration(row + phi, s, S)
    grad = tl.cumsum(tl.load(calibration + 1 + s, mask=s < S, other=0.0), axis=0, reverse=True)
    grad, _rest = shares_backward(grad, tl.abs(used), 0.0)
    tl.store(grad_row + phi + s, grad * sign(weight), mask=s < S)
    weight, rest = tl.load(row + tau + s, mask=s < S, other=0.0), tl.load(row + step)
    grad = tl.load(calibration + S + 2 + s, mask=s < S, other=0.0)
    grad -= tl.where(s == S - 1, tl.load(grad_table + shared.STEP), 0.0)
    grad, grad_rest = shares_backward(tl.cumsum(grad, axis=0, reverse=True), weight, rest)
    tl.store(grad_row + tau + s, grad, mask=s < S)
    tl.store(grad_row + step, grad_rest)
