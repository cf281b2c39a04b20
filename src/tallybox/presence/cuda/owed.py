"""What the knots of κ, η, τ and φ are owed: a warp walks images, each lane a proposal and its sums of its own.

A lane adds to its own column of ``owed [blocks, T, LANES]`` alone, so the order of additions is always the same.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tallybox.counter.cuda.parts import kernel
from tallybox.presence.cuda.parts import (
    CALIBRATION,
    KNOTS,
    SHARPNESS,
    SHIFT,
    SLOPE,
    STEP,
    E,
    calibrate,
    cell,
    comes_before,
    coordinate_of,
    evidence_place,
    locate,
    order,
    order_place,
    overlap_place,
    pair_of,
    proposals,
    stands_backward,
    table_size,
)


@triton.jit
def add_to(sums, entry, amount, chosen, LANES: tl.constexpr):
    """Add to an entry of each lane's own sums."""
    place = sums + entry * LANES + tl.arange(0, LANES)
    tl.store(place, tl.load(place, mask=chosen, other=0.0) + amount, mask=chosen)


@triton.jit
def add_to_segment(sums, entry, place, amount, chosen, LANES: tl.constexpr):
    """Share an amount between both ends of a segment."""
    add_to(sums, entry, amount * (1.0 - place), chosen, LANES)
    add_to(sums, entry + 1, amount * place, chosen, LANES)


@triton.jit
def add_to_cell(sums, overlaps, coordinates, amount, chosen, LANES: tl.constexpr):
    """Share an amount among the four knots of a cell."""
    e, at = locate(overlaps * E, E)
    f, place = locate(coordinates * E, E)
    add_to_segment(sums, e * KNOTS + f, place, amount * (1.0 - at), chosen, LANES)
    add_to_segment(sums, (e + 1) * KNOTS + f, place, amount * at, chosen, LANES)


@kernel("N")
def owed_kernel(
    attention, boxes, mask, tables, state, scratch, owed,
    N, MAX_OBJECTS, IMAGES_PER_COUNTER, BLOCKS_PER_COUNTER,
    HAS_MASK: tl.constexpr, LOGITS: tl.constexpr, S: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """What a share of a counter's images owes to its table; gradients are those that the backward kernel left."""
    block = tl.program_id(0).to(tl.int64)
    counter = block // BLOCKS_PER_COUNTER
    table = tables + counter * table_size(S)
    sums = owed + block * table_size(S) * LANES
    lane = tl.arange(0, LANES)
    for entry in range(0, table_size(S)):
        tl.store(sums + entry * LANES + lane, tl.zeros((LANES,), tl.float32))
    slope_owed, shift_owed = tl.zeros((LANES,), tl.float32), tl.zeros((LANES,), tl.float32)
    step_owed, sharpness_owed = tl.zeros((LANES,), tl.float32), tl.zeros((LANES,), tl.float32)
    share = tl.cdiv(IMAGES_PER_COUNTER, BLOCKS_PER_COUNTER)
    first = block % BLOCKS_PER_COUNTER * share
    last = tl.minimum(first + share, IMAGES_PER_COUNTER)
    for image in range(counter * IMAGES_PER_COUNTER + first, counter * IMAGES_PER_COUNTER + last):
        of_image = image * N
        suppression = state + image * (N * N + 4 * N + (N + 1) * (MAX_OBJECTS + 1))
        zs = suppression + N * N
        calibrated, survival_1 = zs + N, zs + 2 * N
        grad_z = scratch + image * (4 * N + 2 * (MAX_OBJECTS + 1))
        weighted_2, weighted_1, grad_calibrated = grad_z + N, grad_z + 2 * N, grad_z + 3 * N
        for i0 in range(0, N, LANES):
            i = i0 + lane
            inside = i < N
            real, l_i, ax1, ay1, ax2, ay2 = proposals(attention, boxes, mask, of_image + i, inside, HAS_MASK, LOGITS)
            gz = tl.load(grad_z + i, mask=inside, other=0.0)
            p0 = tl.load(calibrated + i, mask=inside, other=0.0)
            p1 = p0 * tl.load(survival_1 + i, mask=inside, other=0.0)
            slope_owed += tl.where(real, gz * l_i, 0.0)
            shift_owed += tl.where(real, gz, 0.0)
            z = tl.load(zs + i, mask=inside, other=0.0)
            _value, _slope, s, place, _outside = calibrate(table, z, S)
            grad = tl.load(grad_calibrated + i, mask=inside, other=0.0)
            add_to_segment(sums + CALIBRATION * LANES, s, place, grad, real, LANES)
            for j in range(0, N):
                real_j, l_j, bx1, by1, bx2, by2 = proposals(
                    attention, boxes, mask, of_image + j + lane * 0, inside | True, HAS_MASK, LOGITS
                )
                iou = pair_of(ax1, ay1, ax2, ay2, bx1, by1, bx2, by2)[0]
                pair = real & real_j & (i != j) & (iou != 0)
                if tl.max(pair.to(tl.int32), axis=0) > 0:
                    # What j says about i, and how much i stands for j: both by j's score, so that lanes that differ
                    # in the overlap alone add to neighbouring places.
                    t_j = coordinate_of(l_j)
                    add_to_cell(sums + evidence_place(S) * LANES, iou, t_j, gz, pair, LANES)
                    w2, w1 = tl.load(weighted_2 + j), tl.load(weighted_1 + j)
                    stands = tl.load(suppression + j * N + i, mask=inside, other=0.0)
                    grad_stands = tl.where(pair, stands_backward(stands, p1, p0, w2, w1), 0.0)
                    before = comes_before(l_i, ax1, ay1, ax2, ay2, i, l_j, bx1, by1, bx2, by2, j)
                    shared = cell(table + overlap_place(S), iou, 1.0 - t_j)[0]
                    ordered, ahead_slope, ahead = order(table, l_i - l_j, before, S)
                    add_to_cell(sums + overlap_place(S) * LANES, iou, 1.0 - t_j, grad_stands * ordered, pair, LANES)
                    grad_ordered = grad_stands * shared
                    t, there = locate(ahead * S, S)
                    add_to_segment(sums + order_place(S) * LANES, t, there, grad_ordered, pair, LANES)
                    step_owed += tl.where(before, grad_ordered, 0.0)
                    sharpness_owed += grad_ordered * ahead_slope * ahead * (1.0 - ahead) * (l_i - l_j)
    tl.store(sums + SLOPE * LANES + lane, slope_owed)
    tl.store(sums + SHIFT * LANES + lane, shift_owed)
    tl.store(sums + STEP * LANES + lane, step_owed)
    tl.store(sums + SHARPNESS * LANES + lane, sharpness_owed)
