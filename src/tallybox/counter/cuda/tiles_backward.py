"""The backward kernels of `tiles_forward`, in three steps: C to Sim, Sim to the rows of X, these to the inputs.

Where one tile holds an image, one kernel takes all three. Otherwise each is a launch of its own, and the second has a
block for each tile.
"""

import triton
import triton.language as tl

from tallybox.counter.cuda.activations import (
    ATTENTION_CONFIDENCE,
    CONFIDENCE,
    DISTANCE_CONFIDENCE,
    DISTANCE_EDGE,
    DISTANCE_ROW,
    RELEVANCE_EDGE,
    RELEVANCE_ROW,
    SIMILARITY,
    image_gradients,
    look_up,
    pair_gradients,
    proposal_gradients,
    share,
    value,
)
from tallybox.counter.cuda.tiles_forward import add_edges, saved_image, saved_tables
from tallybox.kernels.cuda import kernel
from tallybox.kernels.cuda.boxes import TINY, box_iou, box_iou_backward, corners, load_weights, sign, store_corners


@triton.jit
def sum_of_tile(position, grad, s):
    """Sum over positions [B, B] of these gradients the gradient of each segment's rise: [SP]."""
    return tl.sum(tl.sum(share(position[None, :, :], s[:, None, None]) * grad[None, :, :], axis=2), axis=1)


@triton.jit
def sum_of_row(position, grad, s):
    """The same for positions [B]."""
    return tl.sum(share(position[None, :], s[:, None]) * grad[None, :], axis=1)


@triton.jit
def image_scratch(scratch, image, N, TILES, S: tl.constexpr):
    """What the steps note of an image.

    The gradients of Sim's row sums [N], of its row products times themselves [N, N], of X [N, N], and of f3's rises,
    summed by tile [TILES, TILES, S].
    """
    scratch += image * (N + 2 * N * N + TILES * TILES * S)
    grad_products = scratch + N
    grad_rows = grad_products + N * N
    return scratch, grad_products, grad_rows, grad_rows + N * N


@triton.jit
def similarity_gradient(
    attention, boxes, mask, grad_features, grad_count, state, scratch, image,
    IMAGES, IMAGES_PER_COUNTER, N, MAX_OBJECTS, TILES,
    HAS_MASK: tl.constexpr, HAS_GRAD_COUNT: tl.constexpr, S: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """The first step, for an image: gradients of Sim's row sums, and of its row products times themselves."""
    of_image = image * N
    saved_count, saved_confidence_input, scale, products, _rows = saved_image(state, image, N)
    tables = saved_tables(state, image // IMAGES_PER_COUNTER, IMAGES, N, S)
    grad_sums, grad_products, _grad_rows, _similarity_grads = image_scratch(scratch, image, N, TILES, S)
    tile = tl.arange(0, B)
    grad_total = image_gradients(
        image, image >= 0, saved_count, saved_confidence_input, tables, grad_features, grad_count, MAX_OBJECTS,
        HAS_GRAD_COUNT, S,
    )[0]  # fmt: skip
    for i0 in range(0, N, B):
        i = i0 + tile
        real_i, a_i = load_weights(attention, mask, of_image + i, i < N, HAS_MASK)
        s_i = tl.load(scale + i, mask=real_i, other=0.0)
        inner = value(a_i * a_i, tables, RELEVANCE_EDGE, S)
        inner = add_edges(
            inner, 2.0, i, real_i, a_i, of_image, attention, boxes, mask, scale, tables, N, HAS_MASK, S, B
        )
        tl.store(grad_sums + i, -grad_total * inner * s_i * s_i, mask=i < N)
    tl.debug_barrier()
    for i0 in range(0, N, B):
        i = i0 + tile
        real_i, a_i = load_weights(attention, mask, of_image + i, i < N, HAS_MASK)
        grad_sum_i = tl.load(grad_sums + i, mask=real_i, other=0.0)[:, None]
        for j0 in range(0, N, B):
            j = j0 + tile
            real_j, a_j = load_weights(attention, mask, of_image + j, j < N, HAS_MASK)
            pair = real_i[:, None] & real_j[None, :] & (i[:, None] != j[None, :])
            grad = grad_sum_i + tl.load(grad_sums + j, mask=real_j, other=0.0)[None, :]
            grad *= value(1.0 - tl.abs(a_i[:, None] - a_j[None, :]), tables, SIMILARITY, S)
            grad *= tl.load(products + i[:, None] * N + j[None, :], mask=pair, other=0.0)
            inside = (i < N)[:, None] & (j < N)[None, :]
            tl.store(grad_products + i[:, None] * N + j[None, :], grad, mask=inside)


@triton.jit
def row_gradient(
    state, scratch, image, t,
    IMAGES, IMAGES_PER_COUNTER, N, TILES, S: tl.constexpr, SP: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """The second step, for tile t, that is (i, k), of an image's X: its gradient over all boxes j, and f3's sum."""
    first = t // TILES * B
    i = first + tl.arange(0, B)
    k = t % TILES * B + tl.arange(0, B)
    _count, _confidence_input, _scale, _products, rows = saved_image(state, image, N)
    tables = saved_tables(state, image // IMAGES_PER_COUNTER, IMAGES, N, S)
    _grad_sums, grad_products, grad_rows, similarity_grads = image_scratch(scratch, image, N, TILES, S)
    segment = tl.arange(0, SP)
    s = segment.to(tl.float32)[:, None, None]
    inside = (i < N)[:, None] & (k < N)[None, :]
    x_i = tl.load(rows + i[:, None] * N + k[None, :], mask=inside, other=0.0)
    grad_x = tl.zeros((B, B), tl.float32)
    sums = tl.zeros((SP, B, B), tl.float32)
    for j in range(0, N):
        product = tl.load(grad_products + j * N + i, mask=i < N, other=0.0)
        x_j = tl.load(rows + j * N + k, mask=k < N, other=0.0)[None, :]
        factor, slope, position = look_up(1.0 - tl.abs(x_i - x_j), tables, SIMILARITY, S)
        others = product[:, None] / tl.maximum(factor, TINY)
        grad_x -= others * slope * sign(x_i - x_j)
        if j > first:
            once = tl.where((i < j)[:, None] & inside, others, 0.0)
            sums += share(position[None, :, :], s) * once[None, :, :]
    tl.store(grad_rows + i[:, None] * N + k[None, :], grad_x * S, mask=inside)
    total = tl.sum(tl.sum(sums, axis=2), axis=1)
    tl.store(similarity_grads + t * S + segment, total, mask=segment < S)


@kernel
def similarity_gradient_kernel(
    attention, boxes, mask, grad_features, grad_count, state, scratch,
    IMAGES, IMAGES_PER_COUNTER, N, MAX_OBJECTS, TILES,
    HAS_MASK: tl.constexpr, HAS_GRAD_COUNT: tl.constexpr, S: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """The first step, a block for each image."""
    similarity_gradient(
        attention, boxes, mask, grad_features, grad_count, state, scratch, tl.program_id(0).to(tl.int64),
        IMAGES, IMAGES_PER_COUNTER, N, MAX_OBJECTS, TILES, HAS_MASK, HAS_GRAD_COUNT, S, B,
    )  # fmt: skip


@kernel
def row_gradient_kernel(
    state, scratch, IMAGES, IMAGES_PER_COUNTER, N, TILES, S: tl.constexpr, SP: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """The second step, a block for each tile of each image."""
    tile = tl.program_id(0).to(tl.int64)
    image, t = tile // (TILES * TILES), tile % (TILES * TILES)
    row_gradient(state, scratch, image, t, IMAGES, IMAGES_PER_COUNTER, N, TILES, S, SP, B)


@kernel
def pair_gradient_kernel(
    attention, boxes, mask, grad_features, grad_count, state, grad_attention, grad_boxes, scratch, partial,
    IMAGES, IMAGES_PER_COUNTER, IMAGES_PER_BLOCK, BLOCKS_PER_COUNTER, N, MAX_OBJECTS, TILES,
    HAS_MASK: tl.constexpr, HAS_GRAD_COUNT: tl.constexpr, S: tl.constexpr, SP: tl.constexpr, B: tl.constexpr,
    ALL_STEPS: tl.constexpr,
):  # fmt: skip
    """The third step, or all three: the weights and boxes of a block's images, and the gradients of its activations."""
    counter = (tl.program_id(0) // BLOCKS_PER_COUNTER).to(tl.int64)
    first = tl.program_id(0) % BLOCKS_PER_COUNTER * IMAGES_PER_BLOCK
    tables = saved_tables(state, counter, IMAGES, N, S)
    tile = tl.arange(0, B)
    segment = tl.arange(0, SP)
    s = segment.to(tl.float32)
    edge_a_sum, edge_d_sum = tl.zeros((SP,), tl.float32), tl.zeros((SP,), tl.float32)
    row_a_sum, row_d_sum = tl.zeros((SP,), tl.float32), tl.zeros((SP,), tl.float32)
    certainty_a_sum, certainty_d_sum = tl.zeros((SP,), tl.float32), tl.zeros((SP,), tl.float32)
    similarity_grad, confidence_sum = tl.zeros((SP,), tl.float32), tl.zeros((SP,), tl.float32)
    for of_counter in range(first, tl.minimum(first + IMAGES_PER_BLOCK, IMAGES_PER_COUNTER)):
        image = counter * IMAGES_PER_COUNTER + of_counter
        of_image = image * N
        if ALL_STEPS:
            similarity_gradient(
                attention, boxes, mask, grad_features, grad_count, state, scratch, image,
                IMAGES, IMAGES_PER_COUNTER, N, MAX_OBJECTS, TILES, HAS_MASK, HAS_GRAD_COUNT, S, B,
            )  # fmt: skip
            tl.debug_barrier()
            row_gradient(state, scratch, image, 0, IMAGES, IMAGES_PER_COUNTER, N, TILES, S, SP, B)
            tl.debug_barrier()
        saved_count, saved_confidence_input, scale, products, _rows = saved_image(state, image, N)
        grad_sums, _grad_products, grad_rows, similarity_grads = image_scratch(scratch, image, N, TILES, S)
        grad_total, grad_confidence, grad_mean, position = image_gradients(
            image, image >= 0, saved_count, saved_confidence_input, tables, grad_features, grad_count, MAX_OBJECTS,
            HAS_GRAD_COUNT, S,
        )  # fmt: skip
        confidence_sum += tl.minimum(tl.maximum(position - s, 0.0), 1.0) * grad_confidence
        for t in range(0, TILES * TILES):
            similarity_grad += tl.load(similarity_grads + t * S + segment, mask=segment < S, other=0.0)
        number = 0.0
        for i0 in range(0, N, B):
            real_i, _a = load_weights(attention, mask, of_image + i0 + tile, i0 + tile < N, HAS_MASK)
            number += tl.sum(tl.where(real_i, 1.0, 0.0), axis=0)
        number = tl.maximum(number, 1.0)
        for i0 in range(0, N, B):
            i = i0 + tile
            real_i, a_i = load_weights(attention, mask, of_image + i, i < N, HAS_MASK)
            s_i = tl.load(scale + i, mask=real_i, other=0.0)
            grad_sum_i = tl.load(grad_sums + i, mask=real_i, other=0.0)[:, None]
            grad_a, at_loop, grad_loop, at_certain, grad_certain = proposal_gradients(
                a_i, s_i, real_i, grad_total, grad_mean, number, tables, S
            )
            edge_a_sum += sum_of_row(at_loop, grad_loop, s)
            certainty_a_sum += sum_of_row(at_certain, grad_certain, s)
            grad_x1, grad_y1 = tl.zeros((B,), tl.float32), tl.zeros((B,), tl.float32)
            grad_x2, grad_y2 = tl.zeros((B,), tl.float32), tl.zeros((B,), tl.float32)
            x1, y1, x2, y2 = corners(boxes, of_image + i, real_i)
            ax1, ay1, ax2, ay2 = x1[:, None], y1[:, None], x2[:, None], y2[:, None]
            for j0 in range(0, N, B):
                j = j0 + tile
                real_j, a_j = load_weights(attention, mask, of_image + j, j < N, HAS_MASK)
                pair = real_i[:, None] & real_j[None, :] & (i[:, None] != j[None, :])
                s_j = tl.load(scale + j, mask=real_j, other=0.0)
                similarity_sum_j = tl.load(grad_sums + j, mask=real_j, other=0.0)[None, :]
                x1, y1, x2, y2 = corners(boxes, of_image + j, real_j)
                bx1, by1, bx2, by2 = x1[None, :], y1[None, :], x2[None, :], y2[None, :]
                iou, width, height, union = box_iou(ax1, ay1, ax2, ay2, bx1, by1, bx2, by2)
                grad_row = tl.load(grad_rows + i[:, None] * N + j[None, :], mask=pair, other=0.0)
                grad_row += tl.load(grad_rows + j[None, :] * N + i[:, None], mask=pair, other=0.0)
                product = tl.load(products + i[:, None] * N + j[None, :], mask=pair, other=0.0)
                grad_close = (grad_sum_i + similarity_sum_j) * product
                by_a, by_d, at_a, at_d, at_close, of_edge_a, of_edge_d, of_row_a, of_row_d, of_certain = (
                    pair_gradients(
                        a_i[:, None], a_j[None, :], s_i[:, None], s_j[None, :], 1.0 - iou, grad_row, grad_close, pair,
                        grad_total, grad_mean, number, tables, S,
                    )
                )  # fmt: skip
                if j0 >= i0:
                    once = tl.where(i[:, None] < j[None, :], 1.0, 0.0)
                    edge_a_sum += sum_of_tile(at_a, once * of_edge_a, s)
                    edge_d_sum += sum_of_tile(at_d, once * of_edge_d, s)
                    similarity_grad += sum_of_tile(at_close, once * grad_close, s)
                    row_a_sum += sum_of_tile(at_a, once * of_row_a, s)
                    row_d_sum += sum_of_tile(at_d, once * of_row_d, s)
                    certainty_d_sum += sum_of_tile(at_d, once * of_certain, s)
                grad_a += tl.sum(by_a, axis=1)
                by_x1, by_y1, by_x2, by_y2 = box_iou_backward(
                    ax1, ay1, ax2, ay2, bx1, by1, bx2, by2, width, height, union, -by_d
                )
                grad_x1 += tl.sum(by_x1, axis=1)
                grad_y1 += tl.sum(by_y1, axis=1)
                grad_x2 += tl.sum(by_x2, axis=1)
                grad_y2 += tl.sum(by_y2, axis=1)
            tl.store(grad_attention + of_image + i, grad_a, mask=i < N)
            store_corners(grad_boxes, of_image + i, i < N, grad_x1, grad_y1, grad_x2, grad_y2)

    out = partial + tl.program_id(0).to(tl.int64) * 8 * S + segment
    tl.store(out + RELEVANCE_EDGE * S, edge_a_sum, mask=segment < S)
    tl.store(out + DISTANCE_EDGE * S, edge_d_sum, mask=segment < S)
    tl.store(out + SIMILARITY * S, similarity_grad, mask=segment < S)
    tl.store(out + RELEVANCE_ROW * S, row_a_sum, mask=segment < S)
    tl.store(out + DISTANCE_ROW * S, row_d_sum, mask=segment < S)
    tl.store(out + ATTENTION_CONFIDENCE * S, certainty_a_sum, mask=segment < S)
    tl.store(out + DISTANCE_CONFIDENCE * S, certainty_d_sum, mask=segment < S)
    tl.store(out + CONFIDENCE * S, confidence_sum, mask=segment < S)
