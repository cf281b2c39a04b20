"""The gradients of `tiles`, in three steps: Sim from C, the rows of X from Sim, and the inputs from all of these."""

from __future__ import annotations

import triton
import triton.language as tl

from tallybox.counter.cuda.parts import kernel, look_up, share, value, weight_gradient
from tallybox.counter.cuda.tiles import add_edges, blocks_ended
from tallybox.kernels.cuda.boxes import TINY, corners, is_real, overlap, overlap_backward, sign


@triton.jit
def owed_by_tile(position, grad, s):
    """What values at [B, B] positions, of these gradients, owe to each segment: [SP]."""
    return tl.sum(tl.sum(share(position[None, :, :], s[:, None, None]) * grad[None, :, :], axis=2), axis=1)


@triton.jit
def owed_by_row(position, grad, s):
    """The same for positions [B]."""
    return tl.sum(share(position[None, :], s[:, None]) * grad[None, :], axis=1)


@triton.jit
def result_gradients(
    image, state, grad_result, base, rise, images, MAX_OBJECTS, OF_COUNT: tl.constexpr, S: tl.constexpr
):  # fmt: skip
    """Return an image's gradients of the sum of C, the confidence and the mean certainty, and where that lies."""
    c, mean = tl.load(state + image), tl.load(state + images + image)
    confidence, mean_rise, position = look_up(mean, base + 7 * S, rise + 7 * S, S)
    lower = tl.floor(c)
    upper = tl.minimum(lower + 1.0, MAX_OBJECTS * 1.0)
    if OF_COUNT:
        grad_c = tl.load(grad_result + image)
        grad_confidence = 0.0
    else:
        grad_lower = tl.load(grad_result + image * (MAX_OBJECTS + 1) + lower.to(tl.int32))
        grad_upper = tl.load(grad_result + image * (MAX_OBJECTS + 1) + upper.to(tl.int32))
        grad_c = confidence * (grad_upper - grad_lower)
        grad_confidence = (1.0 - (c - lower)) * grad_lower + (c - lower) * grad_upper
    return grad_c / (2.0 * c), grad_confidence, grad_confidence * mean_rise * S, position


@triton.jit
def similarity_gradient(
    image, attention, boxes, mask, state, grad_result, scratch,
    IMAGES, N, MAX_OBJECTS, IMAGES_PER_COUNTER,
    HAS_MASK: tl.constexpr, OF_COUNT: tl.constexpr, S: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Write one image's gradients of the row sums of Sim, and of its row products times themselves."""
    images = IMAGES.to(tl.int64)
    of_image = image * N
    scale = state + images * 2 + of_image
    products = state + images * (2 + N + N * N) + of_image * N
    base = state + images * (2 + N + 2 * N * N) + image // IMAGES_PER_COUNTER * 16 * S
    rise = base + 8 * S
    grad_alike = scratch + of_image
    grad_products = scratch + images * (N + N * N) + of_image * N
    tile = tl.arange(0, B)
    grad_total = result_gradients(image, state, grad_result, base, rise, images, MAX_OBJECTS, OF_COUNT, S)[0]
    for i0 in range(0, N, B):
        i = i0 + tile
        real_i = is_real(mask, of_image + i, i < N, HAS_MASK)
        a_i = tl.load(attention + of_image + i, mask=real_i, other=0.0)
        s_i = tl.load(scale + i, mask=real_i, other=0.0)
        inner = value(a_i * a_i, base, rise, S)
        inner = add_edges(
            inner, 2.0, i, real_i, a_i, of_image, attention, boxes, mask, scale, base, rise, N, HAS_MASK, S, B
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
            grad *= value(1.0 - tl.abs(weight_i - weight_j), base + 2 * S, rise + 2 * S, S)
            grad *= tl.load(products + i[:, None] * N + j[None, :], mask=pair, other=0.0)
            inside = (i < N)[:, None] & (j < N)[None, :]
            tl.store(grad_products + i[:, None] * N + j[None, :], grad, mask=inside)


@triton.jit
def row_gradient(
    tile, state, scratch,
    IMAGES, N, IMAGES_PER_COUNTER, TILES,
    S: tl.constexpr, SP: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Write the gradient of one tile (i, k) of an image's X over all boxes j, and what it owes to f3: all N³ steps."""
    image = tile // (TILES * TILES)
    first = tile // TILES % TILES * B
    i = first + tl.arange(0, B)
    k = tile % TILES * B + tl.arange(0, B)
    images = IMAGES.to(tl.int64)
    rows = state + images * (2 + N) + image * N * N
    base = state + images * (2 + N + 2 * N * N) + image // IMAGES_PER_COUNTER * 16 * S + 2 * S
    rise = base + 8 * S
    grad_rows = scratch + images * N + image * N * N
    grad_products = scratch + images * (N + N * N) + image * N * N
    segment = tl.arange(0, SP)
    s = segment.to(tl.float32)[:, None, None]
    inside = (i < N)[:, None] & (k < N)[None, :]
    x_i = tl.load(rows + i[:, None] * N + k[None, :], mask=inside, other=0.0)
    grad_x = tl.zeros((B, B), tl.float32)
    owed = tl.zeros((SP, B, B), tl.float32)
    for j in range(0, N):
        product = tl.load(grad_products + j * N + i, mask=i < N, other=0.0)
        x_j = tl.load(rows + j * N + k, mask=k < N, other=0.0)[None, :]
        factor, slope, position = look_up(1.0 - tl.abs(x_i - x_j), base, rise, S)
        others = product[:, None] / tl.maximum(factor, TINY)
        grad_x -= others * slope * sign(x_i - x_j)
        if j > first:
            once = tl.where((i < j)[:, None] & inside, others, 0.0)
            owed += share(position[None, :, :], s) * once[None, :, :]
    tl.store(grad_rows + i[:, None] * N + k[None, :], grad_x * S, mask=inside)
    out = scratch + images * (N + 2 * N * N) + tile * S + segment
    tl.store(out, tl.sum(tl.sum(owed, axis=2), axis=1), mask=segment < S)


@kernel("N")
def similarity_gradient_kernel(
    attention, boxes, mask, weight, state, grad_result, grad_attention, grad_boxes, grad_weight, scratch,
    IMAGES, N, MAX_OBJECTS, IMAGES_PER_COUNTER,
    HAS_MASK: tl.constexpr, OF_COUNT: tl.constexpr, S: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """The first step back: a block for each image."""
    similarity_gradient(
        tl.program_id(0).to(tl.int64), attention, boxes, mask, state, grad_result, scratch,
        IMAGES, N, MAX_OBJECTS, IMAGES_PER_COUNTER, HAS_MASK, OF_COUNT, S, B,
    )  # fmt: skip


@kernel("N")
def row_gradient_kernel(
    attention, boxes, mask, weight, state, grad_result, grad_attention, grad_boxes, grad_weight, scratch,
    IMAGES, N, IMAGES_PER_COUNTER, TILES,
    S: tl.constexpr, SP: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """The second: a block for each tile of each image."""
    row_gradient(
        tl.program_id(0).to(tl.int64), state, scratch, IMAGES, N, IMAGES_PER_COUNTER, TILES, S, SP, B
    )  # fmt: skip


@kernel("N")
def pair_gradient_kernel(
    attention, boxes, mask, weight, state, grad_result, grad_attention, grad_boxes, grad_weight, scratch,
    IMAGES, N, MAX_OBJECTS, IMAGES_PER_COUNTER, BLOCKS_PER_COUNTER, IMAGES_PER_BLOCK, TILES,
    HAS_MASK: tl.constexpr, OF_COUNT: tl.constexpr, ONE_TILE: tl.constexpr,
    S: tl.constexpr, SP: tl.constexpr, B: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Carry everything on to the weights and boxes of a block's images, and sum what they owe to their counter.

    The third step back. Where an image is ONE_TILE, this block takes the two before as well, and the last block of
    a counter to end the one after, with no other launch: launches are then what takes longest.
    """
    counter = (tl.program_id(0) // BLOCKS_PER_COUNTER).to(tl.int64)
    first = tl.program_id(0) % BLOCKS_PER_COUNTER * IMAGES_PER_BLOCK
    images = IMAGES.to(tl.int64)
    if ONE_TILE:
        for of_counter in range(first, tl.minimum(first + IMAGES_PER_BLOCK, IMAGES_PER_COUNTER)):
            image = counter * IMAGES_PER_COUNTER + of_counter
            similarity_gradient(
                image, attention, boxes, mask, state, grad_result, scratch,
                IMAGES, N, MAX_OBJECTS, IMAGES_PER_COUNTER, HAS_MASK, OF_COUNT, S, B,
            )  # fmt: skip
            tl.debug_barrier()
            row_gradient(image, state, scratch, IMAGES, N, IMAGES_PER_COUNTER, TILES, S, SP, B)
        tl.debug_barrier()
    base = state + images * (2 + N + 2 * N * N) + counter * 16 * S
    rise = base + 8 * S
    tile = tl.arange(0, B)
    segment = tl.arange(0, SP)
    s = segment.to(tl.float32)
    owed1 = tl.zeros((SP,), tl.float32)
    owed2 = tl.zeros((SP,), tl.float32)
    owed3 = tl.zeros((SP,), tl.float32)
    owed4 = tl.zeros((SP,), tl.float32)
    owed5 = tl.zeros((SP,), tl.float32)
    owed6 = tl.zeros((SP,), tl.float32)
    owed7 = tl.zeros((SP,), tl.float32)
    owed8 = tl.zeros((SP,), tl.float32)
    for of_counter in range(first, tl.minimum(first + IMAGES_PER_BLOCK, IMAGES_PER_COUNTER)):
        image = counter * IMAGES_PER_COUNTER + of_counter
        of_image = image * N
        scale = state + images * 2 + of_image
        products = state + images * (2 + N + N * N) + of_image * N
        grad_alike = scratch + of_image
        grad_rows = scratch + images * N + of_image * N
        grad_total, grad_confidence, grad_mean, position = result_gradients(
            image, state, grad_result, base, rise, images, MAX_OBJECTS, OF_COUNT, S
        )
        owed8 += tl.minimum(tl.maximum(position - s, 0.0), 1.0) * grad_confidence
        for t in range(0, TILES * TILES):
            place = images * (N + 2 * N * N) + (image * TILES * TILES + t) * S + segment
            owed3 += tl.load(scratch + place, mask=segment < S, other=0.0)
        number = 0.0
        for i0 in range(0, N, B):
            number += tl.sum(tl.where(is_real(mask, of_image + i0 + tile, i0 + tile < N, HAS_MASK), 1.0, 0.0), axis=0)
        number = tl.maximum(number, 1.0)
        for i0 in range(0, N, B):
            i = i0 + tile
            real_i = is_real(mask, of_image + i, i < N, HAS_MASK)
            weight_i = tl.load(attention + of_image + i, mask=real_i, other=0.0)
            scale_i = tl.load(scale + i, mask=real_i, other=0.0)
            _loop, loop_rise, at_loop = look_up(weight_i * weight_i, base, rise, S)
            owed1 += owed_by_row(at_loop, grad_total * scale_i, s)
            sure_i, sure_i_rise, at_sure = look_up(weight_i, base + 5 * S, rise + 5 * S, S)
            grad_sure_i = tl.where(real_i, grad_mean / number * sign(sure_i - 0.5), 0.0)
            owed6 += owed_by_row(at_sure, grad_sure_i, s)
            grad_a = (grad_total * scale_i * loop_rise * 2.0 * weight_i + grad_sure_i * sure_i_rise) * S
            grad_x1 = tl.zeros((B,), tl.float32)
            grad_y1 = tl.zeros((B,), tl.float32)
            grad_x2 = tl.zeros((B,), tl.float32)
            grad_y2 = tl.zeros((B,), tl.float32)
            a_i, s_i = weight_i[:, None], scale_i[:, None]
            alike_i = tl.load(grad_alike + i, mask=real_i, other=0.0)[:, None]
            x1, y1, x2, y2 = corners(boxes, of_image + i, real_i)
            ax1, ay1, ax2, ay2 = x1[:, None], y1[:, None], x2[:, None], y2[:, None]
            for j0 in range(0, N, B):
                j = j0 + tile
                real_j = is_real(mask, of_image + j, j < N, HAS_MASK)
                pair = real_i[:, None] & real_j[None, :] & (i[:, None] != j[None, :])
                a_j = tl.load(attention + of_image + j, mask=real_j, other=0.0)[None, :]
                s_j = tl.load(scale + j, mask=real_j, other=0.0)[None, :]
                alike_j = tl.load(grad_alike + j, mask=real_j, other=0.0)[None, :]
                x1, y1, x2, y2 = corners(boxes, of_image + j, real_j)
                bx1, by1, bx2, by2 = x1[None, :], y1[None, :], x2[None, :], y2[None, :]
                d, width, height, union = overlap(ax1, ay1, ax2, ay2, bx1, by1, bx2, by2)

                grad_edge = tl.where(pair, 2.0 * grad_total * s_i * s_j, 0.0)
                grad_row = tl.load(grad_rows + i[:, None] * N + j[None, :], mask=pair, other=0.0)
                grad_row += tl.load(grad_rows + j[None, :] * N + i[:, None], mask=pair, other=0.0)
                edge_a, edge_a_rise, at_a = look_up(a_i * a_j, base, rise, S)
                edge_d, edge_d_rise, at_d = look_up(d, base + S, rise + S, S)
                row_a, row_a_rise, at_a = look_up(a_i * a_j, base + 3 * S, rise + 3 * S, S)
                row_d, row_d_rise, at_d = look_up(d, base + 4 * S, rise + 4 * S, S)
                sure, sure_rise, at_d = look_up(d, base + 6 * S, rise + 6 * S, S)
                grad_sure = tl.where(pair, 2.0 * grad_mean / (number * number) * sign(sure - 0.5), 0.0)
                product = tl.load(products + i[:, None] * N + j[None, :], mask=pair, other=0.0)
                grad_close = (alike_i + alike_j) * product
                _close, close_rise, at_close = look_up(1.0 - tl.abs(a_i - a_j), base + 2 * S, rise + 2 * S, S)
                if j0 >= i0:
                    once = tl.where(i[:, None] < j[None, :], 1.0, 0.0)
                    owed1 += owed_by_tile(at_a, once * grad_edge * edge_d, s)
                    owed2 += owed_by_tile(at_d, once * grad_edge * edge_a, s)
                    owed3 += owed_by_tile(at_close, once * grad_close, s)
                    owed4 += owed_by_tile(at_a, once * grad_row * row_d, s)
                    owed5 += owed_by_tile(at_d, once * grad_row * row_a, s)
                    owed7 += owed_by_tile(at_d, once * grad_sure, s)

                grad_relevance = (grad_edge * edge_d * edge_a_rise + grad_row * row_d * row_a_rise) * S
                grad_a += tl.sum(grad_relevance * a_j - grad_close * close_rise * S * sign(a_i - a_j), axis=1)
                grad_d = (grad_edge * edge_a * edge_d_rise + grad_row * row_a * row_d_rise + grad_sure * sure_rise) * S
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

    partial = scratch + images * (N + 2 * N * N + TILES * TILES * S) + counter * BLOCKS_PER_COUNTER * 8 * S
    out = partial + tl.program_id(0) % BLOCKS_PER_COUNTER * 8 * S + segment
    tl.store(out, owed1, mask=segment < S)
    tl.store(out + S, owed2, mask=segment < S)
    tl.store(out + 2 * S, owed3, mask=segment < S)
    tl.store(out + 3 * S, owed4, mask=segment < S)
    tl.store(out + 4 * S, owed5, mask=segment < S)
    tl.store(out + 5 * S, owed6, mask=segment < S)
    tl.store(out + 6 * S, owed7, mask=segment < S)
    tl.store(out + 7 * S, owed8, mask=segment < S)
    if ONE_TILE:
        tl.debug_barrier()  # all threads have written before one of them says so, and the last to say so reads
        ended = blocks_ended(state, images, N, counter, IMAGES_PER_COUNTER, S)
        if tl.atomic_add(ended, 1.0, sem="acq_rel") == BLOCKS_PER_COUNTER - 1:
            own = counter * 8 * S
            weight_gradient(0, weight + own, partial, grad_weight + own, BLOCKS_PER_COUNTER, 8, S, SP, CHUNK)
            tl.store(ended, 0.0)  # another backward pass may follow
