"""Kernels for few boxes: each lane of a warp counts an image of its own, pair by pair.

Matrices are laid out [i, j, image], so that neighbouring lanes read neighbouring numbers. In `products`, index (i, j)
with i < j holds the row product of Sim, and (j, i) holds Ã. What is saved has the order and size of `tiles_forward`.
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
    nan_among,
    normalise,
    pair_gradients,
    proposal_gradients,
    share,
    value,
    write_results,
)
from tallybox.counter.cuda.tiles_forward import saved_tables
from tallybox.kernels.cuda import kernel
from tallybox.kernels.cuda.boxes import TINY, box_iou, box_iou_backward, corners, load_weights, sign, store_corners


@triton.jit
def images_of_block(IMAGES, IMAGES_PER_COUNTER, BLOCKS_PER_COUNTER, LANES: tl.constexpr):
    """Return the counter of this block, its images [LANES], which of them there are, and the stride of matrices."""
    counter = (tl.program_id(0) // BLOCKS_PER_COUNTER).to(tl.int64)
    of_counter = tl.program_id(0) % BLOCKS_PER_COUNTER * LANES + tl.arange(0, LANES)
    image, here = counter * IMAGES_PER_COUNTER + of_counter, of_counter < IMAGES_PER_COUNTER
    return counter, image, here, tl.cast(IMAGES, tl.int64)


@triton.jit
def saved_images(state, image, images, N):
    """What is saved of these images: c, p_a + p_D, s [N], `products` [N, N] and X [N, N], with the stride images."""
    state += image
    scale = state + 2 * images
    products = scale + N * images
    return state, state + images, scale, products, products + N * N * images


@kernel
def count_forward_kernel(
    attention, boxes, mask, weight, features, count, state,
    IMAGES, IMAGES_PER_COUNTER, BLOCKS_PER_COUNTER, MAX_OBJECTS, N,
    HAS_MASK: tl.constexpr, S: tl.constexpr, SP: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Count the images of a counter, LANES of them in each block."""
    counter, image, here, images = images_of_block(IMAGES, IMAGES_PER_COUNTER, BLOCKS_PER_COUNTER, LANES)
    saved_count, saved_confidence_input, scale, products, rows = saved_images(state, image, images, N)
    tables = saved_tables(state, counter, IMAGES, N, S)
    normalise(weight + counter * 8 * S, tables, S, SP)

    # X = f4(A) f5(D), Ã = f1(A) f2(D), and the certainty of the weights and distances.
    number = tl.zeros((LANES,), tl.float32)
    from_attention = tl.zeros((LANES,), tl.float32)
    from_distance = tl.zeros((LANES,), tl.float32)
    for i in range(0, N):
        real_i, a_i = load_weights(attention, mask, image * N + i, here, HAS_MASK)
        ax1, ay1, ax2, ay2 = corners(boxes, image * N + i, real_i)
        number += tl.where(real_i, 1.0, 0.0)
        from_attention += tl.where(real_i, tl.abs(value(a_i, tables, ATTENTION_CONFIDENCE, S) - 0.5), 0.0)
        tl.store(rows + (i * N + i) * images, tl.zeros((LANES,), tl.float32), mask=here)
        tl.store(scale + i * images, tl.full((LANES,), 1.0, tl.float32), mask=here)
        for j in range(i + 1, N):
            real, a_j = load_weights(attention, mask, image * N + j, real_i, HAS_MASK)
            bx1, by1, bx2, by2 = corners(boxes, image * N + j, real)
            d = 1.0 - box_iou(ax1, ay1, ax2, ay2, bx1, by1, bx2, by2)[0]
            relevance = a_i * a_j
            x = value(relevance, tables, RELEVANCE_ROW, S) * value(d, tables, DISTANCE_ROW, S)
            edge = value(relevance, tables, RELEVANCE_EDGE, S) * value(d, tables, DISTANCE_EDGE, S)
            x = tl.where(real, x, 0.0)
            tl.store(rows + (i * N + j) * images, x, mask=here)
            tl.store(rows + (j * N + i) * images, x, mask=here)
            tl.store(products + (j * N + i) * images, tl.where(real, edge, 0.0), mask=here)
            from_distance += tl.where(real, tl.abs(value(d, tables, DISTANCE_CONFIDENCE, S) - 0.5), 0.0)
    tl.debug_barrier()

    # Row sums of Sim.
    for i in range(0, N):
        real_i, a_i = load_weights(attention, mask, image * N + i, here, HAS_MASK)
        similarity_sum = tl.load(scale + i * images, mask=here, other=1.0)
        for j in range(i + 1, N):
            real, a_j = load_weights(attention, mask, image * N + j, real_i, HAS_MASK)
            product = tl.full((LANES,), 1.0, tl.float32)
            for k in range(0, N):
                x_i = tl.load(rows + (i * N + k) * images, mask=here, other=0.0)
                x_j = tl.load(rows + (j * N + k) * images, mask=here, other=0.0)
                product *= tl.maximum(value(1.0 - tl.abs(x_i - x_j), tables, SIMILARITY, S), TINY)
            tl.store(products + (i * N + j) * images, product, mask=here)
            similarity = value(1.0 - tl.abs(a_i - a_j), tables, SIMILARITY, S) * product
            similarity = tl.where(real, similarity, 0.0)
            similarity_sum += similarity
            similarity_sum_j = tl.load(scale + j * images, mask=here, other=1.0)
            tl.store(scale + j * images, similarity_sum_j + similarity, mask=here)
        tl.store(scale + i * images, 1.0 / similarity_sum, mask=here)
    tl.debug_barrier()

    # The sum of C.
    total = tl.zeros((LANES,), tl.float32)
    for i in range(0, N):
        _real, a_i = load_weights(attention, mask, image * N + i, here, HAS_MASK)
        inner = value(a_i * a_i, tables, RELEVANCE_EDGE, S)
        for j in range(0, i):
            edge = tl.load(products + (i * N + j) * images, mask=here, other=0.0)
            inner += 2.0 * edge * tl.load(scale + j * images, mask=here, other=0.0)
        total += inner * tl.load(scale + i * images, mask=here, other=0.0)

    # A box is at distance 0 from itself, where f7 is one half from one half.
    from_distance = 0.5 * number + 2.0 * from_distance
    from_distance += nan_among(tables, DISTANCE_CONFIDENCE, DISTANCE_CONFIDENCE, S)
    write_results(
        total, number, from_attention, from_distance, image, here, tables, features,
        count, saved_count, saved_confidence_input, MAX_OBJECTS, S,
    )  # fmt: skip


@kernel
def count_backward_kernel(
    attention, boxes, mask, grad_features, grad_count, state, grad_attention, grad_boxes, scratch, partial,
    IMAGES, IMAGES_PER_COUNTER, BLOCKS_PER_COUNTER, MAX_OBJECTS, N,
    HAS_MASK: tl.constexpr, HAS_GRAD_COUNT: tl.constexpr, S: tl.constexpr, SP: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Write the gradients of a block's images, and those of their counter's rises.

    The scratch of an image holds the gradients of Sim's row sums [N] and of X [N, N].
    """
    counter, image, here, images = images_of_block(IMAGES, IMAGES_PER_COUNTER, BLOCKS_PER_COUNTER, LANES)
    saved_count, saved_confidence_input, scale, products, rows = saved_images(state, image, images, N)
    tables = saved_tables(state, counter, IMAGES, N, S)
    grad_sums = scratch + image
    grad_rows = grad_sums + N * images
    segment = tl.arange(0, SP)
    s = segment.to(tl.float32)[:, None]
    out = partial + tl.program_id(0).to(tl.int64) * 8 * S + segment

    # From the count or the features to the sum of C and the confidence.
    grad_total, grad_confidence, grad_mean, position = image_gradients(
        image, here, saved_count, saved_confidence_input, tables, grad_features, grad_count, MAX_OBJECTS,
        HAS_GRAD_COUNT, S,
    )  # fmt: skip
    of_confidence = tl.sum(share(position[None, :], s) * grad_confidence[None, :], axis=1)
    tl.store(out + CONFIDENCE * S, of_confidence, mask=segment < S)
    number = tl.zeros((LANES,), tl.float32)
    for i in range(0, N):
        real_i, _a = load_weights(attention, mask, image * N + i, here, HAS_MASK)
        number += tl.where(real_i, 1.0, 0.0)
        for k in range(0, N):
            tl.store(grad_rows + (i * N + k) * images, tl.zeros((LANES,), tl.float32), mask=here)
    number = tl.maximum(number, 1.0)

    # From C to the row sums of Sim.
    for i in range(0, N):
        real_i, a_i = load_weights(attention, mask, image * N + i, here, HAS_MASK)
        s_i = tl.load(scale + i * images, mask=here, other=0.0)
        inner = value(a_i * a_i, tables, RELEVANCE_EDGE, S)
        for j in range(0, N):
            if j != i:
                edge = tl.load(products + (tl.maximum(i, j) * N + tl.minimum(i, j)) * images, mask=here, other=0.0)
                inner += 2.0 * edge * tl.load(scale + j * images, mask=here, other=0.0)
        tl.store(grad_sums + i * images, tl.where(real_i, -grad_total * inner * s_i * s_i, 0.0), mask=here)
    tl.debug_barrier()

    # From Sim to the rows of X.
    similarity_grad = tl.zeros((SP, LANES), tl.float32)
    for i in range(0, N):
        real_i, a_i = load_weights(attention, mask, image * N + i, here, HAS_MASK)
        grad_sum_i = tl.load(grad_sums + i * images, mask=here, other=0.0)
        for j in range(i + 1, N):
            real, a_j = load_weights(attention, mask, image * N + j, real_i, HAS_MASK)
            grad_sum = tl.where(real, grad_sum_i + tl.load(grad_sums + j * images, mask=here, other=0.0), 0.0)
            product = grad_sum * tl.load(products + (i * N + j) * images, mask=here, other=0.0)
            close, _rise, position = look_up(1.0 - tl.abs(a_i - a_j), tables, SIMILARITY, S)
            similarity_grad += share(position[None, :], s) * product[None, :]
            product *= close
            for k in range(0, N):
                x_i = tl.load(rows + (i * N + k) * images, mask=here, other=0.0)
                x_j = tl.load(rows + (j * N + k) * images, mask=here, other=0.0)
                factor, slope, position = look_up(1.0 - tl.abs(x_i - x_j), tables, SIMILARITY, S)
                others = product / tl.maximum(factor, TINY)
                similarity_grad += share(position[None, :], s) * others[None, :]
                grad = others * slope * S * sign(x_i - x_j)
                grad_i = tl.load(grad_rows + (i * N + k) * images, mask=here, other=0.0)
                grad_j = tl.load(grad_rows + (j * N + k) * images, mask=here, other=0.0)
                tl.store(grad_rows + (i * N + k) * images, grad_i - grad, mask=here)
                tl.store(grad_rows + (j * N + k) * images, grad_j + grad, mask=here)
    tl.store(out + SIMILARITY * S, tl.sum(similarity_grad, axis=1), mask=segment < S)
    tl.debug_barrier()

    # From C, Ã, X, Sim and the confidence to weights and boxes: each box over all others.
    edge_a_sum, edge_d_sum = tl.zeros((SP, LANES), tl.float32), tl.zeros((SP, LANES), tl.float32)
    row_a_sum, row_d_sum = tl.zeros((SP, LANES), tl.float32), tl.zeros((SP, LANES), tl.float32)
    certainty_a_sum, certainty_d_sum = tl.zeros((SP, LANES), tl.float32), tl.zeros((SP, LANES), tl.float32)
    for i in range(0, N):
        real_i, a_i = load_weights(attention, mask, image * N + i, here, HAS_MASK)
        s_i = tl.load(scale + i * images, mask=real_i, other=0.0)
        grad_sum_i = tl.load(grad_sums + i * images, mask=here, other=0.0)
        ax1, ay1, ax2, ay2 = corners(boxes, image * N + i, real_i)
        grad_a, at_loop, grad_loop, at_certain, grad_certain = proposal_gradients(
            a_i, s_i, real_i, grad_total, grad_mean, number, tables, S
        )
        edge_a_sum += share(at_loop[None, :], s) * grad_loop[None, :]
        certainty_a_sum += share(at_certain[None, :], s) * grad_certain[None, :]
        grad_x1, grad_y1 = tl.zeros((LANES,), tl.float32), tl.zeros((LANES,), tl.float32)
        grad_x2, grad_y2 = tl.zeros((LANES,), tl.float32), tl.zeros((LANES,), tl.float32)
        for j in range(0, N):
            if j != i:
                real, a_j = load_weights(attention, mask, image * N + j, real_i, HAS_MASK)
                s_j = tl.load(scale + j * images, mask=real, other=0.0)
                bx1, by1, bx2, by2 = corners(boxes, image * N + j, real)
                iou, width, height, union = box_iou(ax1, ay1, ax2, ay2, bx1, by1, bx2, by2)
                grad_row = tl.load(grad_rows + (i * N + j) * images, mask=real, other=0.0)
                grad_row += tl.load(grad_rows + (j * N + i) * images, mask=real, other=0.0)
                product = tl.load(products + (tl.minimum(i, j) * N + tl.maximum(i, j)) * images, mask=real, other=0.0)
                grad_sum = grad_sum_i + tl.load(grad_sums + j * images, mask=real, other=0.0)
                by_a, by_d, at_a, at_d, _at_close, of_edge_a, of_edge_d, of_row_a, of_row_d, of_certain = (
                    pair_gradients(
                        a_i, a_j, s_i, s_j, 1.0 - iou, grad_row, grad_sum * product, real,
                        grad_total, grad_mean, number, tables, S,
                    )
                )  # fmt: skip
                if j > i:
                    below_a, below_d = share(at_a[None, :], s), share(at_d[None, :], s)
                    edge_a_sum += below_a * of_edge_a[None, :]
                    edge_d_sum += below_d * of_edge_d[None, :]
                    row_a_sum += below_a * of_row_a[None, :]
                    row_d_sum += below_d * of_row_d[None, :]
                    certainty_d_sum += below_d * of_certain[None, :]
                grad_a += by_a
                by_x1, by_y1, by_x2, by_y2 = box_iou_backward(
                    ax1, ay1, ax2, ay2, bx1, by1, bx2, by2, width, height, union, -by_d
                )
                grad_x1 += by_x1
                grad_y1 += by_y1
                grad_x2 += by_x2
                grad_y2 += by_y2
        tl.store(grad_attention + image * N + i, tl.where(real_i, grad_a, 0.0), mask=here)
        store_corners(grad_boxes, image * N + i, here, grad_x1, grad_y1, grad_x2, grad_y2)
    tl.store(out + RELEVANCE_EDGE * S, tl.sum(edge_a_sum, axis=1), mask=segment < S)
    tl.store(out + DISTANCE_EDGE * S, tl.sum(edge_d_sum, axis=1), mask=segment < S)
    tl.store(out + RELEVANCE_ROW * S, tl.sum(row_a_sum, axis=1), mask=segment < S)
    tl.store(out + DISTANCE_ROW * S, tl.sum(row_d_sum, axis=1), mask=segment < S)
    tl.store(out + ATTENTION_CONFIDENCE * S, tl.sum(certainty_a_sum, axis=1), mask=segment < S)
    tl.store(out + DISTANCE_CONFIDENCE * S, tl.sum(certainty_d_sum, axis=1), mask=segment < S)
