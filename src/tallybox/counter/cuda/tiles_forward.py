"""The forward kernel for many boxes or few images: a block of threads walks one image, in tiles of B x B boxes.

Matrices are laid out [image, i, j]. They are symmetric, so a column is read as a row. Each box is followed over all
others; what a pair adds to the gradients of activations is taken once, where i < j.
"""

import triton
import triton.language as tl

from tallybox.counter.cuda.activations import (
    ATTENTION_CONFIDENCE,
    DISTANCE_CONFIDENCE,
    DISTANCE_EDGE,
    DISTANCE_ROW,
    RELEVANCE_EDGE,
    RELEVANCE_ROW,
    SIMILARITY,
    normalise,
    value,
    write_results,
)
from tallybox.kernels.cuda import kernel
from tallybox.kernels.cuda.boxes import TINY, box_iou, corners, load_weights


@triton.jit
def saved_image(state, image, N):
    """What is saved of an image: c, p_a + p_D, s [N], the row products of Sim [N, N] and X [N, N]."""
    state += image * (2 + N + 2 * N * N)
    scale = state + 2
    return state, state + 1, scale, scale + N, scale + N + N * N


@triton.jit
def saved_tables(state, counter, IMAGES, N, S: tl.constexpr):
    """The tables of a counter's activations [2, 8, S], behind what is saved of all images."""
    return state + tl.cast(IMAGES, tl.int64) * (2 + N + 2 * N * N) + counter * 16 * S


@triton.jit
def pair_distance(boxes, index_i, index_j, real_i, real_j):
    """D of boxes i and j [B, B], exactly 0 for a box with itself."""
    ax1, ay1, ax2, ay2 = corners(boxes, index_i, real_i)
    bx1, by1, bx2, by2 = corners(boxes, index_j, real_j)
    iou = box_iou(
        ax1[:, None], ay1[:, None], ax2[:, None], ay2[:, None],
        bx1[None, :], by1[None, :], bx2[None, :], by2[None, :],
    )[0]  # fmt: skip
    return tl.where(index_i[:, None] == index_j[None, :], 0.0, 1.0 - iou)


@triton.jit
def add_edges(
    inner, times, i, real_i, a_i, of_image, attention, boxes, mask, scale, tables,
    N, HAS_MASK: tl.constexpr, S: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Add to boxes i [B] of a tile, so many times, their rows of Ã scaled by s_j: all boxes j that count with them."""
    for j0 in range(0, N, B):
        j = j0 + tl.arange(0, B)
        real_j, a_j = load_weights(attention, mask, of_image + j, j < N, HAS_MASK)
        d = pair_distance(boxes, of_image + i, of_image + j, real_i, real_j)
        edge = value(a_i[:, None] * a_j[None, :], tables, RELEVANCE_EDGE, S) * value(d, tables, DISTANCE_EDGE, S)
        inner += times * tl.sum(edge * tl.load(scale + j, mask=real_j, other=0.0)[None, :], axis=1)
    return inner


@kernel
def count_forward_kernel(
    attention, boxes, mask, weight, features, count, state,
    IMAGES, IMAGES_PER_COUNTER, N, MAX_OBJECTS,
    HAS_MASK: tl.constexpr, S: tl.constexpr, SP: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Count one image."""
    image = tl.program_id(0).to(tl.int64)
    counter = image // IMAGES_PER_COUNTER
    of_image = image * N
    saved_count, saved_confidence_input, scale, products, rows = saved_image(state, image, N)
    tables = saved_tables(state, counter, IMAGES, N, S)
    normalise(weight + counter * 8 * S, tables, S, SP)
    tile = tl.arange(0, B)

    # X = f4(A) f5(D), for all threads of this block to read, and the certainty of distances.
    from_distance = 0.0
    for i0 in range(0, N, B):
        i = i0 + tile
        real_i, a_i = load_weights(attention, mask, of_image + i, i < N, HAS_MASK)
        for j0 in range(0, N, B):
            j = j0 + tile
            real_j, a_j = load_weights(attention, mask, of_image + j, j < N, HAS_MASK)
            pair = real_i[:, None] & real_j[None, :]
            d = pair_distance(boxes, of_image + i, of_image + j, real_i, real_j)
            x = value(a_i[:, None] * a_j[None, :], tables, RELEVANCE_ROW, S) * value(d, tables, DISTANCE_ROW, S)
            inside = (i < N)[:, None] & (j < N)[None, :]
            tl.store(rows + i[:, None] * N + j[None, :], tl.where(pair, x, 0.0), mask=inside)
            certain = tl.abs(value(d, tables, DISTANCE_CONFIDENCE, S) - 0.5)
            from_distance += tl.sum(tl.sum(tl.where(pair, certain, 0.0), axis=1), axis=0)
    tl.debug_barrier()

    # The row products of Sim, once for each pair of tiles.
    for i0 in range(0, N, B):
        i = i0 + tile
        for j0 in range(i0, N, B):
            j = j0 + tile
            product = tl.full((B, B), 1.0, tl.float32)
            for k in range(0, N):
                x_i = tl.load(rows + k * N + i, mask=i < N, other=0.0)[:, None]
                x_j = tl.load(rows + k * N + j, mask=j < N, other=0.0)[None, :]
                product *= tl.maximum(value(1.0 - tl.abs(x_i - x_j), tables, SIMILARITY, S), TINY)
            inside = (i < N)[:, None] & (j < N)[None, :]
            tl.store(products + i[:, None] * N + j[None, :], product, mask=inside)
            tl.store(products + j[None, :] * N + i[:, None], product, mask=inside)
    tl.debug_barrier()

    # s = 1 / row sums of Sim.
    for i0 in range(0, N, B):
        i = i0 + tile
        real_i, a_i = load_weights(attention, mask, of_image + i, i < N, HAS_MASK)
        similarity_sum = tl.zeros((B,), tl.float32)
        for j0 in range(0, N, B):
            j = j0 + tile
            real_j, a_j = load_weights(attention, mask, of_image + j, j < N, HAS_MASK)
            pair = real_i[:, None] & real_j[None, :]
            similarity = tl.load(products + i[:, None] * N + j[None, :], mask=pair, other=0.0)
            similarity *= value(1.0 - tl.abs(a_i[:, None] - a_j[None, :]), tables, SIMILARITY, S)
            similarity_sum += tl.sum(tl.where(pair & (i[:, None] == j[None, :]), 1.0, similarity), axis=1)
        tl.store(scale + i, tl.where(real_i, 1.0 / tl.where(real_i, similarity_sum, 1.0), 0.0), mask=i < N)
    tl.debug_barrier()

    # The sum of C, and the certainty of the weights.
    total = 0.0
    from_attention = 0.0
    number = 0.0
    for i0 in range(0, N, B):
        i = i0 + tile
        real_i, a_i = load_weights(attention, mask, of_image + i, i < N, HAS_MASK)
        inner = value(a_i * a_i, tables, RELEVANCE_EDGE, S)
        inner = add_edges(
            inner, 1.0, i, real_i, a_i, of_image, attention, boxes, mask, scale, tables, N, HAS_MASK, S, B
        )
        total += tl.sum(inner * tl.load(scale + i, mask=real_i, other=0.0), axis=0)
        certain = tl.abs(value(a_i, tables, ATTENTION_CONFIDENCE, S) - 0.5)
        from_attention += tl.sum(tl.where(real_i, certain, 0.0), axis=0)
        number += tl.sum(tl.where(real_i, 1.0, 0.0), axis=0)

    one = tl.arange(0, 1)  # an image, as a tensor of one
    write_results(
        total + one, number, from_attention, from_distance, image + one, one == 0, tables, features,
        count, saved_count + one, saved_confidence_input + one, MAX_OBJECTS, S,
    )  # fmt: skip
