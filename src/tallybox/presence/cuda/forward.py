"""The forward kernels: one program for each tile of an image's proposals, then one for each image."""

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


@triton.jit(do_not_specialize=["N", "IMAGES_PER_COUNTER", "STATE_SIZE", "TABLE_SIZE"])
def pairs_forward_kernel(
    logit, boxes, mask, tables, state,
    N, IMAGES_PER_COUNTER, STATE_SIZE, TABLE_SIZE, TILES,
    HAS_MASK: tl.constexpr, S: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """z, p⁰ and the rows of s of some proposals, the tile i [B, 1] of an image."""
    image, i = shared.tile_of_block(TILES, B)
    table = tables + image // IMAGES_PER_COUNTER * TABLE_SIZE
    first = image * N
    suppression, zs, calibrated, _survival_1, _survival_2, _prefixes = shared.saved_image(state + image * STATE_SIZE, N)
    real_i, l_i, ax1, ay1, ax2, ay2 = shared.proposals(logit, boxes, mask, first + i, i < N, HAS_MASK)
    t_i = shared.coordinate_of(l_i)
    z = tl.load(table + shared.SLOPE) * l_i + tl.load(table + shared.SHIFT)
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


@triton.jit(do_not_specialize=["N", "MAX_OBJECTS", "STATE_SIZE"])
def presence_forward_kernel(
    features, presence, distribution, state, N, MAX_OBJECTS, STATE_SIZE, CLASSES: tl.constexpr, ROUND_B: tl.constexpr,
):  # fmt: skip
    """Features, presence and distribution of one image, from z, p⁰ and s."""
    image = tl.program_id(0).to(tl.int64)
    suppression, _zs, calibrated, survival_1, survival_2, prefixes = shared.saved_image(state + image * STATE_SIZE, N)
    one_round(suppression, calibrated, calibrated, survival_1, N, False, ROUND_B)
    one_round(suppression, calibrated, survival_1, survival_2, N, True, ROUND_B)

    k = tl.arange(0, CLASSES)
    known = k <= MAX_OBJECTS
    so_far = tl.where(k == 0, 1.0, 0.0)
    expected = 0.0
    tl.store(prefixes + k, so_far, mask=known)
    for n in range(0, N):
        here = tl.load(calibrated + n) * tl.load(survival_2 + n)
        tl.store(presence + image * N + n, here)
        expected += here
        one_less = shared.neighbour(so_far, -1, CLASSES)
        so_far = so_far * tl.where(k == MAX_OBJECTS, 1.0, 1.0 - here) + one_less * here
        tl.store(prefixes + (n + 1) * (MAX_OBJECTS + 1) + k, so_far, mask=known)
    tl.store(distribution + image * (MAX_OBJECTS + 1) + k, so_far, mask=known)
    feature = features + image * (MAX_OBJECTS + 2)
    tl.store(feature + k, tl.log(so_far + shared.FLOOR), mask=known)
    tl.store(feature + MAX_OBJECTS + 1, expected)
