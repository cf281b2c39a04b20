"""Kernels for few boxes: each lane of a warp counts an image of its own, pair by pair.

Matrices in `state` and `scratch` are laid out [i, j, image], so that neighbouring lanes read
neighbouring numbers. In `products`, place (i, j) with i < j holds the row product of Sim, and (j, i) holds Ã.
"""

from __future__ import annotations

import triton.language as tl

from tallybox.counter.cuda.parts import kernel, look_up, normalise, share, value
from tallybox.kernels.cuda.boxes import TINY, corners, is_real, overlap, overlap_backward, sign


@kernel()
def count_forward_kernel(
    attention, boxes, mask, weight, features, state,
    IMAGES, MAX_OBJECTS, IMAGES_PER_COUNTER, BLOCKS_PER_COUNTER,
    HAS_MASK: tl.constexpr, N: tl.constexpr, S: tl.constexpr, SP: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Count the images of a counter, LANES of them in each block."""
    counter = (tl.program_id(0) // BLOCKS_PER_COUNTER).to(tl.int64)
    of_counter = tl.program_id(0) % BLOCKS_PER_COUNTER * LANES + tl.arange(0, LANES)
    here = of_counter < IMAGES_PER_COUNTER
    image = counter * IMAGES_PER_COUNTER + of_counter
    images = IMAGES.to(tl.int64)
    count, certainty, scale = state + image, state + images + image, state + images * 2 + image
    rows = state + images * (2 + N) + image
    products = state + images * (2 + N + N * N) + image
    base = state + images * (2 + N + 2 * N * N) + counter * 16 * S
    rise = base + 8 * S
    normalise(weight + counter * 8 * S, base, rise, S, SP)

    # X = f4(A) f5(D), Ã = f1(A) f2(D), and the certainty of the weights and distances.
    number = tl.zeros((LANES,), tl.float32)
    from_attention = tl.zeros((LANES,), tl.float32)
    from_distance = tl.zeros((LANES,), tl.float32)
    for i in range(0, N):
        real_i = is_real(mask, image * N + i, here, HAS_MASK)
        a_i = tl.load(attention + image * N + i, mask=real_i, other=0.0)
        ax1, ay1, ax2, ay2 = corners(boxes, image * N + i, real_i)
        number += tl.where(real_i, 1.0, 0.0)
        from_attention += tl.where(real_i, tl.abs(value(a_i, base + 5 * S, rise + 5 * S, S) - 0.5), 0.0)
        tl.store(rows + (i * N + i) * images, tl.zeros((LANES,), tl.float32), mask=here)
        tl.store(scale + i * images, tl.full((LANES,), 1.0, tl.float32), mask=here)
        for j in range(i + 1, N):
            real = real_i & is_real(mask, image * N + j, here, HAS_MASK)
            a_j = tl.load(attention + image * N + j, mask=real, other=0.0)
            bx1, by1, bx2, by2 = corners(boxes, image * N + j, real)
            d = overlap(ax1, ay1, ax2, ay2, bx1, by1, bx2, by2)[0]
            relevance = a_i * a_j
            x = value(relevance, base + 3 * S, rise + 3 * S, S) * value(d, base + 4 * S, rise + 4 * S, S)
            edge = value(relevance, base, rise, S) * value(d, base + S, rise + S, S)
            x = tl.where(real, x, 0.0)
            tl.store(rows + (i * N + j) * images, x, mask=here)
            tl.store(rows + (j * N + i) * images, x, mask=here)
            tl.store(products + (j * N + i) * images, tl.where(real, edge, 0.0), mask=here)
            from_distance += tl.where(real, tl.abs(value(d, base + 6 * S, rise + 6 * S, S) - 0.5), 0.0)
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
                product *= tl.maximum(value(1.0 - tl.abs(x_i - x_j), base + 2 * S, rise + 2 * S, S), TINY)
            tl.store(products + (i * N + j) * images, product, mask=here)
            similarity = value(1.0 - tl.abs(a_i - a_j), base + 2 * S, rise + 2 * S, S) * product
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
        inner = value(a_i * a_i, base, rise, S)
        for j in range(0, i):
            edge = tl.load(products + (i * N + j) * images, mask=here, other=0.0)
            inner += 2.0 * edge * tl.load(scale + j * images, mask=here, other=0.0)
        total += inner * tl.load(scale + i * images, mask=here, other=0.0)

    # No real proposal: as certain as an image whose every weight is 0.
    divisor = tl.maximum(number, 1.0)
    from_distance = 0.5 * number + 2.0 * from_distance
    mean = tl.where(number > 0, from_attention / divisor + from_distance / (divisor * divisor), 1.0)
    c = tl.sqrt(total + 1e-20)
    c = tl.where(c > MAX_OBJECTS, MAX_OBJECTS * 1.0, c)  # NaN stays NaN, here and in the features
    confidence = value(mean, base + 7 * S, rise + 7 * S, S)
    lower = tl.floor(c)
    upper = tl.minimum(lower + 1.0, MAX_OBJECTS * 1.0)
    for objects in range(0, MAX_OBJECTS + 1):
        one_hot = (
            tl.where(lower == objects, 1.0 - (c - lower), 0.0) + tl.where(upper == objects, c - lower, 0.0) + (c - c)
        )
        tl.store(features + image * (MAX_OBJECTS + 1) + objects, confidence * one_hot, mask=here)
    tl.store(count, c, mask=here)
    tl.store(certainty, mean, mask=here)


@kernel()
def count_backward_kernel(
    attention, boxes, mask, weight, state, grad_result, grad_attention, grad_boxes, grad_weight, scratch,
    IMAGES, MAX_OBJECTS, IMAGES_PER_COUNTER, BLOCKS_PER_COUNTER,
    HAS_MASK: tl.constexpr, OF_COUNT: tl.constexpr,
    N: tl.constexpr, S: tl.constexpr, SP: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Write the gradients of a block's images, and what they owe to their counter's segments."""
    counter = (tl.program_id(0) // BLOCKS_PER_COUNTER).to(tl.int64)
    of_counter = tl.program_id(0) % BLOCKS_PER_COUNTER * LANES + tl.arange(0, LANES)
    here = of_counter < IMAGES_PER_COUNTER
    image = counter * IMAGES_PER_COUNTER + of_counter
    images = IMAGES.to(tl.int64)
    count, certainty, scale = state + image, state + images + image, state + images * 2 + image
    rows = state + images * (2 + N) + image
    products = state + images * (2 + N + N * N) + image
    base = state + images * (2 + N + 2 * N * N) + counter * 16 * S
    rise = base + 8 * S
    grad_alike = scratch + image
    grad_rows = scratch + images * N + image
    segment = tl.arange(0, SP)
    s = segment.to(tl.float32)[:, None]
    out = scratch + images * (N + N * N) + tl.program_id(0).to(tl.int64) * 8 * S + segment

    # From the count or the features to the sum of C and the confidence.
    c, mean = tl.load(count, mask=here, other=1.0), tl.load(certainty, mask=here, other=0.0)
    confidence, mean_rise, position = look_up(mean, base + 7 * S, rise + 7 * S, S)
    lower = tl.floor(c)
    upper = tl.minimum(lower + 1.0, MAX_OBJECTS * 1.0)
    if OF_COUNT:
        grad_c = tl.load(grad_result + image, mask=here, other=0.0)
        grad_confidence = tl.zeros((LANES,), tl.float32)
    else:
        grad_lower = tl.load(grad_result + image * (MAX_OBJECTS + 1) + lower.to(tl.int32), mask=here, other=0.0)
        grad_upper = tl.load(grad_result + image * (MAX_OBJECTS + 1) + upper.to(tl.int32), mask=here, other=0.0)
        grad_c = confidence * (grad_upper - grad_lower)
        grad_confidence = (1.0 - (c - lower)) * grad_lower + (c - lower) * grad_upper
    grad_total = grad_c / (2.0 * c)
    grad_mean = grad_confidence * mean_rise * S
    owed = tl.sum(share(position[None, :], s) * grad_confidence[None, :], axis=1)
    tl.store(out + 7 * S, owed, mask=segment < S)
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
        inner = value(a_i * a_i, base, rise, S)
        for j in range(0, N):
            if j != i:
                edge = tl.load(products + (tl.maximum(i, j) * N + tl.minimum(i, j)) * images, mask=here, other=0.0)
                inner += 2.0 * edge * tl.load(scale + j * images, mask=here, other=0.0)
        tl.store(grad_alike + i * images, tl.where(real_i, -grad_total * inner * s_i * s_i, 0.0), mask=here)
    tl.debug_barrier()

    # From Sim to the rows of X.
    owed3 = tl.zeros((SP, LANES), tl.float32)
    for i in range(0, N):
        real_i = is_real(mask, image * N + i, here, HAS_MASK)
        a_i = tl.load(attention + image * N + i, mask=real_i, other=0.0)
        alike_i = tl.load(grad_alike + i * images, mask=here, other=0.0)
        for j in range(i + 1, N):
            real = real_i & is_real(mask, image * N + j, here, HAS_MASK)
            a_j = tl.load(attention + image * N + j, mask=real, other=0.0)
            alike = tl.where(real, alike_i + tl.load(grad_alike + j * images, mask=here, other=0.0), 0.0)
            product = alike * tl.load(products + (i * N + j) * images, mask=here, other=0.0)
            close, close_rise, position = look_up(1.0 - tl.abs(a_i - a_j), base + 2 * S, rise + 2 * S, S)
            owed3 += share(position[None, :], s) * product[None, :]
            product *= close
            for k in tl.static_range(N):
                x_i = tl.load(rows + (i * N + k) * images, mask=here, other=0.0)
                x_j = tl.load(rows + (j * N + k) * images, mask=here, other=0.0)
                factor, slope, position = look_up(1.0 - tl.abs(x_i - x_j), base + 2 * S, rise + 2 * S, S)
                others = product / tl.maximum(factor, TINY)
                owed3 += share(position[None, :], s) * others[None, :]
                grad = others * slope * S * sign(x_i - x_j)
                grad_i = tl.load(grad_rows + (i * N + k) * images, mask=here, other=0.0)
                grad_j = tl.load(grad_rows + (j * N + k) * images, mask=here, other=0.0)
                tl.store(grad_rows + (i * N + k) * images, grad_i - grad, mask=here)
                tl.store(grad_rows + (j * N + k) * images, grad_j + grad, mask=here)
    tl.store(out + 2 * S, tl.sum(owed3, axis=1), mask=segment < S)
    tl.debug_barrier()

    # From C, Ã, X, Sim and the confidence to weights and boxes: each box over all others.
    owed1 = tl.zeros((SP, LANES), tl.float32)
    owed2 = tl.zeros((SP, LANES), tl.float32)
    owed4 = tl.zeros((SP, LANES), tl.float32)
    owed5 = tl.zeros((SP, LANES), tl.float32)
    owed6 = tl.zeros((SP, LANES), tl.float32)
    owed7 = tl.zeros((SP, LANES), tl.float32)
    for i in range(0, N):
        real_i = is_real(mask, image * N + i, here, HAS_MASK)
        a_i = tl.load(attention + image * N + i, mask=real_i, other=0.0)
        s_i = tl.load(scale + i * images, mask=real_i, other=0.0)
        alike_i = tl.load(grad_alike + i * images, mask=here, other=0.0)
        ax1, ay1, ax2, ay2 = corners(boxes, image * N + i, real_i)
        _, loop_rise, position = look_up(a_i * a_i, base, rise, S)
        owed1 += share(position[None, :], s) * (grad_total * s_i)[None, :]
        grad_a = grad_total * s_i * loop_rise * S * 2.0 * a_i
        sure, sure_rise, position = look_up(a_i, base + 5 * S, rise + 5 * S, S)
        grad_sure = tl.where(real_i, grad_mean / number * sign(sure - 0.5), 0.0)
        owed6 += share(position[None, :], s) * grad_sure[None, :]
        grad_a += grad_sure * sure_rise * S
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
                edge_a, edge_a_rise, at_a = look_up(a_i * a_j, base, rise, S)
                edge_d, edge_d_rise, at_d = look_up(d, base + S, rise + S, S)
                row_a, row_a_rise, at_a = look_up(a_i * a_j, base + 3 * S, rise + 3 * S, S)
                row_d, row_d_rise, at_d = look_up(d, base + 4 * S, rise + 4 * S, S)
                sure, sure_rise, at_d = look_up(d, base + 6 * S, rise + 6 * S, S)
                grad_sure = tl.where(real, 2.0 * grad_mean / (number * number) * sign(sure - 0.5), 0.0)
                if j > i:
                    below_a = share(at_a[None, :], s)
                    below_d = share(at_d[None, :], s)
                    owed1 += below_a * (grad_edge * edge_d)[None, :]
                    owed2 += below_d * (grad_edge * edge_a)[None, :]
                    owed4 += below_a * (grad_row * row_d)[None, :]
                    owed5 += below_d * (grad_row * row_a)[None, :]
                    owed7 += below_d * grad_sure[None, :]
                product = tl.load(products + (tl.minimum(i, j) * N + tl.maximum(i, j)) * images, mask=real, other=0.0)
                alike = alike_i + tl.load(grad_alike + j * images, mask=real, other=0.0)
                close, close_rise, position = look_up(1.0 - tl.abs(a_i - a_j), base + 2 * S, rise + 2 * S, S)
                grad_relevance = (grad_edge * edge_d * edge_a_rise + grad_row * row_d * row_a_rise) * S
                grad_a += grad_relevance * a_j - alike * product * close_rise * S * sign(a_i - a_j)
                grad_d = (grad_edge * edge_a * edge_d_rise + grad_row * row_a * row_d_rise + grad_sure * sure_rise) * S
                more_x1, more_y1, more_x2, more_y2 = overlap_backward(
                    ax1, ay1, ax2, ay2, bx1, by1, bx2, by2, width, height, union, grad_d
                )
                grad_x1 += more_x1
                grad_y1 += more_y1
                grad_x2 += more_x2
                grad_y2 += more_y2
        place = image * N + i
        tl.store(grad_attention + place, tl.where(real_i, grad_a, 0.0), mask=here)
        tl.store(grad_boxes + place * 4, grad_x1, mask=here)
        tl.store(grad_boxes + place * 4 + 1, grad_y1, mask=here)
        tl.store(grad_boxes + place * 4 + 2, grad_x2, mask=here)
        tl.store(grad_boxes + place * 4 + 3, grad_y2, mask=here)
    tl.store(out, tl.sum(owed1, axis=1), mask=segment < S)
    tl.store(out + S, tl.sum(owed2, axis=1), mask=segment < S)
    tl.store(out + 3 * S, tl.sum(owed4, axis=1), mask=segment < S)
    tl.store(out + 4 * S, tl.sum(owed5, axis=1), mask=segment < S)
    tl.store(out + 5 * S, tl.sum(owed6, axis=1), mask=segment < S)
    tl.store(out + 6 * S, tl.sum(owed7, axis=1), mask=segment < S)
