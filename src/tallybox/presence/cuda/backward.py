"""The backward kernels, from the gradients of all results to those of logits and boxes.

One program for each image, then one for each tile of its proposals.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tallybox.kernels.cuda.boxes import box_iou, box_iou_backward, is_real, store_corners
from tallybox.presence.cuda import image as shared
from tallybox.presence.cuda.image import load


@triton.jit
def round_backward(suppression, before, weighted, j, N, B: tl.constexpr):
    """The gradients of presences j [1, B] before a round; ``weighted [N]`` are gradients times presences after it."""
    grad = tl.zeros((1, B), tl.float32)
    for i0 in range(0, N, B):
        i = i0 + tl.arange(0, B)[:, None]
        s = tl.load(suppression + i * N + j, mask=(i < N) & (j < N), other=0.0)
        grad -= tl.sum(s * load(weighted, i, N) / shared.factor(s, before), axis=0, keep_dims=True)
    return grad


@triton.jit(do_not_specialize=["N", "MAX_OBJECTS", "IMAGES_PER_COUNTER", "STATE_SIZE", "SCRATCH_SIZE", "TABLE_SIZE"])
def presence_backward_kernel(
    tables, mask, state, grad_features, grad_presence, grad_distribution, scratch,
    N, MAX_OBJECTS, IMAGES_PER_COUNTER, STATE_SIZE, SCRATCH_SIZE, TABLE_SIZE,
    HAS_MASK: tl.constexpr, S: tl.constexpr, CLASSES: tl.constexpr, ROUND_B: tl.constexpr,
):  # fmt: skip
    """From the gradients of an image's results to those of z, p⁰ and both rounds, in scratch."""
    image = tl.program_id(0).to(tl.int64)
    table = tables + image // IMAGES_PER_COUNTER * TABLE_SIZE
    first = image * N
    suppression, zs, calibrated, survival_1, survival_2, prefixes = shared.saved_image(state + image * STATE_SIZE, N)
    grad_z, grad_calibrated, weighted_2, weighted_1 = shared.image_gradients(scratch + image * SCRATCH_SIZE, N)

    # From the distribution to the presences, last first; grad_z holds their gradients for now.
    k = tl.arange(0, CLASSES)
    known = k <= MAX_OBJECTS
    grad_feature = grad_features + image * (MAX_OBJECTS + 2)
    probability = tl.load(prefixes + N * (MAX_OBJECTS + 1) + k, mask=known, other=1.0)
    by_class = tl.load(grad_feature + k, mask=known, other=0.0) / (probability + shared.FLOOR)
    by_class += tl.load(grad_distribution + image * (MAX_OBJECTS + 1) + k, mask=known, other=0.0)
    by_expected = tl.load(grad_feature + MAX_OBJECTS + 1)
    for step in range(0, N):
        n = N - 1 - step
        one_more = tl.where(k < MAX_OBJECTS, shared.neighbour(by_class, 1, CLASSES), by_class)
        prefix = tl.load(prefixes + n * (MAX_OBJECTS + 1) + k, mask=known, other=0.0)
        here = tl.load(calibrated + n) * tl.load(survival_2 + n)
        grad = by_expected + tl.load(grad_presence + first + n)
        grad += tl.sum(tl.where(known, prefix * (one_more - by_class), 0.0), axis=0)
        tl.store(grad_z + n, grad)
        tl.store(weighted_2 + n, grad * here)
        by_class = by_class * (1.0 - here) + one_more * here
    tl.debug_barrier()

    # Both rounds, last first.
    for j0 in range(0, N, ROUND_B):
        j = j0 + tl.arange(0, ROUND_B)[None, :]
        p1 = load(calibrated, j, N) * load(survival_1, j, N)
        grad_1 = round_backward(suppression, p1, weighted_2, j, N, ROUND_B)
        tl.store(weighted_1 + j, grad_1 * p1, mask=j < N)
        grad = load(grad_z, j, N) * load(survival_2, j, N) + grad_1 * load(survival_1, j, N)
        tl.store(grad_z + j, grad, mask=j < N)
    tl.debug_barrier()

    # φ and z.
    for j0 in range(0, N, ROUND_B):
        j = j0 + tl.arange(0, ROUND_B)[None, :]
        real = is_real(mask, first + j, j < N, HAS_MASK)
        grad = load(grad_z, j, N) + round_backward(suppression, load(calibrated, j, N), weighted_1, j, N, ROUND_B)
        _value, slope_of_z, _knot, _fraction, clamped = shared.calibrate(table, load(zs, j, N), S)
        grad = tl.where(real & ~clamped, grad, 0.0)
        tl.store(grad_calibrated + j, grad, mask=j < N)
        tl.store(grad_z + j, tl.where(real, grad * slope_of_z, 0.0), mask=j < N)


@triton.jit(do_not_specialize=["N", "IMAGES_PER_COUNTER", "STATE_SIZE", "SCRATCH_SIZE", "TABLE_SIZE"])
def pairs_backward_kernel(
    logit, boxes, mask, tables, state, grad_logit, grad_boxes, scratch,
    N, IMAGES_PER_COUNTER, STATE_SIZE, SCRATCH_SIZE, TABLE_SIZE, TILES,
    HAS_MASK: tl.constexpr, S: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """The gradients of some proposals, the tile i [B, 1] of an image: with all others, as target and as source."""
    image, i = shared.tile_of_block(TILES, B)
    table = tables + image // IMAGES_PER_COUNTER * TABLE_SIZE
    first = image * N
    suppression, _zs, calibrated, survival_1, _survival_2, _prefixes = shared.saved_image(state + image * STATE_SIZE, N)
    grad_z, _grad_calibrated, weighted_2, weighted_1 = shared.image_gradients(scratch + image * SCRATCH_SIZE, N)
    slope, sharpness = tl.load(table + shared.SLOPE), tl.load(table + shared.SHARPNESS)
    real_i, l_i, ax1, ay1, ax2, ay2 = shared.proposals(logit, boxes, mask, first + i, i < N, HAS_MASK)
    t_i, gz_i, p0_i = shared.coordinate_of(l_i), load(grad_z, i, N), load(calibrated, i, N)
    p1_i, w2_i, w1_i = p0_i * load(survival_1, i, N), load(weighted_2, i, N), load(weighted_1, i, N)
    grad_l = slope * gz_i
    grad_t = tl.zeros((B, 1), tl.float32)
    grad_x1, grad_y1 = tl.zeros((B, 1), tl.float32), tl.zeros((B, 1), tl.float32)
    grad_x2, grad_y2 = tl.zeros((B, 1), tl.float32), tl.zeros((B, 1), tl.float32)
    for j0 in range(0, N, B):
        j = j0 + tl.arange(0, B)[None, :]
        real_j, l_j, bx1, by1, bx2, by2 = shared.proposals(logit, boxes, mask, first + j, j < N, HAS_MASK)
        t_j, gz_j, p0_j = shared.coordinate_of(l_j), load(grad_z, j, N), load(calibrated, j, N)
        p1_j, w2_j, w1_j = p0_j * load(survival_1, j, N), load(weighted_2, j, N), load(weighted_1, j, N)
        inside = (i < N) & (j < N)
        pair = real_i & real_j & (i != j)
        iou, width, height, union = box_iou(ax1, ay1, ax2, ay2, bx1, by1, bx2, by2)
        before = shared.comes_before(l_j, bx1, by1, bx2, by2, j, l_i, ax1, ay1, ax2, ay2, i)

        # The evidence of j for i, and of i for j.
        grad_iou = tl.where(pair, gz_i * shared.cell(table + shared.EVIDENCE, iou, t_j)[1], 0.0)
        _value, iou_slope, score_slope = shared.cell(table + shared.EVIDENCE, iou, t_i)
        grad_iou += tl.where(pair, gz_j * iou_slope, 0.0)
        by_score = tl.where(pair, gz_j * score_slope, 0.0)

        # How much j suppresses i, and i suppresses j.
        s = tl.load(suppression + i * N + j, mask=inside, other=0.0)
        _shared, _order, by_iou, by_coordinate, by_difference = shared.suppression_backward(
            table, s, p1_j, p0_j, w2_i, w1_i, pair, iou, t_i, l_j - l_i, before, S
        )
        s = tl.load(suppression + j * N + i, mask=inside, other=0.0)
        _shared, _order, by_reverse_iou, _by_coordinate, by_reverse_difference = shared.suppression_backward(
            table, s, p1_i, p0_i, w2_j, w1_j, pair, iou, t_j, l_i - l_j, ~before, S
        )
        grad_iou += by_iou + by_reverse_iou
        grad_t += tl.sum(by_score + by_coordinate, axis=1, keep_dims=True)
        grad_l += sharpness * tl.sum(by_reverse_difference - by_difference, axis=1, keep_dims=True)

        of_x1, of_y1, of_x2, of_y2 = box_iou_backward(
            ax1, ay1, ax2, ay2, bx1, by1, bx2, by2, width, height, union, grad_iou
        )
        grad_x1 += tl.sum(of_x1, axis=1, keep_dims=True)
        grad_y1 += tl.sum(of_y1, axis=1, keep_dims=True)
        grad_x2 += tl.sum(of_x2, axis=1, keep_dims=True)
        grad_y2 += tl.sum(of_y2, axis=1, keep_dims=True)

    distance = tl.abs(l_i) + shared.BEND
    grad_l += grad_t * shared.BEND_SCALE * shared.BEND / (distance * distance)
    tl.store(grad_logit + first + i, tl.where(real_i, grad_l, 0.0), mask=i < N)
    store_corners(grad_boxes, first + i, i < N, grad_x1, grad_y1, grad_x2, grad_y2)
