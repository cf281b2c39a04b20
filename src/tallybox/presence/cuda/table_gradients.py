"""The gradients of tables: a warp takes 32 rows, one in each lane, with up to 32 proposals j each, again and again.

Each lane accumulates sums of its own, a column of ``sums [blocks, T, LANES]``, so the order of additions is always the
same. Addresses of sums follow from scores and boxes. These are loaded here rather than by `proposals`, because a
compiler that looks into the kernel takes tensors that such a function is given for written ones.
"""

import triton
import triton.language as tl

from tallybox.kernels.cuda import kernel
from tallybox.kernels.cuda.boxes import box_iou, is_real
from tallybox.presence.cuda.image import (
    CALIBRATION,
    EVIDENCE,
    KNOTS,
    OVERLAP,
    SHARPNESS,
    SHIFT,
    SLOPE,
    STEP,
    E,
    calibrate,
    coordinate_of,
    image_gradients,
    load,
    locate,
    logistic,
    logit_of,
    precedes,
    rows_of_counter,
    saved_image,
    suppression_backward,
    tables_behind,
)


@triton.jit
def sums_at(address, chosen, LANES: tl.constexpr):
    """Each lane's own sums so far at both ends of a segment."""
    return tl.load(address, mask=chosen, other=0.0), tl.load(address + LANES, mask=chosen, other=0.0)


@triton.jit
def add_to(address, so_far, amount, fraction, chosen, LANES: tl.constexpr):
    """Share an amount between both ends of a segment; ``so_far`` is what `sums_at` returned."""
    low, high = so_far
    tl.store(address, low + amount * (1.0 - fraction), mask=chosen)
    tl.store(address + LANES, high + amount * fraction, mask=chosen)


@kernel
def table_gradients_kernel(
    attention, boxes, mask, state, scratch, sums,
    IMAGES, IMAGES_PER_COUNTER, SUMS_PER_COUNTER, N, STATE_SIZE, SCRATCH_SIZE, TABLE_SIZE,
    HAS_MASK: tl.constexpr, LOGITS: tl.constexpr, S: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Accumulate the table's gradient over a share of a counter's images, from what the backward kernels noted."""
    block = tl.program_id(0).to(tl.int64)
    counter = block // SUMS_PER_COUNTER
    table = tables_behind(state, IMAGES, STATE_SIZE) + counter * TABLE_SIZE
    sums += block * TABLE_SIZE * LANES
    lane = tl.arange(0, LANES)
    for entry in range(0, TABLE_SIZE):
        tl.store(sums + entry * LANES + lane, tl.zeros((LANES,), tl.float32))
    by_slope, by_shift = tl.zeros((LANES,), tl.float32), tl.zeros((LANES,), tl.float32)
    by_step, by_sharpness = tl.zeros((LANES,), tl.float32), tl.zeros((LANES,), tl.float32)
    chunks = tl.cdiv(N, LANES)
    items = tl.cdiv(IMAGES_PER_COUNTER * N, LANES) * chunks
    share = tl.cdiv(items, SUMS_PER_COUNTER)
    start = block % SUMS_PER_COUNTER * share
    for item in range(start, tl.minimum(start + share, items)):
        row, j0 = item // chunks * LANES + lane, item % chunks * LANES
        image, i, here = rows_of_counter(row, counter, IMAGES_PER_COUNTER, N)
        first = image * N
        suppression, zs, calibrated, survival_1, _survival_2, _prefixes = saved_image(state + image * STATE_SIZE, N)
        grad_z, grad_calibrated, weighted_2, weighted_1 = image_gradients(scratch + image * SCRATCH_SIZE, N)
        real = is_real(mask, first + i, here, HAS_MASK)
        l_i = logit_of(tl.load(attention + first + i, mask=real, other=0.0), LOGITS)
        corner = boxes + (first + i) * 4
        ax1, ay1 = tl.load(corner, mask=real, other=0.0), tl.load(corner + 1, mask=real, other=0.0)
        ax2, ay2 = tl.load(corner + 2, mask=real, other=0.0), tl.load(corner + 3, mask=real, other=0.0)
        gz, p0 = load(grad_z, i, here), load(calibrated, i, here)
        p1 = p0 * load(survival_1, i, here)
        if j0 == 0:
            by_slope += tl.where(real, gz * l_i, 0.0)
            by_shift += tl.where(real, gz, 0.0)
            z = tl.load(zs + i, mask=here, other=0.0)
            knot = CALIBRATION + locate(coordinate_of(z) * S, S)[0]
            fraction = calibrate(table, z, S)[3]
            knot = sums + knot * LANES + lane
            add_to(knot, sums_at(knot, real, LANES), load(grad_calibrated, i, here), fraction, real, LANES)
        for j in range(j0, tl.minimum(j0 + LANES, N)):
            real_j = is_real(mask, first + j, here, HAS_MASK)
            l_j = logit_of(tl.load(attention + first + j, mask=real_j, other=0.0), LOGITS)
            corner = boxes + (first + j) * 4
            bx1, by1 = tl.load(corner, mask=real_j, other=0.0), tl.load(corner + 1, mask=real_j, other=0.0)
            bx2, by2 = tl.load(corner + 2, mask=real_j, other=0.0), tl.load(corner + 3, mask=real_j, other=0.0)
            iou = box_iou(ax1, ay1, ax2, ay2, bx1, by1, bx2, by2)[0]
            # Boxes apart matter only where a function is 0 times NaN.
            pair = real & real_j & (i != j) & ((iou != 0) | (gz != gz))
            if tl.max(pair.to(tl.int32), axis=0) > 0:
                # The evidence of j for i, and how much i suppresses j: both by j's score, so that lanes that
                # differ in the overlap alone add to neighbouring addresses.
                t_j = coordinate_of(l_j)
                w2, w1 = load(weighted_2, j, here), load(weighted_1, j, here)
                s = load(suppression, j * N + i, here)
                before = precedes(l_i, ax1, ay1, ax2, ay2, i, l_j, bx1, by1, bx2, by2, j)
                grad_shared, grad_order, _iou, _coordinate, by_difference = suppression_backward(
                    table, s, p1, p0, w2, w1, pair, iou, t_j, l_i - l_j, before, S
                )
                e, of_row = locate(iou * E, E)
                f, of_score = locate(t_j * E, E)
                g, of_rest = locate((1.0 - t_j) * E, E)
                evidence = sums + (EVIDENCE + e * KNOTS + f) * LANES + lane
                overlap = sums + (OVERLAP + e * KNOTS + g) * LANES + lane
                lead = logistic(tl.load(table + SHARPNESS) * (l_i - l_j))
                segment, of_order = locate(lead * S, S)
                knot = sums + (CALIBRATION + S + 1 + segment) * LANES + lane
                # All are loaded before one is stored: a load waits for stores that may be to its address.
                evidence_low = sums_at(evidence, pair, LANES)
                evidence_high = sums_at(evidence + KNOTS * LANES, pair, LANES)
                overlap_low = sums_at(overlap, pair, LANES)
                overlap_high = sums_at(overlap + KNOTS * LANES, pair, LANES)
                order_sums = sums_at(knot, pair, LANES)
                add_to(evidence, evidence_low, gz * (1.0 - of_row), of_score, pair, LANES)
                add_to(evidence + KNOTS * LANES, evidence_high, gz * of_row, of_score, pair, LANES)
                add_to(overlap, overlap_low, grad_shared * (1.0 - of_row), of_rest, pair, LANES)
                add_to(overlap + KNOTS * LANES, overlap_high, grad_shared * of_row, of_rest, pair, LANES)
                add_to(knot, order_sums, grad_order, of_order, pair, LANES)
                by_step += tl.where(before, grad_order, 0.0)
                by_sharpness += by_difference * (l_i - l_j)
    tl.store(sums + SLOPE * LANES + lane, by_slope)
    tl.store(sums + SHIFT * LANES + lane, by_shift)
    tl.store(sums + STEP * LANES + lane, by_step)
    tl.store(sums + SHARPNESS * LANES + lane, by_sharpness)
