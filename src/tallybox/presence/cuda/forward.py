"""The forward kernel."""

from __future__ import annotations

import triton
import triton.language as tl

from tallybox.kernels.cuda.boxes import box_iou
from tallybox.presence.cuda import image as shared
from tallybox.presence.cuda.image import load


@triton.jit
def one_round(suppression, calibrated, earlier, survival, N, HAS_EARLIER: tl.constexpr, B: tl.constexpr):
    """∏_j (1 - s_ij p_j) for every i; p is p⁰, times the products of the round before if there was one."""
    for i0 in range(0, N, B):
        i = i0 + tl.arange(0, B)[:, None]
        product = tl.full((B,), 1.0, tl.float32)
        for j0 in range(0, N, B):
            j = j0 + tl.arange(0, B)[None, :]
            p = load(calibrated, j, N)
            if HAS_EARLIER:
                p *= load(earlier, j, N)
            s = tl.load(suppression + i * N + j, mask=(i < N) & (j < N), other=0.0)
            product *= tl.reduce(shared.factor(s, p), 1, shared.multiply)
        tl.store(survival + i, product[:, None], mask=i < N)
    tl.debug_barrier()


@triton.jit(do_not_specialize=["N", "MAX_OBJECTS", "IMAGES_PER_COUNTER", "STATE_SIZE", "TABLE_SIZE"])
def presence_forward_kernel(
    logit, boxes, mask, tables, features, presence, distribution, state,
    N, MAX_OBJECTS, IMAGES_PER_COUNTER, STATE_SIZE, TABLE_SIZE,
    HAS_MASK: tl.constexpr, S: tl.constexpr, B: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """Features, presence and distribution of one image."""
    image = tl.program_id(0).to(tl.int64)
    table = tables + image // IMAGES_PER_COUNTER * TABLE_SIZE
    first = image * N
    suppression, zs, calibrated, survival_1, survival_2, prefixes = shared.saved_image(state + image * STATE_SIZE, N)
    slope, shift = tl.load(table + shared.SLOPE), tl.load(table + shared.SHIFT)

    for i0 in range(0, N, B):
        i = i0 + tl.arange(0, B)[:, None]
        real_i, l_i, ax1, ay1, ax2, ay2 = shared.proposals(logit, boxes, mask, first + i, i < N, HAS_MASK)
        t_i = shared.coordinate_of(l_i)
        z = slope * l_i + shift
        for j0 in range(0, N, B):
            j = j0 + tl.arange(0, B)[None, :]
            real_j, l_j, bx1, by1, bx2, by2 = shared.proposals(logit, boxes, mask, first + j, j < N, HAS_MASK)
            pair = real_i & real_j & (i != j)
            iou = box_iou(ax1, ay1, ax2, ay2, bx1, by1, bx2, by2)[0]
            before = shared.comes_before(l_j, bx1, by1, bx2, by2, j, l_i, ax1, ay1, ax2, ay2, i)
            evidence = shared.cell(table + shared.EVIDENCE, iou, shared.coordinate_of(l_j))[0]
            z += tl.sum(tl.where(pair, evidence, 0.0), axis=1, keep_dims=True)
            s = shared.cell(table + shared.OVERLAP, iou, 1.0 - t_i)[0] * shared.order(table, l_j - l_i, before, S)[0]
            tl.store(suppression + i * N + j, tl.where(pair, s, 0.0), mask=(i < N) & (j < N))
        tl.store(zs + i, z, mask=i < N)
        tl.store(calibrated + i, tl.where(real_i, shared.calibrate(table, z, S)[0], 0.0), mask=i < N)
    tl.debug_barrier()

    one_round(suppression, calibrated, calibrated, survival_1, N, False, B)
    one_round(suppression, calibrated, survival_1, survival_2, N, True, B)

    k = tl.arange(0, CLASSES)
    known = k <= MAX_OBJECTS
    so_far = tl.where(k == 0, 1.0, 0.0)
    expected = 0.0
    tl.store(prefixes + k, so_far, mask=known)
    for n in range(0, N):
        tl.debug_barrier()  # the shift by one is read from memory
        here = tl.load(calibrated + n) * tl.load(survival_2 + n)
        tl.store(presence + first + n, here)
        expected += here
        prefix = prefixes + n * (MAX_OBJECTS + 1) + k
        one_less = tl.load(prefix - 1, mask=known & (k > 0), other=0.0)
        so_far = so_far * tl.where(k == MAX_OBJECTS, 1.0, 1.0 - here) + one_less * here
        tl.store(prefix + MAX_OBJECTS + 1, so_far, mask=known)
    tl.store(distribution + image * (MAX_OBJECTS + 1) + k, so_far, mask=known)
    feature = features + image * (MAX_OBJECTS + 2)
    tl.store(feature + k, tl.log(so_far + shared.FLOOR), mask=known)
    tl.store(feature + MAX_OBJECTS + 1, expected)
