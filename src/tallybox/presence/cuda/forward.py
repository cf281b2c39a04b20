"""The forward kernels: one program for each 32 rows, then one for each image or group of images."""

import triton
import triton.language as tl

from tallybox.kernels.cuda import kernel
from tallybox.kernels.cuda.boxes import box_iou
from tallybox.presence.cuda.image import (
    EVIDENCE,
    FLOOR,
    OVERLAP,
    SHIFT,
    SLOPE,
    calibrate,
    cell,
    coordinate_of,
    factor,
    load,
    neighbour,
    order,
    precedes,
    proposals,
    rows_of_block,
    rows_of_group,
    saved_image,
    tables_behind,
)


@triton.jit
def one_round(state, first, IMAGES, N, STATE_SIZE, IS_FIRST: tl.constexpr, G: tl.constexpr, R: tl.constexpr):
    """∏_j (1 - s_ij p_j) for every i of a group's images; p is p⁰, after the first round times its products."""
    for start in range(0, G * N, R):
        image, i, here = rows_of_group(start, first, IMAGES, N, G, R)
        suppression, _zs, calibrated, survival_1, survival_2, _prefixes = saved_image(state + image * STATE_SIZE, N)
        product = tl.full((R,), 1.0, tl.float32)
        for j in range(0, N):
            p = load(calibrated, j, here)
            if not IS_FIRST:
                p *= load(survival_1, j, here)
            product *= factor(load(suppression, i * N + j, here), p)
        tl.store((survival_1 if IS_FIRST else survival_2) + i, product, mask=here)
    tl.debug_barrier()


@kernel
def pairs_forward_kernel(
    attention, boxes, mask, state, IMAGES, IMAGES_PER_COUNTER, BLOCKS_PER_COUNTER, N, STATE_SIZE, TABLE_SIZE,
    HAS_MASK: tl.constexpr, LOGITS: tl.constexpr, S: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """z, p⁰ and s of some rows i, one in each lane, over all proposals j."""
    counter, image, i, here = rows_of_block(IMAGES_PER_COUNTER, BLOCKS_PER_COUNTER, N, LANES)
    table = tables_behind(state, IMAGES, STATE_SIZE) + counter * TABLE_SIZE
    first = image * N
    suppression, zs, calibrated, _survival_1, _survival_2, _prefixes = saved_image(state + image * STATE_SIZE, N)
    real_i, l_i, ax1, ay1, ax2, ay2 = proposals(attention, boxes, mask, first + i, here, HAS_MASK, LOGITS)
    t_i = coordinate_of(l_i)
    z = tl.load(table + SLOPE) * l_i + tl.load(table + SHIFT)
    for j in range(0, N):
        real_j, l_j, bx1, by1, bx2, by2 = proposals(attention, boxes, mask, first + j, here, HAS_MASK, LOGITS)
        pair = real_i & real_j & (i != j)
        iou = box_iou(ax1, ay1, ax2, ay2, bx1, by1, bx2, by2)[0]
        before = precedes(l_j, bx1, by1, bx2, by2, j, l_i, ax1, ay1, ax2, ay2, i)
        evidence = cell(table + EVIDENCE, iou, coordinate_of(l_j))[0]
        z += tl.where(pair, evidence, 0.0)
        s = cell(table + OVERLAP, iou, 1.0 - t_i)[0] * order(table, l_j - l_i, before, S)[0]
        tl.store(suppression + i * N + j, tl.where(pair, s, 0.0), mask=here)
    tl.store(zs + i, z, mask=here)
    tl.store(calibrated + i, tl.where(real_i, calibrate(table, z, S)[0], 0.0), mask=here)


@kernel
def presence_forward_kernel(
    state, features, presence, distribution, IMAGES, N, MAX_OBJECTS, STATE_SIZE,
    CLASSES: tl.constexpr, G: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """Features, presence and distribution of G images, from z, p⁰ and s."""
    first = tl.program_id(0).to(tl.int64) * G
    one_round(state, first, IMAGES, N, STATE_SIZE, True, G, R)
    one_round(state, first, IMAGES, N, STATE_SIZE, False, G, R)

    image = first + tl.arange(0, G)[:, None]
    here = image < IMAGES
    _suppression, _zs, calibrated, _survival_1, survival_2, prefixes = saved_image(state + image * STATE_SIZE, N)
    k = tl.arange(0, CLASSES)[None, :]
    known = here & (k <= MAX_OBJECTS)
    so_far = tl.where(k == 0, 1.0, tl.zeros((G, CLASSES), tl.float32))
    expected = tl.zeros((G, 1), tl.float32)
    tl.store(prefixes + k, so_far, mask=known)
    for n in range(0, N):
        p = load(calibrated, n, here) * load(survival_2, n, here)
        tl.store(presence + image * N + n, p, mask=here)
        expected += p
        one_less = neighbour(so_far, -1, G, CLASSES)
        so_far = so_far * tl.where(k == MAX_OBJECTS, 1.0, 1.0 - p) + one_less * p
        tl.store(prefixes + (n + 1) * (MAX_OBJECTS + 1) + k, so_far, mask=known)
    tl.store(distribution + image * (MAX_OBJECTS + 1) + k, so_far, mask=known)
    feature = features + image * (MAX_OBJECTS + 2)
    tl.store(feature + k, tl.log(so_far + FLOOR), mask=known)
    tl.store(feature + MAX_OBJECTS + 1, expected, mask=here)
