"""A counter's table from its weights in one kernel, and back; as PyTorch operations these are about 100 launches."""

import triton
import triton.language as tl

from tallybox.kernels.cuda import kernel
from tallybox.kernels.cuda.boxes import sign
from tallybox.presence import weights
from tallybox.presence.cuda.image import (
    BEND,
    CALIBRATION,
    EVIDENCE,
    KNOTS,
    OVERLAP,
    SHARPNESS,
    SHIFT,
    SLOPE,
    STEP,
    E,
    logistic,
    tables_behind,
)

CELLS = tl.constexpr(weights.CELLS * (weights.CELLS + 1))
WIDTH = tl.constexpr(1 << weights.CELLS.bit_length())  # columns of a tile that holds a row of knots
BEND_RANGE = tl.constexpr(1 + weights.LOGIT_BEND / weights.LOGIT_LIMIT)


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
def load_calibration(calibration, s, S: tl.constexpr):
    """The weights of φ, and the same with ones where all are 0."""
    weight = tl.load(calibration + s, mask=s < S, other=0.0)
    some = tl.max(tl.where(weight == 0, 0.0, 1.0)) > 0  # NaN is not 0
    return weight, tl.where(some, weight, tl.where(s < S, 1.0, 0.0))


@kernel
def table_kernel(
    slope, shift, calibration, evidence, overlap, headroom, order, step, sharpness, state,
    IMAGES, STATE_SIZE, TABLE_SIZE, S: tl.constexpr, SP: tl.constexpr,
):  # fmt: skip
    """Write one counter's table."""
    counter = tl.program_id(0).to(tl.int64)
    table = tables_behind(state, IMAGES, STATE_SIZE) + counter * TABLE_SIZE
    calibration += counter * S
    evidence += counter * CELLS
    overlap += counter * CELLS
    order += counter * S
    tl.store(table + SLOPE, tl.load(slope + counter))
    tl.store(table + SHIFT, tl.load(shift + counter))
    tl.store(table + SHARPNESS, tl.load(sharpness + counter))

    e, f = tl.arange(0, E)[:, None], tl.arange(0, WIDTH)[None, :]
    cell, knot = e * KNOTS + f, (e + 1) * KNOTS + f
    kappa = tl.load(evidence + cell, mask=f < KNOTS, other=0.0)
    share = shares(tl.load(overlap + cell, mask=f < KNOTS, other=0.0), tl.load(headroom + counter))[0]
    eta = tl.cumsum(tl.cumsum(share, axis=1), axis=0)
    tl.store(table + EVIDENCE + f, f * 0.0, mask=f < KNOTS)
    tl.store(table + EVIDENCE + knot, kappa, mask=f < KNOTS)
    tl.store(table + OVERLAP + f, f * 0.0, mask=f < KNOTS)
    tl.store(table + OVERLAP + knot, tl.where(eta > 1, 1.0, eta), mask=f < KNOTS)

    s = tl.arange(0, SP)
    phi = table + CALIBRATION
    tau, edges = phi + S + 1, phi + 2 * (S + 1)
    rise = tl.cumsum(shares(load_calibration(calibration, s, S)[1], 0.0)[0], axis=0)
    smooth = shares(tl.load(order + s, mask=s < S, other=0.0), tl.load(step + counter))[0]
    smooth = tl.cumsum(smooth, axis=0)
    bent = (2.0 * s / S - 1.0) / BEND_RANGE
    edge = logistic(bent * BEND / (1.0 - tl.abs(bent)))
    tl.store(phi, 0.0)
    tl.store(phi + 1 + s, rise / tl.sum(tl.where(s == S - 1, rise, 0.0)), mask=s < S)  # ends at exactly 1
    tl.store(tau, 0.0)
    tl.store(tau + 1 + s, smooth, mask=s < S)
    tl.store(table + STEP, 1.0 - tl.sum(tl.where(s == S - 1, smooth, 0.0)))
    tl.store(edges + s, tl.where(s == 0, 0.0, edge), mask=s < S)
    tl.store(edges + S, 1.0)


@kernel
def table_backward_kernel(
    calibration, overlap, headroom, order, step, grad_tables, grad_slope, grad_shift, grad_calibration, grad_evidence,
    grad_overlap, grad_headroom, grad_order, grad_step, grad_sharpness, TABLE_SIZE, S: tl.constexpr, SP: tl.constexpr,
):  # fmt: skip
    """From the gradient of one counter's table to those of its weights."""
    counter = tl.program_id(0).to(tl.int64)
    grad_table = grad_tables + counter * TABLE_SIZE
    calibration += counter * S
    overlap += counter * CELLS
    order += counter * S
    grad_calibration += counter * S
    grad_evidence += counter * CELLS
    grad_overlap += counter * CELLS
    grad_order += counter * S
    tl.store(grad_slope + counter, tl.load(grad_table + SLOPE))
    tl.store(grad_shift + counter, tl.load(grad_table + SHIFT))
    tl.store(grad_sharpness + counter, tl.load(grad_table + SHARPNESS))

    e, f = tl.arange(0, E)[:, None], tl.arange(0, WIDTH)[None, :]
    cell, knot = e * KNOTS + f, (e + 1) * KNOTS + f
    tl.store(grad_evidence + cell, tl.load(grad_table + EVIDENCE + knot, mask=f < KNOTS), mask=f < KNOTS)
    weight, rest = tl.load(overlap + cell, mask=f < KNOTS, other=0.0), tl.load(headroom + counter)
    is_free = tl.cumsum(tl.cumsum(shares(weight, rest)[0], axis=1), axis=0) <= 1
    grad = tl.load(grad_table + OVERLAP + knot, mask=(f < KNOTS) & is_free, other=0.0)
    grad = tl.cumsum(tl.cumsum(grad, axis=1, reverse=True), axis=0, reverse=True)
    grad, grad_rest = shares_backward(grad, weight, rest)
    tl.store(grad_overlap + cell, grad, mask=f < KNOTS)
    tl.store(grad_headroom + counter, grad_rest)

    s = tl.arange(0, SP)
    grad_phi = grad_table + CALIBRATION
    weight, used = load_calibration(calibration, s, S)
    grad = tl.cumsum(tl.load(grad_phi + 1 + s, mask=s < S, other=0.0), axis=0, reverse=True)
    grad, _rest = shares_backward(grad, tl.abs(used), 0.0)
    tl.store(grad_calibration + s, grad * sign(weight), mask=s < S)
    weight, rest = tl.load(order + s, mask=s < S, other=0.0), tl.load(step + counter)
    grad = tl.load(grad_phi + S + 2 + s, mask=s < S, other=0.0)
    grad -= tl.where(s == S - 1, tl.load(grad_table + STEP), 0.0)
    grad, grad_rest = shares_backward(tl.cumsum(grad, axis=0, reverse=True), weight, rest)
    tl.store(grad_order + s, grad, mask=s < S)
    tl.store(grad_step + counter, grad_rest)
