"""The backward kernel, from the gradients of presence and distribution to those of logits, boxes and tables."""

from __future__ import annotations

import triton
import triton.language as tl

from tallybox.counter.cuda.parts import kernel
from tallybox.kernels.cuda.boxes import TINY, is_real, overlap_backward
from tallybox.presence.cuda.parts import (
    BEND,
    BEND_SCALE,
    FLOOR,
    SHARPNESS,
    SLOPE,
    calibrate,
    cell,
    comes_before,
    coordinate_of,
    evidence_place,
    logit_of,
    order,
    overlap_place,
    pair_of,
    proposals,
    stands_backward,
    table_size,
)


@triton.jit
def load_tile(matrix, row, column, N, WHICH: tl.constexpr):
    """A tile of a matrix [N, N]: rows down and columns across, or ("transposed") the other way round."""
    inside = (row < N)[:, None] & (column < N)[None, :]
    place = row[:, None] * N + column[None, :]
    if WHICH == "transposed":
        place = column[None, :] * N + row[:, None]
    return tl.load(matrix + place, mask=inside, other=0.0)


@triton.jit
def survive_backward(suppression, given, weighted, j, N, B: tl.constexpr):
    """What presences j, the given [B], are owed by the products that they are factors of."""
    owed = tl.zeros((B,), tl.float32)
    for i0 in range(0, N, B):
        i = i0 + tl.arange(0, B)
        s = load_tile(suppression, i, j, N, "as it is")
        w = tl.load(weighted + i, mask=i < N, other=0.0)
        owed -= tl.sum(s * w[:, None] / tl.maximum(1.0 - s * given[None, :], TINY), axis=0)
    return owed


@kernel("N")
def presence_backward_kernel(
    attention, boxes, mask, tables, state, grad_features, grad_presence, grad_distribution,
    grad_attention, grad_boxes, scratch,
    N, MAX_OBJECTS, IMAGES_PER_COUNTER,
    HAS_MASK: tl.constexpr, LOGITS: tl.constexpr, S: tl.constexpr,
    HAS_GRAD_PRESENCE: tl.constexpr, HAS_GRAD_DISTRIBUTION: tl.constexpr, B: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """The gradients of one image; in scratch, those that `owed_kernel` goes on from."""
    image = tl.program_id(0).to(tl.int64)
    table = tables + image // IMAGES_PER_COUNTER * table_size(S)
    of_image = image * N
    suppression = state + image * (N * N + 4 * N + (N + 1) * (MAX_OBJECTS + 1))
    zs = suppression + N * N
    calibrated, survival_1, survival_2, prefixes = zs + N, zs + 2 * N, zs + 3 * N, zs + 4 * N
    grad_z = scratch + image * (4 * N + 2 * (MAX_OBJECTS + 1))
    weighted_2, weighted_1, grad_calibrated, turns = grad_z + N, grad_z + 2 * N, grad_z + 3 * N, grad_z + 4 * N
    tile = tl.arange(0, B)

    # From the distribution to the presences, last first; grad_z keeps their gradients for a while.
    k = tl.arange(0, CLASSES)
    known = k <= MAX_OBJECTS
    of_features = grad_features + image * (MAX_OBJECTS + 2)
    probability = tl.load(prefixes + N * (MAX_OBJECTS + 1) + k, mask=known, other=1.0)
    by_class = tl.load(of_features + k, mask=known, other=0.0) / (probability + FLOOR)
    if HAS_GRAD_DISTRIBUTION:
        by_class += tl.load(grad_distribution + image * (MAX_OBJECTS + 1) + k, mask=known, other=0.0)
    by_expected = tl.load(of_features + MAX_OBJECTS + 1)
    for back in range(0, N):
        n = N - 1 - back
        turn = turns + back % 2 * (MAX_OBJECTS + 1) + k
        tl.store(turn, by_class, mask=known)
        tl.debug_barrier()  # the shift by one is read from memory
        one_more = tl.where(k < MAX_OBJECTS, tl.load(turn + 1, mask=k < MAX_OBJECTS, other=0.0), by_class)
        so_far = tl.load(prefixes + n * (MAX_OBJECTS + 1) + k, mask=known, other=0.0)
        here = tl.load(calibrated + n) * tl.load(survival_2 + n)
        grad = by_expected
        if HAS_GRAD_PRESENCE:
            grad += tl.load(grad_presence + of_image + n)
        grad += tl.sum(tl.where(known, so_far * (one_more - by_class), 0.0), axis=0)
        tl.store(grad_z + n, grad)
        tl.store(weighted_2 + n, grad * here)
        by_class = by_class * (1.0 - here) + one_more * here
    tl.debug_barrier()

    # Both rounds, last first.
    for j0 in range(0, N, B):
        j = j0 + tile
        p = tl.load(calibrated + j, mask=j < N, other=0.0) * tl.load(survival_1 + j, mask=j < N, other=0.0)
        grad_1 = survive_backward(suppression, p, weighted_2, j, N, B)
        tl.store(weighted_1 + j, grad_1 * p, mask=j < N)
        survived_1 = tl.load(survival_1 + j, mask=j < N, other=0.0)
        survived_2 = tl.load(survival_2 + j, mask=j < N, other=0.0)
        grad_2 = tl.load(grad_z + j, mask=j < N, other=0.0)
        tl.store(grad_z + j, grad_2 * survived_2 + grad_1 * survived_1, mask=j < N)
    tl.debug_barrier()

    # φ, and what it is given.
    for j0 in range(0, N, B):
        j = j0 + tile
        real = is_real(mask, of_image + j, j < N, HAS_MASK)
        p = tl.load(calibrated + j, mask=j < N, other=0.0)
        grad = tl.load(grad_z + j, mask=j < N, other=0.0)
        grad = tl.where(real, grad + survive_backward(suppression, p, weighted_1, j, N, B), 0.0)
        z = tl.load(zs + j, mask=j < N, other=0.0)
        _value, slope_of_z, _s, _place, outside = calibrate(table, z, S)
        grad = tl.where(outside, 0.0, grad)
        tl.store(grad_calibrated + j, grad, mask=j < N)
        tl.store(grad_z + j, grad * slope_of_z, mask=j < N)
    tl.debug_barrier()

    # Pairs: each proposal over all others, what it says about them and they about it.
    slope = tl.load(table + SLOPE)
    sharpness = tl.load(table + SHARPNESS)
    for i0 in range(0, N, B):
        i = i0 + tile
        real_i, l_i, ax1, ay1, ax2, ay2 = proposals(attention, boxes, mask, of_image + i, i < N, HAS_MASK, LOGITS)
        t_i = coordinate_of(l_i)
        gz_i = tl.load(grad_z + i, mask=i < N, other=0.0)
        p0_i = tl.load(calibrated + i, mask=i < N, other=0.0)
        p1_i = p0_i * tl.load(survival_1 + i, mask=i < N, other=0.0)
        w2_i = tl.load(weighted_2 + i, mask=i < N, other=0.0)
        w1_i = tl.load(weighted_1 + i, mask=i < N, other=0.0)
        grad_l = slope * gz_i
        grad_t = tl.zeros((B,), tl.float32)
        grad_x1, grad_y1 = tl.zeros((B,), tl.float32), tl.zeros((B,), tl.float32)
        grad_x2, grad_y2 = tl.zeros((B,), tl.float32), tl.zeros((B,), tl.float32)
        for j0 in range(0, N, B):
            j = j0 + tile
            real_j, l_j, bx1, by1, bx2, by2 = proposals(attention, boxes, mask, of_image + j, j < N, HAS_MASK, LOGITS)
            t_j = coordinate_of(l_j)
            gz_j = tl.load(grad_z + j, mask=j < N, other=0.0)
            p0_j = tl.load(calibrated + j, mask=j < N, other=0.0)
            p1_j = p0_j * tl.load(survival_1 + j, mask=j < N, other=0.0)
            w2_j = tl.load(weighted_2 + j, mask=j < N, other=0.0)
            w1_j = tl.load(weighted_1 + j, mask=j < N, other=0.0)
            pair = real_i[:, None] & real_j[None, :] & (i[:, None] != j[None, :])
            iou, width, height, union = pair_of(
                ax1[:, None], ay1[:, None], ax2[:, None], ay2[:, None],
                bx1[None, :], by1[None, :], bx2[None, :], by2[None, :],
            )  # fmt: skip
            before = comes_before(
                l_j[None, :], bx1[None, :], by1[None, :], bx2[None, :], by2[None, :], j[None, :],
                l_i[:, None], ax1[:, None], ay1[:, None], ax2[:, None], ay2[:, None], i[:, None],
            )  # fmt: skip
            difference = l_j[None, :] - l_i[:, None]

            # κ: what j says about i, and i about j.
            grad_evidence = tl.where(pair, gz_i[:, None], 0.0)
            grad_iou = grad_evidence * cell(table + evidence_place(S), iou, t_j[None, :])[1]
            _value, iou_slope, score_slope = cell(table + evidence_place(S), iou, t_i[:, None])
            grad_iou += tl.where(pair, gz_j[None, :] * iou_slope, 0.0)
            grad_t += tl.sum(tl.where(pair, gz_j[None, :] * score_slope, 0.0), axis=1)

            # How much j stands for i.
            s = load_tile(suppression, i, j, N, "as it is")
            grad = stands_backward(s, p1_j[None, :], p0_j[None, :], w2_i[:, None], w1_i[:, None])
            grad = tl.where(pair, grad, 0.0)
            shared, iou_slope, score_slope = cell(table + overlap_place(S), iou, 1.0 - t_i[:, None])
            ordered, ahead_slope, ahead = order(table, difference, before, S)
            grad_shared, grad_ordered = grad * ordered, grad * shared
            grad_iou += grad_shared * iou_slope
            grad_t -= tl.sum(grad_shared * score_slope, axis=1)
            grad_ahead = grad_ordered * ahead_slope * ahead * (1.0 - ahead)
            grad_l -= sharpness * tl.sum(grad_ahead, axis=1)

            # How much i stands for j.
            s = load_tile(suppression, i, j, N, "transposed")
            grad = stands_backward(s, p1_i[:, None], p0_i[:, None], w2_j[None, :], w1_j[None, :])
            grad = tl.where(pair, grad, 0.0)
            shared, iou_slope, score_slope = cell(table + overlap_place(S), iou, 1.0 - t_j[None, :])
            ordered, ahead_slope, ahead = order(table, -difference, ~before, S)
            grad_iou += grad * ordered * iou_slope
            grad_l += sharpness * tl.sum(grad * shared * ahead_slope * ahead * (1.0 - ahead), axis=1)

            of_x1, of_y1, of_x2, of_y2 = overlap_backward(
                ax1[:, None], ay1[:, None], ax2[:, None], ay2[:, None],
                bx1[None, :], by1[None, :], bx2[None, :], by2[None, :],
                width, height, union, -grad_iou,
            )  # fmt: skip
            grad_x1 += tl.sum(of_x1, axis=1)
            grad_y1 += tl.sum(of_y1, axis=1)
            grad_x2 += tl.sum(of_x2, axis=1)
            grad_y2 += tl.sum(of_y2, axis=1)

        distance = tl.abs(l_i) + BEND
        grad_l += grad_t * BEND_SCALE * BEND / (distance * distance)
        score = tl.load(attention + of_image + i, mask=real_i, other=0.0)
        grad_l *= logit_of(score, LOGITS)[1]
        tl.store(grad_attention + of_image + i, tl.where(real_i, grad_l, 0.0), mask=i < N)
        corner = grad_boxes + (of_image + i) * 4
        tl.store(corner, grad_x1, mask=i < N)
        tl.store(corner + 1, grad_y1, mask=i < N)
        tl.store(corner + 2, grad_x2, mask=i < N)
        tl.store(corner + 3, grad_y2, mask=i < N)
