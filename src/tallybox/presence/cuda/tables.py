"""From a counter's weights to its functions at their knots, and back with the gradients: one program a counter."""

from __future__ import annotations

import triton
import triton.language as tl

from tallybox.counter.cuda.parts import kernel
from tallybox.kernels.cuda.boxes import sign
from tallybox.presence.cuda.parts import (
    CALIBRATION,
    KNOTS,
    SHARPNESS,
    SHIFT,
    SLOPE,
    STEP,
    E,
    evidence_place,
    order_place,
    overlap_place,
    table_size,
)


@triton.jit
def size_and_side(weight):
    """|w|, and its slope: 1 at 0, so that what starts at 0 can grow."""
    return tl.abs(weight), tl.where(weight < 0, -1.0, 1.0)


@triton.jit
def finite_scale(largest):
    """A factor that keeps sums of sizes up to the largest finite, a power of two so that it changes no share."""
    return tl.where(largest > 1e30, 2.0**-64, 1.0)


@kernel()
def fill_tables_kernel(
    slope, shift, calibration, evidence, overlap, headroom, order, step, sharpness, tables,
    S: tl.constexpr, SP: tl.constexpr, CELLS: tl.constexpr, FP: tl.constexpr,
):  # fmt: skip
    """Write a counter's functions at their knots."""
    m = tl.program_id(0)
    table = tables + m * table_size(S)
    tl.store(table + SLOPE, tl.load(slope + m))
    tl.store(table + SHIFT, tl.load(shift + m))
    tl.store(table + SHARPNESS, tl.load(sharpness + m))

    # Knot k stands at the sum of the rises before it.
    s, k = tl.arange(0, SP)[None, :], tl.arange(0, SP)[:, None]
    rise = tl.abs(tl.load(calibration + m * S + s, mask=s < S, other=0.0))
    rise *= finite_scale(tl.max(tl.max(rise, axis=1), axis=0))
    total = tl.sum(rise, axis=1)[:, None]
    rise = tl.where(total > 0, rise / tl.where(total > 0, total, 1.0), tl.where(s < S, 1.0 / S, 0.0))
    knots = tl.where(k == S, 1.0, tl.sum(tl.where(s < k, rise, 0.0), axis=1)[:, None])
    tl.store(table + CALIBRATION + k, knots, mask=k <= S)

    rise, step_size = tl.abs(tl.load(order + m * S + s, mask=s < S, other=0.0)), tl.abs(tl.load(step + m))
    scale = finite_scale(tl.maximum(tl.max(tl.max(rise, axis=1), axis=0), step_size))
    rise *= scale
    total = tl.sum(rise, axis=1)[:, None] + step_size * scale
    rise = rise / tl.where(total > 0, total, 1.0)
    knots = tl.sum(tl.where(s < k, rise, 0.0), axis=1)[:, None]
    tl.store(table + order_place(S) + k, knots, mask=k <= S)
    tl.store(table + STEP, 1.0 - tl.sum(tl.sum(tl.where(k == 0, rise, 0.0), axis=1), axis=0))

    # η: the sum over the cells below and to the left, row by row.
    e, f = tl.arange(0, CELLS)[:, None], tl.arange(0, FP)[None, :]
    cell = m * E * KNOTS + e * KNOTS + f
    rise, rest = tl.abs(tl.load(overlap + cell, mask=f < KNOTS, other=0.0)), tl.abs(tl.load(headroom + m))
    scale = finite_scale(tl.maximum(tl.max(tl.max(rise, axis=1), axis=0), rest))
    rise *= scale
    total = tl.sum(tl.sum(rise, axis=1), axis=0) + rest * scale
    rise = rise / tl.where(total > 0, total, 1.0)
    left = tl.arange(0, FP)[None, None, :] <= tl.arange(0, FP)[None, :, None]
    by_score = tl.sum(tl.where(left, rise[:, None, :], 0.0), axis=2)
    below = tl.arange(0, CELLS)[None, :, None] <= tl.arange(0, CELLS)[:, None, None]
    knots = tl.minimum(tl.sum(tl.where(below, by_score[None, :, :], 0.0), axis=1), 1.0)
    place = (e + 1) * KNOTS + f
    tl.store(table + overlap_place(S) + place, knots, mask=f < KNOTS)
    tl.store(table + evidence_place(S) + place, tl.load(evidence + cell, mask=f < KNOTS, other=0.0), mask=f < KNOTS)
    first_row = tl.arange(0, FP)
    tl.store(table + overlap_place(S) + first_row, tl.zeros((FP,), tl.float32), mask=first_row < KNOTS)
    tl.store(table + evidence_place(S) + first_row, tl.zeros((FP,), tl.float32), mask=first_row < KNOTS)


@triton.jit
def shares_backward(grad, sizes, rest):
    """The mean gradient of shares in the sum of all sizes and the rest, weighted by them, and one over that sum."""
    total = tl.sum(tl.sum(sizes, axis=1), axis=0) + rest
    inverse = 1.0 / tl.where(total > 0, total, 1.0)
    return tl.sum(tl.sum(grad * sizes, axis=1), axis=0) * inverse, inverse


@kernel()
def tables_backward_kernel(
    calibration, overlap, headroom, order, step, owed,
    grad_slope, grad_shift, grad_calibration, grad_evidence, grad_overlap, grad_headroom, grad_order, grad_step,
    grad_sharpness,
    S: tl.constexpr, SP: tl.constexpr, CELLS: tl.constexpr, FP: tl.constexpr,
):  # fmt: skip
    """Carry what a counter's knots are owed, ``owed [M, T]``, back to its weights."""
    m = tl.program_id(0)
    grad = owed + m * table_size(S)
    tl.store(grad_slope + m, tl.load(grad + SLOPE))
    tl.store(grad_shift + m, tl.load(grad + SHIFT))
    tl.store(grad_sharpness + m, tl.load(grad + SHARPNESS))

    # A segment's share of the rise lifts every knot behind it.
    s, k = tl.arange(0, SP)[:, None], tl.arange(0, SP)[None, :]
    of_knots = tl.load(grad + CALIBRATION + k, mask=k <= S, other=0.0)
    share = tl.sum(tl.where(k > s, of_knots, 0.0), axis=1)[:, None]
    weight = tl.load(calibration + m * S + s, mask=s < S, other=0.0)
    scale = finite_scale(tl.max(tl.max(tl.abs(weight), axis=1), axis=0))
    size = tl.abs(weight) * scale
    total = tl.sum(size, axis=0)[:, None]
    inverse = tl.where(total > 0, 1.0 / tl.where(total > 0, total, 1.0), 0.0)
    weighted = tl.sum(share * size, axis=0)[:, None] * inverse
    tl.store(grad_calibration + m * S + s, (share - weighted) * sign(weight) * inverse * scale, mask=s < S)

    # The step is what the segments leave.
    of_knots = tl.load(grad + order_place(S) + k, mask=k <= S, other=0.0)
    share = tl.sum(tl.where(k > s, of_knots, 0.0), axis=1)[:, None] - tl.load(grad + STEP)
    size, side = size_and_side(tl.load(order + m * S + s, mask=s < S, other=0.0))
    step_size, step_side = size_and_side(tl.load(step + m))
    scale = finite_scale(tl.maximum(tl.max(tl.max(size, axis=1), axis=0), step_size))
    weighted, inverse = shares_backward(share, size * scale, step_size * scale)
    inverse *= scale
    tl.store(grad_order + m * S + s, (share - weighted) * side * inverse, mask=s < S)
    tl.store(grad_step + m, -weighted * step_side * inverse)

    e, f = tl.arange(0, CELLS)[:, None], tl.arange(0, FP)[None, :]
    cell = m * E * KNOTS + e * KNOTS + f
    place = (e + 1) * KNOTS + f
    tl.store(grad_evidence + cell, tl.load(grad + evidence_place(S) + place, mask=f < KNOTS, other=0.0), mask=f < KNOTS)
    of_knots = tl.load(grad + overlap_place(S) + place, mask=f < KNOTS, other=0.0)
    right = tl.arange(0, FP)[None, None, :] >= tl.arange(0, FP)[None, :, None]
    by_score = tl.sum(tl.where(right, of_knots[:, None, :], 0.0), axis=2)
    above = tl.arange(0, CELLS)[None, :, None] >= tl.arange(0, CELLS)[:, None, None]
    share = tl.sum(tl.where(above, by_score[None, :, :], 0.0), axis=1)
    size, side = size_and_side(tl.load(overlap + cell, mask=f < KNOTS, other=0.0))
    headroom_size, headroom_side = size_and_side(tl.load(headroom + m))
    scale = finite_scale(tl.maximum(tl.max(tl.max(size, axis=1), axis=0), headroom_size))
    weighted, inverse = shares_backward(share, size * scale, headroom_size * scale)
    inverse *= scale
    tl.store(grad_overlap + cell, (share - weighted) * side * inverse, mask=f < KNOTS)
    tl.store(grad_headroom + m, -weighted * headroom_side * inverse)
