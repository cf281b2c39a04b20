"""The backward kernels, from the gradients of all results to those of scores and boxes.

One program for each image or group of images, then one for each 32 rows.
"""

import triton
import triton.language as tl

from tallybox.kernels.cuda import kernel
from tallybox.kernels.cuda.boxes import box_iou, box_iou_backward, is_real, store_corners
from tallybox.presence.cuda.image import (
    BEND,
    BEND_SCALE,
    EVIDENCE,
    FLOOR,
    SHARPNESS,
    SLOPE,
    calibrate,
    cell,
    coordinate_of,
    factor,
    image_gradients,
    load,
    logit_slope,
    neighbour,
    precedes,
    proposals,
    rows_of_block,
    rows_of_group,
    saved_image,
    suppression_backward,
    tables_behind,
)


@triton.jit
def round_backward(suppression, before, weighted, j, here, N, R: tl.constexpr):
    """The gradients of presences j before a round; ``weighted [N]`` are gradients times presences after it."""
    grad = tl.zeros((R,), tl.float32)
    for i in range(0, N):
        s = load(suppression, i * N + j, here)
        grad -= s * load(weighted, i, here) / factor(s, before)
    return grad


@triton.jit
def distribution_backward(
    state, scratch, grad_features, grad_presence, grad_distribution, first,
    IMAGES, N, MAX_OBJECTS, STATE_SIZE, SCRATCH_SIZE,
    HAS_OTHER_GRADS: tl.constexpr, G: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """From the distribution to the presences, last first; grad_z holds their gradients for now."""
    image = first + tl.arange(0, G)[:, None]
    here = image < IMAGES
    _suppression, _zs, calibrated, _survival_1, survival_2, prefixes = saved_image(state + image * STATE_SIZE, N)
    grad_z, _grad_calibrated, weighted_2, _weighted_1 = image_gradients(scratch + image * SCRATCH_SIZE, N)
    k = tl.arange(0, CLASSES)[None, :]
    known = here & (k <= MAX_OBJECTS)
    grad_feature = grad_features + image * (MAX_OBJECTS + 2)
    probability = tl.load(prefixes + N * (MAX_OBJECTS + 1) + k, mask=known, other=1.0)
    by_class = load(grad_feature, k, known) / (probability + FLOOR)
    if HAS_OTHER_GRADS:
        by_class += load(grad_distribution, image * (MAX_OBJECTS + 1) + k, known)
    by_expected = load(grad_feature, MAX_OBJECTS + 1, here)
    for step in range(0, N):
        n = N - 1 - step
        one_more = tl.where(k < MAX_OBJECTS, neighbour(by_class, 1, G, CLASSES), by_class)
        prefix = load(prefixes, n * (MAX_OBJECTS + 1) + k, known)
        p = load(calibrated, n, here) * load(survival_2, n, here)
        grad = by_expected
        if HAS_OTHER_GRADS:
            grad += load(grad_presence, image * N + n, here)
        grad += tl.sum(tl.where(known, prefix * (one_more - by_class), 0.0), axis=1, keep_dims=True)
        tl.store(grad_z + n, grad, mask=here)
        tl.store(weighted_2 + n, grad * p, mask=here)
        by_class = by_class * (1.0 - p) + one_more * p
    tl.debug_barrier()


@kernel
def presence_backward_kernel(
    mask, state, grad_features, grad_presence, grad_distribution, scratch,
    IMAGES, IMAGES_PER_COUNTER, N, MAX_OBJECTS, STATE_SIZE, SCRATCH_SIZE, TABLE_SIZE,
    HAS_MASK: tl.constexpr, HAS_OTHER_GRADS: tl.constexpr, S: tl.constexpr,
    CLASSES: tl.constexpr, G: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """From the gradients of the results of G images to those of z, p⁰ and both rounds, in scratch."""
    first = tl.program_id(0).to(tl.int64) * G
    tables = tables_behind(state, IMAGES, STATE_SIZE)
    distribution_backward(
        state, scratch, grad_features, grad_presence, grad_distribution, first,
        IMAGES, N, MAX_OBJECTS, STATE_SIZE, SCRATCH_SIZE, HAS_OTHER_GRADS, G, CLASSES,
    )  # fmt: skip

    # Both rounds, last first.
    for start in range(0, G * N, R):
        image, j, here = rows_of_group(start, first, IMAGES, N, G, R)
        suppression, _zs, calibrated, survival_1, survival_2, _prefixes = saved_image(state + image * STATE_SIZE, N)
        grad_z, _grad_calibrated, weighted_2, weighted_1 = image_gradients(scratch + image * SCRATCH_SIZE, N)
        p1 = load(calibrated, j, here) * load(survival_1, j, here)
        grad_1 = round_backward(suppression, p1, weighted_2, j, here, N, R)
        tl.store(weighted_1 + j, grad_1 * p1, mask=here)
        grad = load(grad_z, j, here) * load(survival_2, j, here) + grad_1 * load(survival_1, j, here)
        tl.store(grad_z + j, grad, mask=here)
    tl.debug_barrier()

    # φ and z.
    for start in range(0, G * N, R):
        image, j, here = rows_of_group(start, first, IMAGES, N, G, R)
        suppression, zs, calibrated, _survival_1, _survival_2, _prefixes = saved_image(state + image * STATE_SIZE, N)
        grad_z, grad_calibrated, _weighted_2, weighted_1 = image_gradients(scratch + image * SCRATCH_SIZE, N)
        grad = load(grad_z, j, here)
        grad += round_backward(suppression, load(calibrated, j, here), weighted_1, j, here, N, R)
        table = tables + image // IMAGES_PER_COUNTER * TABLE_SIZE
        real = is_real(mask, image * N + j, here, HAS_MASK)
        _value, slope_of_z, _knot, _fraction, clamped = calibrate(table, load(zs, j, here), S)
        grad = tl.where(real, tl.where(clamped, 0.0, grad), 0.0)
        tl.store(grad_calibrated + j, grad, mask=here)
        tl.store(grad_z + j, tl.where(real, grad * slope_of_z, 0.0), mask=here)


@kernel
def pairs_backward_kernel(
    attention, boxes, mask, state, scratch, grad_attention, grad_boxes,
    IMAGES, IMAGES_PER_COUNTER, BLOCKS_PER_COUNTER, N, STATE_SIZE, SCRATCH_SIZE, TABLE_SIZE,
    HAS_MASK: tl.constexpr, LOGITS: tl.constexpr, S: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """The gradients of some rows i, one in each lane: with all other proposals, as target and as source."""
    counter, image, i, here = rows_of_block(IMAGES_PER_COUNTER, BLOCKS_PER_COUNTER, N, LANES)
    table = tables_behind(state, IMAGES, STATE_SIZE) + counter * TABLE_SIZE
    first = image * N
    suppression, _zs, calibrated, survival_1, _survival_2, _prefixes = saved_image(state + image * STATE_SIZE, N)
    grad_z, _grad_calibrated, weighted_2, weighted_1 = image_gradients(scratch + image * SCRATCH_SIZE, N)
    slope, sharpness = tl.load(table + SLOPE), tl.load(table + SHARPNESS)
    real_i, l_i, ax1, ay1, ax2, ay2 = proposals(attention, boxes, mask, first + i, here, HAS_MASK, LOGITS)
    t_i, gz_i, p0_i = coordinate_of(l_i), load(grad_z, i, here), load(calibrated, i, here)
    p1_i, w2_i, w1_i = p0_i * load(survival_1, i, here), load(weighted_2, i, here), load(weighted_1, i, here)
    grad_l = slope * gz_i
    grad_t = tl.zeros((LANES,), tl.float32)
    grad_x1, grad_y1 = tl.zeros((LANES,), tl.float32), tl.zeros((LANES,), tl.float32)
    grad_x2, grad_y2 = tl.zeros((LANES,), tl.float32), tl.zeros((LANES,), tl.float32)
    for j in range(0, N):
        real_j, l_j, bx1, by1, bx2, by2 = proposals(attention, boxes, mask, first + j, here, HAS_MASK, LOGITS)
        t_j, gz_j, p0_j = coordinate_of(l_j), load(grad_z, j, here), load(calibrated, j, here)
        p1_j, w2_j, w1_j = p0_j * load(survival_1, j, here), load(weighted_2, j, here), load(weighted_1, j, here)
        pair = real_i & real_j & (i != j)
        iou, width, height, union = box_iou(ax1, ay1, ax2, ay2, bx1, by1, bx2, by2)
        before = precedes(l_j, bx1, by1, bx2, by2, j, l_i, ax1, ay1, ax2, ay2, i)

        # The evidence of j for i, and of i for j.
        grad_iou = tl.where(pair, gz_i * cell(table + EVIDENCE, iou, t_j)[1], 0.0)
        _value, iou_slope, score_slope = cell(table + EVIDENCE, iou, t_i)
        grad_iou += tl.where(pair, gz_j * iou_slope, 0.0)
        by_score = tl.where(pair, gz_j * score_slope, 0.0)

        # How much j suppresses i, and i suppresses j.
        s = load(suppression, i * N + j, here)
        _shared, _order, by_iou, by_coordinate, by_difference = suppression_backward(
            table, s, p1_j, p0_j, w2_i, w1_i, pair, iou, t_i, l_j - l_i, before, S
        )
        # `before == 0`, because Triton 3.3's interpreter has no `~` for booleans.
        s = load(suppression, j * N + i, here)
        _shared, _order, by_reverse_iou, _by_coordinate, by_reverse_difference = suppression_backward(
            table, s, p1_i, p0_i, w2_j, w1_j, pair, iou, t_j, l_i - l_j, before == 0, S
        )
        grad_iou += by_iou + by_reverse_iou
        grad_t += by_score + by_coordinate
        grad_l += sharpness * (by_reverse_difference - by_difference)

        of_x1, of_y1, of_x2, of_y2 = box_iou_backward(
            ax1, ay1, ax2, ay2, bx1, by1, bx2, by2, width, height, union, grad_iou
        )
        grad_x1 += of_x1
        grad_y1 += of_y1
        grad_x2 += of_x2
        grad_y2 += of_y2

    distance = tl.abs(l_i) + BEND
    grad_l += grad_t * BEND_SCALE * BEND / (distance * distance)
    grad_l *= logit_slope(tl.load(attention + first + i, mask=real_i, other=0.5), LOGITS)
    tl.store(grad_attention + first + i, tl.where(real_i, grad_l, 0.0), mask=here)
    store_corners(grad_boxes, first + i, here, grad_x1, grad_y1, grad_x2, grad_y2)
