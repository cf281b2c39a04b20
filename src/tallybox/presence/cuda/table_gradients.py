"""The gradients of tables, summed over pairs of proposals without a scattered write.

What a pair adds to the four knots around it is its gradient times how near it is to their rows and columns. Summed over
P pairs that is a product of matrices, ``[knots, P]`` with ``[P, knots]``, in the same order at every call.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tallybox.kernels.cuda.boxes import box_iou
from tallybox.presence.cuda import image as shared
from tallybox.presence.cuda.image import KNOTS

WIDTH = tl.constexpr(16)  # the smallest side of a product of matrices


@triton.jit
def nearness(knot, segment, fraction):
    """How much of a value at ``fraction`` of a segment belongs to each knot."""
    return tl.where(knot == segment, 1.0 - fraction, tl.where(knot == segment + 1, fraction, 0.0))


@triton.jit(
    do_not_specialize=[
        "N", "IMAGES_PER_COUNTER", "BLOCKS_PER_COUNTER", "STATE_SIZE", "SCRATCH_SIZE", "TABLE_SIZE"
    ]
)  # fmt: skip
def table_gradients_kernel(
    logit, boxes, mask, tables, state, scratch, sums,
    N, IMAGES_PER_COUNTER, BLOCKS_PER_COUNTER, STATE_SIZE, SCRATCH_SIZE, TABLE_SIZE,
    HAS_MASK: tl.constexpr, S: tl.constexpr, SEGMENT_KNOTS: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """Sum the table's gradient over a share of a counter's pairs, from what the backward kernels noted."""
    block = tl.program_id(0).to(tl.int64)
    counter = block // BLOCKS_PER_COUNTER
    table = tables + counter * TABLE_SIZE
    row, column = tl.arange(0, WIDTH)[:, None], tl.arange(0, WIDTH)[None, :]
    along = tl.arange(0, SEGMENT_KNOTS)
    grad_evidence = tl.zeros((WIDTH, WIDTH), tl.float32)
    grad_overlap = tl.zeros((WIDTH, WIDTH), tl.float32)
    grad_calibration, grad_order = tl.zeros((SEGMENT_KNOTS,), tl.float32), tl.zeros((SEGMENT_KNOTS,), tl.float32)
    grad_slope, grad_shift, grad_step, grad_sharpness = 0.0, 0.0, 0.0, 0.0
    total = IMAGES_PER_COUNTER.to(tl.int64) * N * N
    share = tl.cdiv(tl.cdiv(total, PAIRS), BLOCKS_PER_COUNTER) * PAIRS
    start = block % BLOCKS_PER_COUNTER * share
    for first in range(start, tl.minimum(start + share, total), PAIRS):
        pair = first + tl.arange(0, PAIRS)
        image = counter * IMAGES_PER_COUNTER + pair // (N * N)
        i, j = (pair // N % N).to(tl.int32), (pair % N).to(tl.int32)
        inside = pair < total
        suppression, zs, calibrated, survival_1, _survival_2, _prefixes = shared.saved_image(
            state + image * STATE_SIZE, N
        )
        grad_z, grad_calibrated, weighted_2, weighted_1 = shared.image_gradients(scratch + image * SCRATCH_SIZE, N)
        real_i, l_i, ax1, ay1, ax2, ay2 = shared.proposals(logit, boxes, mask, image * N + i, inside, HAS_MASK)
        real_j, l_j, bx1, by1, bx2, by2 = shared.proposals(logit, boxes, mask, image * N + j, inside, HAS_MASK)
        gz = tl.load(grad_z + i, mask=real_i, other=0.0)

        # A proposal with itself: its score.
        itself = real_i & (i == j)
        z = tl.load(zs + i, mask=itself, other=0.0)
        _value, _slope, knot, fraction, _clamped = shared.calibrate(table, z, S)
        grad = tl.load(grad_calibrated + i, mask=itself, other=0.0)
        near = nearness(along[:, None], (knot - shared.CALIBRATION)[None, :], fraction[None, :])
        grad_calibration += tl.sum(near * grad[None, :], axis=1)
        grad_slope += tl.sum(tl.where(itself, gz * l_i, 0.0))
        grad_shift += tl.sum(tl.where(itself, gz, 0.0))

        # The evidence of j for i, and how much i suppresses j: both by j's score.
        iou = box_iou(ax1, ay1, ax2, ay2, bx1, by1, bx2, by2)[0]
        # Boxes apart matter only where a function is 0 times NaN.
        others = real_i & real_j & (i != j) & ((iou != 0) | (gz != gz))
        gz = tl.where(others, gz, 0.0)
        t_j = shared.coordinate_of(l_j)
        p0 = tl.load(calibrated + i, mask=others, other=0.0)
        p1 = p0 * tl.load(survival_1 + i, mask=others, other=0.0)
        w2, w1 = tl.load(weighted_2 + j, mask=others, other=0.0), tl.load(weighted_1 + j, mask=others, other=0.0)
        s = tl.load(suppression + j * N + i, mask=others, other=0.0)
        before = shared.comes_before(l_i, ax1, ay1, ax2, ay2, i, l_j, bx1, by1, bx2, by2, j)
        by_overlap, by_order, _iou, _coordinate, by_difference = shared.suppression_backward(
            table, s, p1, p0, w2, w1, others, iou, t_j, l_i - l_j, before, S
        )
        e, of_row = shared.locate(iou * shared.E, shared.E)
        near_row = nearness(row, e[None, :], of_row[None, :])
        f, of_column = shared.locate(t_j * shared.E, shared.E)
        near_column = nearness(column, f[:, None], of_column[:, None])
        grad_evidence += tl.dot(near_row * gz[None, :], near_column, input_precision="tf32x3")
        f, of_column = shared.locate((1.0 - t_j) * shared.E, shared.E)
        near_column = nearness(column, f[:, None], of_column[:, None])
        grad_overlap += tl.dot(near_row * by_overlap[None, :], near_column, input_precision="tf32x3")
        _value, _slope, knot, fraction = shared.order(table, l_i - l_j, before, S)
        near = nearness(along[:, None], (knot - shared.CALIBRATION - S - 1)[None, :], fraction[None, :])
        grad_order += tl.sum(near * by_order[None, :], axis=1)
        grad_step += tl.sum(tl.where(before, by_order, 0.0))
        grad_sharpness += tl.sum(by_difference * (l_i - l_j))
    own = sums + block * TABLE_SIZE
    tl.store(own + shared.SLOPE, grad_slope)
    tl.store(own + shared.SHIFT, grad_shift)
    tl.store(own + shared.STEP, grad_step)
    tl.store(own + shared.SHARPNESS, grad_sharpness)
    is_knot = (row < KNOTS) & (column < KNOTS)
    tl.store(own + shared.EVIDENCE + row * KNOTS + column, grad_evidence, mask=is_knot)
    tl.store(own + shared.OVERLAP + row * KNOTS + column, grad_overlap, mask=is_knot)
    calibration = own + shared.CALIBRATION
    tl.store(calibration + along, grad_calibration, mask=along <= S)
    tl.store(calibration + S + 1 + along, grad_order, mask=along <= S)
    tl.store(calibration + 2 * (S + 1) + along, along * 0.0, mask=along <= S)
