"""The forward kernel."""

from __future__ import annotations

import triton
import triton.language as tl

from tallybox.counter.cuda.parts import kernel
from tallybox.kernels.cuda.boxes import TINY
from tallybox.presence.cuda.parts import (
    FLOOR,
    SHIFT,
    SLOPE,
    calibrate,
    cell,
    comes_before,
    coordinate_of,
    evidence_place,
    multiply,
    order,
    overlap_place,
    pair_of,
    proposals,
    table_size,
)


@triton.jit
def survive(suppression, calibrated, earlier, survival, N, HAS_EARLIER: tl.constexpr, B: tl.constexpr):
    """∏_j (1 - s_ij p_j) for every i; p is p⁰, times the products of the round before if there was one."""
    tile = tl.arange(0, B)
    for i0 in range(0, N, B):
        i = i0 + tile
        product = tl.full((B,), 1.0, tl.float32)
        for j0 in range(0, N, B):
            j = j0 + tile
            p = tl.load(calibrated + j, mask=j < N, other=0.0)
            if HAS_EARLIER:
                p *= tl.load(earlier + j, mask=j < N, other=0.0)
            inside = (i < N)[:, None] & (j < N)[None, :]
            s = tl.load(suppression + i[:, None] * N + j[None, :], mask=inside, other=0.0)
            product *= tl.reduce(tl.maximum(1.0 - s * p[None, :], TINY), 1, multiply)
        tl.store(survival + i, product, mask=i < N)
    tl.debug_barrier()


@kernel("N")
def presence_forward_kernel(
    attention, boxes, mask, tables, features, presence, distribution, state,
    N, MAX_OBJECTS, IMAGES_PER_COUNTER,
    HAS_MASK: tl.constexpr, LOGITS: tl.constexpr, S: tl.constexpr, B: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """Features, presence and distribution of one image."""
    image = tl.program_id(0).to(tl.int64)
    table = tables + image // IMAGES_PER_COUNTER * table_size(S)
    of_image = image * N
    suppression = state + image * (N * N + 4 * N + (N + 1) * (MAX_OBJECTS + 1))
    zs = suppression + N * N
    calibrated, survival_1, survival_2, prefixes = zs + N, zs + 2 * N, zs + 3 * N, zs + 4 * N
    slope, shift = tl.load(table + SLOPE), tl.load(table + SHIFT)
    tile = tl.arange(0, B)

    for i0 in range(0, N, B):
        i = i0 + tile
        real_i, l_i, ax1, ay1, ax2, ay2 = proposals(attention, boxes, mask, of_image + i, i < N, HAS_MASK, LOGITS)
        t_i = coordinate_of(l_i)
        z = slope * l_i + shift
        for j0 in range(0, N, B):
            j = j0 + tile
            real_j, l_j, bx1, by1, bx2, by2 = proposals(attention, boxes, mask, of_image + j, j < N, HAS_MASK, LOGITS)
            t_j = coordinate_of(l_j)
            pair = real_i[:, None] & real_j[None, :] & (i[:, None] != j[None, :])
            iou = pair_of(
                ax1[:, None], ay1[:, None], ax2[:, None], ay2[:, None],
                bx1[None, :], by1[None, :], bx2[None, :], by2[None, :],
            )[0]  # fmt: skip
            before = comes_before(
                l_j[None, :], bx1[None, :], by1[None, :], bx2[None, :], by2[None, :], j[None, :],
                l_i[:, None], ax1[:, None], ay1[:, None], ax2[:, None], ay2[:, None], i[:, None],
            )  # fmt: skip
            evidence = cell(table + evidence_place(S), iou, t_j[None, :])[0]
            z += tl.sum(tl.where(pair, evidence, 0.0), axis=1)
            stands = cell(table + overlap_place(S), iou, 1.0 - t_i[:, None])[0]
            stands *= order(table, l_j[None, :] - l_i[:, None], before, S)[0]
            inside = (i < N)[:, None] & (j < N)[None, :]
            tl.store(suppression + i[:, None] * N + j[None, :], tl.where(pair, stands, 0.0), mask=inside)
        tl.store(zs + i, z, mask=i < N)
        tl.store(calibrated + i, tl.where(real_i, calibrate(table, z, S)[0], 0.0), mask=i < N)
    tl.debug_barrier()

    survive(suppression, calibrated, calibrated, survival_1, N, False, B)
    survive(suppression, calibrated, survival_1, survival_2, N, True, B)

    k = tl.arange(0, CLASSES)
    known = k <= MAX_OBJECTS
    so_far = tl.where(k == 0, 1.0, 0.0)
    expected = 0.0
    tl.store(prefixes + k, so_far, mask=known)
    for n in range(0, N):
        tl.debug_barrier()  # the shift by one is read from memory
        here = tl.load(calibrated + n) * tl.load(survival_2 + n)
        tl.store(presence + of_image + n, here)
        expected += here
        of_n = prefixes + n * (MAX_OBJECTS + 1) + k
        one_less = tl.load(of_n - 1, mask=known & (k > 0), other=0.0)
        so_far = so_far * tl.where(k == MAX_OBJECTS, 1.0, 1.0 - here) + one_less * here
        tl.store(of_n + MAX_OBJECTS + 1, so_far, mask=known)
    tl.store(distribution + image * (MAX_OBJECTS + 1) + k, so_far, mask=known)
    of_features = features + image * (MAX_OBJECTS + 2)
    tl.store(of_features + k, tl.log(so_far + FLOOR), mask=known)
    tl.store(of_features + MAX_OBJECTS + 1, expected)
