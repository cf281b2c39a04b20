"""The backward kernels of `tiles_forward`, in three steps: C to Sim, Sim to the rows of X, these to the inputs."""

from __future__ import annotations

import triton
import triton.language as tl

from tallybox.counter.cuda.activations import (
    CERTAINTY_OF_ATTENTION,
    CERTAINTY_OF_DISTANCE,
    CONFIDENCE,
    EDGE_OF_DISTANCE,
    EDGE_OF_RELEVANCE,
    LIKENESS,
    ROW_OF_DISTANCE,
    ROW_OF_RELEVANCE,
    look_up,
    result_gradients,
    share,
    value,
)
from tallybox.counter.cuda.tiles_forward import add_edges
from tallybox.kernels.cuda.boxes import TINY, corners, is_real, overlap, overlap_backward, sign


@triton.jit
def sum_of_tile(position, grad, s):
    """Sum over positions [B, B] of these gradients the gradient of each segment's rise: [SP]."""
    return tl.sum(tl.sum(share(position[None, :, :], s[:, None, None]) * grad[None, :, :], axis=2), axis=1)


@triton.jit
def sum_of_row(position, grad, s):
    """The same for positions [B]."""
    return tl.sum(share(position[None, :], s[:, None]) * grad[None, :], axis=1)


@triton.jit
def image_gradients(
    image, count, certainty, tables, grad_features, grad_count, MAX_OBJECTS,
    HAS_GRAD_FEATURES: tl.constexpr, HAS_GRAD_COUNT: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Return an image's gradients of the sum of C, the confidence and the certainty, and the certainty's position."""
    confidence, mean_rise, position = look_up(tl.load(certainty + image), tables, CONFIDENCE, S)
    grad_total, grad_confidence = result_gradients(
        tl.load(count + image), confidence, image, image >= 0, grad_features, grad_count, MAX_OBJECTS,
        HAS_GRAD_FEATURES, HAS_GRAD_COUNT,
    )  # fmt: skip
    return grad_total, grad_confidence, grad_confidence * mean_rise * S, position


@triton.jit
def similarity_gradient(
    image, attention, boxes, mask, count, certainty, scale, products, tables, grad_features, grad_count,
    grad_alike, grad_products, N, MAX_OBJECTS, IMAGES_PER_COUNTER,
    HAS_MASK: tl.constexpr, HAS_GRAD_FEATURES: tl.constexpr, HAS_GRAD_COUNT: tl.constexpr,
    S: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Write one image's gradients of the row sums of Sim, and of its row products times themselves."""
    of_image = image * N
    scale += of_image
    products += of_image * N
    tables += image // IMAGES_PER_COUNTER * 16 * S
    grad_alike += of_image
    grad_products += of_image * N
    tile = tl.arange(0, B)
    grad_total = image_gradients(
        image, count, certainty, tables, grad_features, grad_count, MAX_OBJECTS, HAS_GRAD_FEATURES, HAS_GRAD_COUNT, S
    )[0]
    for i0 in range(0, N, B):
        i = i0 + tile
        real_i = is_real(mask, of_image + i, i < N, HAS_MASK)
        a_i = tl.load(attention + of_image + i, mask=real_i, other=0.0)
        s_i = tl.load(scale + i, mask=real_i, other=0.0)
        inner = value(a_i * a_i, tables, EDGE_OF_RELEVANCE, S)
        inner = add_edges(
            inner, 2.0, i, real_i, a_i, of_image, attention, boxes, mask, scale, tables, N, HAS_MASK, S, B
        )
        tl.store(grad_alike + i, -grad_total * inner * s_i * s_i, mask=i < N)
    tl.debug_barrier()
    for i0 in range(0, N, B):
        i = i0 + tile
        real_i = is_real(mask, of_image + i, i < N, HAS_MASK)
        weight_i = tl.load(attention + of_image + i, mask=real_i, other=0.0)[:, None]
        alike_i = tl.load(grad_alike + i, mask=real_i, other=0.0)[:, None]
        for j0 in range(0, N, B):
            j = j0 + tile
            real_j = is_real(mask, of_image + j, j < N, HAS_MASK)
            pair = real_i[:, None] & real_j[None, :] & (i[:, None] != j[None, :])
            weight_j = tl.load(attention + of_image + j, mask=real_j, other=0.0)[None, :]
            grad = alike_i + tl.load(grad_alike + j, mask=real_j, other=0.0)[None, :]
            grad *= value(1.0 - tl.abs(weight_i - weight_j), tables, LIKENESS, S)
            grad *= tl.load(products + i[:, None] * N + j[None, :], mask=pair, other=0.0)
            inside = (i < N)[:, None] & (j < N)[None, :]
            tl.store(grad_products + i[:, None] * N + j[None, :], grad, mask=inside)


@triton.jit
def row_gradient(
    tile, rows, tables, grad_products, grad_rows, likeness_sums,
    N, IMAGES_PER_COUNTER, TILES, S: tl.constexpr, SP: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Write the gradient of one tile (i, k) of an image's X over all boxes j, and its sum for f3: all N³ steps."""
    image = tile // (TILES * TILES)
    first = tile // TILES % TILES * B
    i = first + tl.arange(0, B)
    k = tile % TILES * B + tl.arange(0, B)
    rows += image * N * N
    tables += image // IMAGES_PER_COUNTER * 16 * S
    grad_rows += image * N * N
    grad_products += image * N * N
    segment = tl.arange(0, SP)
    s = segment.to(tl.float32)[:, None, None]
    inside = (i < N)[:, None] & (k < N)[None, :]
    x_i = tl.load(rows + i[:, None] * N + k[None, :], mask=inside, other=0.0)
    grad_x = tl.zeros((B, B), tl.float32)
    sums = tl.zeros((SP, B, B), tl.float32)
    for j in range(0, N):
        product = tl.load(grad_products + j * N + i, mask=i < N, other=0.0)
        x_j = tl.load(rows + j * N + k, mask=k < N, other=0.0)[None, :]
        factor, slope, position = look_up(1.0 - tl.abs(x_i - x_j), tables, LIKENESS, S)
        others = product[:, None] / tl.maximum(factor, TINY)
        grad_x -= others * slope * sign(x_i - x_j)
        if j > first:
            once = tl.where((i < j)[:, None] & inside, others, 0.0)
            sums += share(position[None, :, :], s) * once[None, :, :]
    tl.store(grad_rows + i[:, None] * N + k[None, :], grad_x * S, mask=inside)
    total = tl.sum(tl.sum(sums, axis=2), axis=1)
    tl.store(likeness_sums + tile * S + segment, total, mask=segment < S)


@triton.jit(do_not_specialize=["N", "MAX_OBJECTS", "IMAGES_PER_COUNTER"])
def similarity_gradient_kernel(
    attention, boxes, mask, count, certainty, scale, products, tables, grad_features, grad_count,
    grad_alike, grad_products, N, MAX_OBJECTS, IMAGES_PER_COUNTER,
    HAS_MASK: tl.constexpr, HAS_GRAD_FEATURES: tl.constexpr, HAS_GRAD_COUNT: tl.constexpr,
    S: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """The first step: a block for each image."""
    similarity_gradient(
        tl.program_id(0).to(tl.int64), attention, boxes, mask, count, certainty, scale, products, tables,
        grad_features, grad_count, grad_alike, grad_products, N, MAX_OBJECTS, IMAGES_PER_COUNTER,
        HAS_MASK, HAS_GRAD_FEATURES, HAS_GRAD_COUNT, S, B,
    )  # fmt: skip


@triton.jit(do_not_specialize=["N", "IMAGES_PER_COUNTER", "TILES"])
def row_gradient_kernel(
    rows, tables, grad_products, grad_rows, likeness_sums,
    N, IMAGES_PER_COUNTER, TILES, S: tl.constexpr, SP: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """The second step: a block for each tile of each image."""
    row_gradient(
        tl.program_id(0).to(tl.int64), rows, tables, grad_products, grad_rows, likeness_sums,
        N, IMAGES_PER_COUNTER, TILES, S, SP, B,
    )  # fmt: skip


@triton.jit(
    do_not_specialize=["N", "MAX_OBJECTS", "IMAGES_PER_COUNTER", "BLOCKS_PER_COUNTER", "IMAGES_PER_BLOCK", "TILES"]
)
def pair_gradient_kernel(
    attention, boxes, mask, count, certainty, scale, products, rows, tables, grad_features, grad_count,
    grad_attention, grad_boxes, grad_alike, grad_products, grad_rows, likeness_sums, partial,
    N, MAX_OBJECTS, IMAGES_PER_COUNTER, BLOCKS_PER_COUNTER, IMAGES_PER_BLOCK, TILES,
    HAS_MASK: tl.constexpr, HAS_GRAD_FEATURES: tl.constexpr, HAS_GRAD_COUNT: tl.constexpr, ONE_TILE: tl.constexpr,
    S: tl.constexpr, SP: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Carry everything on to the weights and boxes of a block's images, and sum the gradients of their activations.

    The third step. Where an image is ONE_TILE, this block takes the two steps before as well: launches are then what
    takes longest.
    """
    counter = (tl.program_id(0) // BLOCKS_PER_COUNTER).to(tl.int64)
    first = tl.program_id(0) % BLOCKS_PER_COUNTER * IMAGES_PER_BLOCK
    if ONE_TILE:
        for of_counter in range(first, tl.minimum(first + IMAGES_PER_BLOCK, IMAGES_PER_COUNTER)):
            image = counter * IMAGES_PER_COUNTER + of_counter
            similarity_gradient(
                image, attention, boxes, mask, count, certainty, scale, products, tables, grad_features, grad_count,
                grad_alike, grad_products, N, MAX_OBJECTS, IMAGES_PER_COUNTER,
                HAS_MASK, HAS_GRAD_FEATURES, HAS_GRAD_COUNT, S, B,
            )  # fmt: skip
            tl.debug_barrier()
            row_gradient(
                image, rows, tables, grad_products, grad_rows, likeness_sums, N, IMAGES_PER_COUNTER, TILES, S, SP, B
            )
        tl.debug_barrier()
    tables += counter * 16 * S
    tile = tl.arange(0, B)
    segment = tl.arange(0, SP)
    s = segment.to(tl.float32)
    edge_a_sum = tl.zeros((SP,), tl.float32)
    edge_d_sum = tl.zeros((SP,), tl.float32)
    likeness_sum = tl.zeros((SP,), tl.float32)
    row_a_sum = tl.zeros((SP,), tl.float32)
    row_d_sum = tl.zeros((SP,), tl.float32)
    certainty_a_sum = tl.zeros((SP,), tl.float32)
    certainty_d_sum = tl.zeros((SP,), tl.float32)
    confidence_sum = tl.zeros((SP,), tl.float32)
    for of_counter in range(first, tl.minimum(first + IMAGES_PER_BLOCK, IMAGES_PER_COUNTER)):
        image = counter * IMAGES_PER_COUNTER + of_counter
        of_image = image * N
        s_of_image, alike = scale + of_image, grad_alike + of_image
        of_products, of_rows = products + of_image * N, grad_rows + of_image * N
        grad_total, grad_confidence, grad_mean, position = image_gradients(
            image, count, certainty, tables, grad_features, grad_count, MAX_OBJECTS,
            HAS_GRAD_FEATURES, HAS_GRAD_COUNT, S,
        )  # fmt: skip
        confidence_sum += tl.minimum(tl.maximum(position - s, 0.0), 1.0) * grad_confidence
        for t in range(0, TILES * TILES):
            sums = likeness_sums + (image * TILES * TILES + t) * S
            likeness_sum += tl.load(sums + segment, mask=segment < S, other=0.0)
        number = 0.0
        for i0 in range(0, N, B):
            number += tl.sum(tl.where(is_real(mask, of_image + i0 + tile, i0 + tile < N, HAS_MASK), 1.0, 0.0), axis=0)
        number = tl.maximum(number, 1.0)
        for i0 in range(0, N, B):
            i = i0 + tile
            real_i = is_real(mask, of_image + i, i < N, HAS_MASK)
            weight_i = tl.load(attention + of_image + i, mask=real_i, other=0.0)
            scale_i = tl.load(s_of_image + i, mask=real_i, other=0.0)
            _loop, loop_rise, at_loop = look_up(weight_i * weight_i, tables, EDGE_OF_RELEVANCE, S)
            edge_a_sum += sum_of_row(at_loop, grad_total * scale_i, s)
            certain_i, certain_i_rise, at_certain = look_up(weight_i, tables, CERTAINTY_OF_ATTENTION, S)
            grad_certain_i = tl.where(real_i, grad_mean / number * sign(certain_i - 0.5), 0.0)
            certainty_a_sum += sum_of_row(at_certain, grad_certain_i, s)
            grad_a = (grad_total * scale_i * loop_rise * 2.0 * weight_i + grad_certain_i * certain_i_rise) * S
            grad_x1 = tl.zeros((B,), tl.float32)
            grad_y1 = tl.zeros((B,), tl.float32)
            grad_x2 = tl.zeros((B,), tl.float32)
            grad_y2 = tl.zeros((B,), tl.float32)
            a_i, s_i = weight_i[:, None], scale_i[:, None]
            alike_i = tl.load(alike + i, mask=real_i, other=0.0)[:, None]
            x1, y1, x2, y2 = corners(boxes, of_image + i, real_i)
            ax1, ay1, ax2, ay2 = x1[:, None], y1[:, None], x2[:, None], y2[:, None]
            for j0 in range(0, N, B):
                j = j0 + tile
                real_j = is_real(mask, of_image + j, j < N, HAS_MASK)
                pair = real_i[:, None] & real_j[None, :] & (i[:, None] != j[None, :])
                a_j = tl.load(attention + of_image + j, mask=real_j, other=0.0)[None, :]
                s_j = tl.load(s_of_image + j, mask=real_j, other=0.0)[None, :]
                alike_j = tl.load(alike + j, mask=real_j, other=0.0)[None, :]
                x1, y1, x2, y2 = corners(boxes, of_image + j, real_j)
                bx1, by1, bx2, by2 = x1[None, :], y1[None, :], x2[None, :], y2[None, :]
                d, width, height, union = overlap(ax1, ay1, ax2, ay2, bx1, by1, bx2, by2)

                grad_edge = tl.where(pair, 2.0 * grad_total * s_i * s_j, 0.0)
                grad_row = tl.load(of_rows + i[:, None] * N + j[None, :], mask=pair, other=0.0)
                grad_row += tl.load(of_rows + j[None, :] * N + i[:, None], mask=pair, other=0.0)
                edge_a, edge_a_rise, at_a = look_up(a_i * a_j, tables, EDGE_OF_RELEVANCE, S)
                edge_d, edge_d_rise, at_d = look_up(d, tables, EDGE_OF_DISTANCE, S)
                row_a, row_a_rise, at_a = look_up(a_i * a_j, tables, ROW_OF_RELEVANCE, S)
                row_d, row_d_rise, at_d = look_up(d, tables, ROW_OF_DISTANCE, S)
                certain, certain_rise, at_d = look_up(d, tables, CERTAINTY_OF_DISTANCE, S)
                grad_certain = tl.where(pair, 2.0 * grad_mean / (number * number) * sign(certain - 0.5), 0.0)
                product = tl.load(of_products + i[:, None] * N + j[None, :], mask=pair, other=0.0)
                grad_close = (alike_i + alike_j) * product
                _close, close_rise, at_close = look_up(1.0 - tl.abs(a_i - a_j), tables, LIKENESS, S)
                if j0 >= i0:
                    once = tl.where(i[:, None] < j[None, :], 1.0, 0.0)
                    edge_a_sum += sum_of_tile(at_a, once * grad_edge * edge_d, s)
                    edge_d_sum += sum_of_tile(at_d, once * grad_edge * edge_a, s)
                    likeness_sum += sum_of_tile(at_close, once * grad_close, s)
                    row_a_sum += sum_of_tile(at_a, once * grad_row * row_d, s)
                    row_d_sum += sum_of_tile(at_d, once * grad_row * row_a, s)
                    certainty_d_sum += sum_of_tile(at_d, once * grad_certain, s)

                grad_relevance = (grad_edge * edge_d * edge_a_rise + grad_row * row_d * row_a_rise) * S
                grad_a += tl.sum(grad_relevance * a_j - grad_close * close_rise * S * sign(a_i - a_j), axis=1)
                grad_d = (
                    grad_edge * edge_a * edge_d_rise + grad_row * row_a * row_d_rise + grad_certain * certain_rise
                ) * S
                more_x1, more_y1, more_x2, more_y2 = overlap_backward(
                    ax1, ay1, ax2, ay2, bx1, by1, bx2, by2, width, height, union, grad_d
                )
                grad_x1 += tl.sum(more_x1, axis=1)
                grad_y1 += tl.sum(more_y1, axis=1)
                grad_x2 += tl.sum(more_x2, axis=1)
                grad_y2 += tl.sum(more_y2, axis=1)
            tl.store(grad_attention + of_image + i, grad_a, mask=i < N)
            corner = grad_boxes + (of_image + i) * 4
            tl.store(corner, grad_x1, mask=i < N)
            tl.store(corner + 1, grad_y1, mask=i < N)
            tl.store(corner + 2, grad_x2, mask=i < N)
            tl.store(corner + 3, grad_y2, mask=i < N)

    out = partial + tl.program_id(0).to(tl.int64) * 8 * S + segment
    tl.store(out + EDGE_OF_RELEVANCE * S, edge_a_sum, mask=segment < S)
    tl.store(out + EDGE_OF_DISTANCE * S, edge_d_sum, mask=segment < S)
    tl.store(out + LIKENESS * S, likeness_sum, mask=segment < S)
    tl.store(out + ROW_OF_RELEVANCE * S, row_a_sum, mask=segment < S)
    tl.store(out + ROW_OF_DISTANCE * S, row_d_sum, mask=segment < S)
    tl.store(out + CERTAINTY_OF_ATTENTION * S, certainty_a_sum, mask=segment < S)
    tl.store(out + CERTAINTY_OF_DISTANCE * S, certainty_d_sum, mask=segment < S)
    tl.store(out + CONFIDENCE * S, confidence_sum, mask=segment < S)
