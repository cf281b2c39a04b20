"""Kernels for few boxes: each lane of a warp counts an image of its own, pair by pair.

Matrices are laid out [i, j, image], so that neighbouring lanes read neighbouring numbers. In `products`, index (i, j)
with i < j holds the row product of Sim, and (j, i) holds Ã.
"""

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
    nan_among,
    normalise,
    result_gradients,
    share,
    value,
)
from tallybox.kernels.cuda.boxes import TINY, corners, is_real, overlap, overlap_backward, sign


@triton.jit(do_not_specialize=["IMAGES", "MAX_OBJECTS", "IMAGES_PER_COUNTER", "BLOCKS_PER_COUNTER"])
def count_forward_kernel(
    attention, boxes, mask, weight, features, count, certainty, scale, products, rows, tables,
    IMAGES, MAX_OBJECTS, IMAGES_PER_COUNTER, BLOCKS_PER_COUNTER,
    HAS_MASK: tl.constexpr, N: tl.constexpr, S: tl.constexpr, SP: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Count the images of a counter, LANES of them in each block."""
    counter = (tl.program_id(0) // BLOCKS_PER_COUNTER).to(tl.int64)
    of_counter = tl.program_id(0) % BLOCKS_PER_COUNTER * LANES + tl.arange(0, LANES)
    here = of_counter < IMAGES_PER_COUNTER
    image = counter * IMAGES_PER_COUNTER + of_counter
    images = IMAGES.to(tl.int64)
    scale += image
    rows += image
    products += image
    tables += counter * 16 * S
    normalise(weight + counter * 8 * S, tables, S, SP)

    # X = f4(A) f5(D), Ã = f1(A) f2(D), and the certainty of the weights and distances.
    number = tl.zeros((LANES,), tl.float32)
    from_attention = tl.zeros((LANES,), tl.float32)
    from_distance = tl.zeros((LANES,), tl.float32)
    for i in range(0, N):
        real_i = is_real(mask, image * N + i, here, HAS_MASK)
        a_i = tl.load(attention + image * N + i, mask=real_i, other=0.0)
        ax1, ay1, ax2, ay2 = corners(boxes, image * N + i, real_i)
        number += tl.where(real_i, 1.0, 0.0)
        from_attention += tl.where(real_i, tl.abs(value(a_i, tables, CERTAINTY_OF_ATTENTION, S) - 0.5), 0.0)
        tl.store(rows + (i * N + i) * images, tl.zeros((LANES,), tl.float32), mask=here)
        tl.store(scale + i * images, tl.full((LANES,), 1.0, tl.float32), mask=here)
        for j in range(i + 1, N):
            real = real_i & is_real(mask, image * N + j, here, HAS_MASK)
            a_j = tl.load(attention + image * N + j, mask=real, other=0.0)
            bx1, by1, bx2, by2 = corners(boxes, image * N + j, real)
            d = overlap(ax1, ay1, ax2, ay2, bx1, by1, bx2, by2)[0]
            relevance = a_i * a_j
            x = value(relevance, tables, ROW_OF_RELEVANCE, S) * value(d, tables, ROW_OF_DISTANCE, S)
            edge = value(relevance, tables, EDGE_OF_RELEVANCE, S) * value(d, tables, EDGE_OF_DISTANCE, S)
            x = tl.where(real, x, 0.0)
            tl.store(rows + (i * N + j) * images, x, mask=here)
            tl.store(rows + (j * N + i) * images, x, mask=here)
            tl.store(products + (j * N + i) * images, tl.where(real, edge, 0.0), mask=here)
            from_distance += tl.where(real, tl.abs(value(d, tables, CERTAINTY_OF_DISTANCE, S) - 0.5), 0.0)
    tl.debug_barrier()

    # Row sums of Sim.
    for i in range(0, N):
        real_i = is_real(mask, image * N + i, here, HAS_MASK)
        a_i = tl.load(attention + image * N + i, mask=real_i, other=0.0)
        alike = tl.load(scale + i * images, mask=here, other=1.0)
        for j in range(i + 1, N):
            real = real_i & is_real(mask, image * N + j, here, HAS_MASK)
            a_j = tl.load(attention + image * N + j, mask=real, other=0.0)
            product = tl.full((LANES,), 1.0, tl.float32)
            for k in tl.static_range(N):
                x_i = tl.load(rows + (i * N + k) * images, mask=here, other=0.0)
                x_j = tl.load(rows + (j * N + k) * images, mask=here, other=0.0)
                product *= tl.maximum(value(1.0 - tl.abs(x_i - x_j), tables, LIKENESS, S), TINY)
            tl.store(products + (i * N + j) * images, product, mask=here)
            similarity = value(1.0 - tl.abs(a_i - a_j), tables, LIKENESS, S) * product
            similarity = tl.where(real, similarity, 0.0)
            alike += similarity
            alike_j = tl.load(scale + j * images, mask=here, other=1.0)
            tl.store(scale + j * images, alike_j + similarity, mask=here)
        tl.store(scale + i * images, 1.0 / alike, mask=here)
    tl.debug_barrier()

    # The sum of C.
    total = tl.zeros((LANES,), tl.float32)
    for i in range(0, N):
        real_i = is_real(mask, image * N + i, here, HAS_MASK)
        a_i = tl.load(attention + image * N + i, mask=real_i, other=0.0)
        inner = value(a_i * a_i, tables, EDGE_OF_RELEVANCE, S)
        for j in range(0, i):
            edge = tl.load(products + (i * N + j) * images, mask=here, other=0.0)
            inner += 2.0 * edge * tl.load(scale + j * images, mask=here, other=0.0)
        total += inner * tl.load(scale + i * images, mask=here, other=0.0)

    # No real proposal: as certain as an image whose every weight is 0.
    divisor = tl.maximum(number, 1.0)
    from_distance += nan_among(tables, CERTAINTY_OF_DISTANCE, CERTAINTY_OF_DISTANCE, S)
    from_distance = 0.5 * number + 2.0 * from_distance
    mean = tl.where(number > 0, from_attention / divisor + from_distance / (divisor * divisor), 1.0)
    # Diagonals are skipped: their values are constant, unless an activation is NaN.
    c = tl.sqrt(total + 1e-20 + nan_among(tables, EDGE_OF_RELEVANCE, ROW_OF_DISTANCE, S))
    c = tl.where(c > MAX_OBJECTS, MAX_OBJECTS * 1.0, c)  # NaN stays NaN, here and in the features
    confidence = value(mean, tables, CONFIDENCE, S)
    lower = tl.floor(c)
    upper = tl.minimum(lower + 1.0, MAX_OBJECTS * 1.0)
    for objects in range(0, MAX_OBJECTS + 1):
        one_hot = (
            tl.where(lower == objects, 1.0 - (c - lower), 0.0) + tl.where(upper == objects, c - lower, 0.0) + (c - c)
        )
        tl.store(features + image * (MAX_OBJECTS + 1) + objects, confidence * one_hot, mask=here)
    tl.store(count + image, c, mask=here)
    tl.store(certainty + image, mean, mask=here)


@triton.jit(do_not_specialize=["IMAGES", "MAX_OBJECTS", "IMAGES_PER_COUNTER", "BLOCKS_PER_COUNTER"])
def count_backward_kernel(
    attention, boxes, mask, count, certainty, scale, products, rows, tables, grad_features, grad_count,
    grad_attention, grad_boxes, grad_alike, grad_rows, partial,
    IMAGES, MAX_OBJECTS, IMAGES_PER_COUNTER, BLOCKS_PER_COUNTER,
    HAS_MASK: tl.constexpr, HAS_GRAD_FEATURES: tl.constexpr, HAS_GRAD_COUNT: tl.constexpr,
    N: tl.constexpr, S: tl.constexpr, SP: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Write the gradients of a block's images, and those of their counter's rises."""
    counter = (tl.program_id(0) // BLOCKS_PER_COUNTER).to(tl.int64)
    of_counter = tl.program_id(0) % BLOCKS_PER_COUNTER * LANES + tl.arange(0, LANES)
    here = of_counter < IMAGES_PER_COUNTER
    image = counter * IMAGES_PER_COUNTER + of_counter
    images = IMAGES.to(tl.int64)
    scale += image
    rows += image
    products += image
    tables += counter * 16 * S
    grad_alike += image
    grad_rows += image
    segment = tl.arange(0, SP)
    s = segment.to(tl.float32)[:, None]
    out = partial + tl.program_id(0).to(tl.int64) * 8 * S + segment

    # From the count or the features to the sum of C and the confidence.
    c, mean = tl.load(count + image, mask=here, other=1.0), tl.load(certainty + image, mask=here, other=0.0)
    confidence, mean_rise, position = look_up(mean, tables, CONFIDENCE, S)
    grad_total, grad_confidence = result_gradients(
        c, confidence, image, here, grad_features, grad_count, MAX_OBJECTS, HAS_GRAD_FEATURES, HAS_GRAD_COUNT
    )
    grad_mean = grad_confidence * mean_rise * S
    of_confidence = tl.sum(share(position[None, :], s) * grad_confidence[None, :], axis=1)
    tl.store(out + CONFIDENCE * S, of_confidence, mask=segment < S)
    number = tl.zeros((LANES,), tl.float32)
    for i in range(0, N):
        number += tl.where(is_real(mask, image * N + i, here, HAS_MASK), 1.0, 0.0)
        for k in range(0, N):
            tl.store(grad_rows + (i * N + k) * images, tl.zeros((LANES,), tl.float32), mask=here)
    number = tl.maximum(number, 1.0)

    # From C to the row sums of Sim.
    for i in range(0, N):
        real_i = is_real(mask, image * N + i, here, HAS_MASK)
        a_i = tl.load(attention + image * N + i, mask=real_i, other=0.0)
        s_i = tl.load(scale + i * images, mask=here, other=0.0)
        inner = value(a_i * a_i, tables, EDGE_OF_RELEVANCE, S)
        for j in range(0, N):
            if j != i:
                edge = tl.load(products + (tl.maximum(i, j) * N + tl.minimum(i, j)) * images, mask=here, other=0.0)
                inner += 2.0 * edge * tl.load(scale + j * images, mask=here, other=0.0)
        tl.store(grad_alike + i * images, tl.where(real_i, -grad_total * inner * s_i * s_i, 0.0), mask=here)
    tl.debug_barrier()

    # From Sim to the rows of X.
    likeness_sum = tl.zeros((SP, LANES), tl.float32)
    for i in range(0, N):
        real_i = is_real(mask, image * N + i, here, HAS_MASK)
        a_i = tl.load(attention + image * N + i, mask=real_i, other=0.0)
        alike_i = tl.load(grad_alike + i * images, mask=here, other=0.0)
        for j in range(i + 1, N):
            real = real_i & is_real(mask, image * N + j, here, HAS_MASK)
            a_j = tl.load(attention + image * N + j, mask=real, other=0.0)
            alike = tl.where(real, alike_i + tl.load(grad_alike + j * images, mask=here, other=0.0), 0.0)
            product = alike * tl.load(products + (i * N + j) * images, mask=here, other=0.0)
            close, close_rise, position = look_up(1.0 - tl.abs(a_i - a_j), tables, LIKENESS, S)
            likeness_sum += share(position[None, :], s) * product[None, :]
            product *= close
            for k in tl.static_range(N):
                x_i = tl.load(rows + (i * N + k) * images, mask=here, other=0.0)
                x_j = tl.load(rows + (j * N + k) * images, mask=here, other=0.0)
                factor, slope, position = look_up(1.0 - tl.abs(x_i - x_j), tables, LIKENESS, S)
                others = product / tl.maximum(factor, TINY)
                likeness_sum += share(position[None, :], s) * others[None, :]
                grad = others * slope * S * sign(x_i - x_j)
                grad_i = tl.load(grad_rows + (i * N + k) * images, mask=here, other=0.0)
                grad_j = tl.load(grad_rows + (j * N + k) * images, mask=here, other=0.0)
                tl.store(grad_rows + (i * N + k) * images, grad_i - grad, mask=here)
                tl.store(grad_rows + (j * N + k) * images, grad_j + grad, mask=here)
    tl.store(out + LIKENESS * S, tl.sum(likeness_sum, axis=1), mask=segment < S)
    tl.debug_barrier()

    # From C, Ã, X, Sim and the confidence to weights and boxes: each box over all others.
    edge_a_sum = tl.zeros((SP, LANES), tl.float32)
    edge_d_sum = tl.zeros((SP, LANES), tl.float32)
    row_a_sum = tl.zeros((SP, LANES), tl.float32)
    row_d_sum = tl.zeros((SP, LANES), tl.float32)
    certainty_a_sum = tl.zeros((SP, LANES), tl.float32)
    certainty_d_sum = tl.zeros((SP, LANES), tl.float32)
    for i in range(0, N):
        real_i = is_real(mask, image * N + i, here, HAS_MASK)
        a_i = tl.load(attention + image * N + i, mask=real_i, other=0.0)
        s_i = tl.load(scale + i * images, mask=real_i, other=0.0)
        alike_i = tl.load(grad_alike + i * images, mask=here, other=0.0)
        ax1, ay1, ax2, ay2 = corners(boxes, image * N + i, real_i)
        _, loop_rise, position = look_up(a_i * a_i, tables, EDGE_OF_RELEVANCE, S)
        edge_a_sum += share(position[None, :], s) * (grad_total * s_i)[None, :]
        grad_a = grad_total * s_i * loop_rise * S * 2.0 * a_i
        certain, certain_rise, position = look_up(a_i, tables, CERTAINTY_OF_ATTENTION, S)
        grad_certain = tl.where(real_i, grad_mean / number * sign(certain - 0.5), 0.0)
        certainty_a_sum += share(position[None, :], s) * grad_certain[None, :]
        grad_a += grad_certain * certain_rise * S
        grad_x1 = tl.zeros((LANES,), tl.float32)
        grad_y1 = tl.zeros((LANES,), tl.float32)
        grad_x2 = tl.zeros((LANES,), tl.float32)
        grad_y2 = tl.zeros((LANES,), tl.float32)
        for j in range(0, N):
            if j != i:
                real = real_i & is_real(mask, image * N + j, here, HAS_MASK)
                a_j = tl.load(attention + image * N + j, mask=real, other=0.0)
                s_j = tl.load(scale + j * images, mask=real, other=0.0)
                bx1, by1, bx2, by2 = corners(boxes, image * N + j, real)
                d, width, height, union = overlap(ax1, ay1, ax2, ay2, bx1, by1, bx2, by2)
                grad_edge = tl.where(real, 2.0 * grad_total * s_i * s_j, 0.0)
                grad_row = tl.load(grad_rows + (i * N + j) * images, mask=real, other=0.0)
                grad_row += tl.load(grad_rows + (j * N + i) * images, mask=real, other=0.0)
                edge_a, edge_a_rise, at_a = look_up(a_i * a_j, tables, EDGE_OF_RELEVANCE, S)
                edge_d, edge_d_rise, at_d = look_up(d, tables, EDGE_OF_DISTANCE, S)
                row_a, row_a_rise, at_a = look_up(a_i * a_j, tables, ROW_OF_RELEVANCE, S)
                row_d, row_d_rise, at_d = look_up(d, tables, ROW_OF_DISTANCE, S)
                certain, certain_rise, at_d = look_up(d, tables, CERTAINTY_OF_DISTANCE, S)
                grad_certain = tl.where(real, 2.0 * grad_mean / (number * number) * sign(certain - 0.5), 0.0)
                if j > i:
                    below_a = share(at_a[None, :], s)
                    below_d = share(at_d[None, :], s)
                    edge_a_sum += below_a * (grad_edge * edge_d)[None, :]
                    edge_d_sum += below_d * (grad_edge * edge_a)[None, :]
                    row_a_sum += below_a * (grad_row * row_d)[None, :]
                    row_d_sum += below_d * (grad_row * row_a)[None, :]
                    certainty_d_sum += below_d * grad_certain[None, :]
                product = tl.load(products + (tl.minimum(i, j) * N + tl.maximum(i, j)) * images, mask=real, other=0.0)
                alike = alike_i + tl.load(grad_alike + j * images, mask=real, other=0.0)
                close, close_rise, position = look_up(1.0 - tl.abs(a_i - a_j), tables, LIKENESS, S)
                grad_relevance = (grad_edge * edge_d * edge_a_rise + grad_row * row_d * row_a_rise) * S
                grad_a += grad_relevance * a_j - alike * product * close_rise * S * sign(a_i - a_j)
                grad_d = (
                    grad_edge * edge_a * edge_d_rise + grad_row * row_a * row_d_rise + grad_certain * certain_rise
                ) * S
                more_x1, more_y1, more_x2, more_y2 = overlap_backward(
                    ax1, ay1, ax2, ay2, bx1, by1, bx2, by2, width, height, union, grad_d
                )
                grad_x1 += more_x1
                grad_y1 += more_y1
                grad_x2 += more_x2
                grad_y2 += more_y2
        index = image * N + i
        tl.store(grad_attention + index, tl.where(real_i, grad_a, 0.0), mask=here)
        tl.store(grad_boxes + index * 4, grad_x1, mask=here)
        tl.store(grad_boxes + index * 4 + 1, grad_y1, mask=here)
        tl.store(grad_boxes + index * 4 + 2, grad_x2, mask=here)
        tl.store(grad_boxes + index * 4 + 3, grad_y2, mask=here)
    tl.store(out + EDGE_OF_RELEVANCE * S, tl.sum(edge_a_sum, axis=1), mask=segment < S)
    tl.store(out + EDGE_OF_DISTANCE * S, tl.sum(edge_d_sum, axis=1), mask=segment < S)
    tl.store(out + ROW_OF_RELEVANCE * S, tl.sum(row_a_sum, axis=1), mask=segment < S)
    tl.store(out + ROW_OF_DISTANCE * S, tl.sum(row_d_sum, axis=1), mask=segment < S)
    tl.store(out + CERTAINTY_OF_ATTENTION * S, tl.sum(certainty_a_sum, axis=1), mask=segment < S)
    tl.store(out + CERTAINTY_OF_DISTANCE * S, tl.sum(certainty_d_sum, axis=1), mask=segment < S)
