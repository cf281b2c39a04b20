"""The counting component on CUDA: a block of threads walks one image at a time, its matrices in cache.

The only file that imports triton. Memory is a few times images * N²; nothing of size N³ is written. The
same input gives the same bits: no atomics, weight gradients are summed in a fixed order.

Legend: I images, N boxes, S segments (SP: up to a power of two), tiles of B boxes. `base` and `rise`
[M, 8, S] say where each segment of an activation starts and how much it rises, `s` is a segment's
number. An activation's number is the paper's less one. X, Sim, D are symmetric, so a column is read as
a row. Every quantity of an ordered pair (i, j) is computed for box i alone; what a pair gives to the
activations is therefore counted twice, and halved.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Images that one block sums weight gradients over, where there are many: fewer partial sums to write.
MOST_IMAGES_A_BLOCK = 16
BLOCKS_WANTED = 4096


@triton.jit
def _look_up(x, base, rise, S: tl.constexpr):
    """Return f(x), the rise of its segment, and where x falls: segment number plus place in it."""
    position = x * S
    start = tl.minimum(tl.maximum(tl.floor(position), 0.0), S - 1.0)
    index = start.to(tl.int32)
    segment_rise = tl.load(rise + index)
    return tl.load(base + index) + segment_rise * (position - start), segment_rise, position


@triton.jit
def _value(x, base, rise, S: tl.constexpr):
    return _look_up(x, base, rise, S)[0]


@triton.jit
def _owed(position, grad, s):
    """What values at [B, B] positions, of these gradients, owe to each segment: [SP]."""
    share = tl.minimum(tl.maximum(position[None, :, :] - s[:, None, None], 0.0), 1.0)
    return tl.sum(tl.sum(share * grad[None, :, :], axis=2), axis=1)


@triton.jit
def _owed_by_row(position, grad, s):
    share = tl.minimum(tl.maximum(position[None, :] - s[:, None], 0.0), 1.0)
    return tl.sum(share * grad[None, :], axis=1)


@triton.jit
def _boxes(boxes, image, i, real, N):
    """Load the corners of boxes i, 0 where there is none."""
    place = boxes + (image * N + i) * 4
    x1 = tl.load(place, mask=real, other=0.0)
    y1 = tl.load(place + 1, mask=real, other=0.0)
    x2 = tl.load(place + 2, mask=real, other=0.0)
    y2 = tl.load(place + 3, mask=real, other=0.0)
    return x1, y1, x2, y2


@triton.jit
def _real(mask, image, i, N, HAS_MASK: tl.constexpr):
    real = i < N
    if HAS_MASK:
        real = real & (tl.load(mask + image * N + i, mask=real, other=0) != 0)
    return real


@triton.jit
def _overlap(ax1, ay1, ax2, ay2, bx1, by1, bx2, by2):
    """D of boxes a [B, 1] and b [1, B], with the overlap's width and height, and the union."""
    width = tl.minimum(ax2, bx2) - tl.maximum(ax1, bx1)
    height = tl.minimum(ay2, by2) - tl.maximum(ay1, by1)
    shared = tl.maximum(width, 0.0) * tl.maximum(height, 0.0)
    area_a = tl.maximum(ax2 - ax1, 0.0) * tl.maximum(ay2 - ay1, 0.0)
    area_b = tl.maximum(bx2 - bx1, 0.0) * tl.maximum(by2 - by1, 0.0)
    union = area_a + area_b - shared
    same = (ax1 == bx1) & (ay1 == by1) & (ax2 == bx2) & (ay2 == by2)
    distance = tl.where(union > 0, 1.0 - shared / tl.where(union > 0, union, 1.0), tl.where(same, 0.0, 1.0))
    return distance, width, height, union


@triton.jit
def _distance(boxes, image, i, j, real_i, real_j, N):
    """D of boxes i and j [B, B], exactly 0 for a box with itself."""
    ax1, ay1, ax2, ay2 = _boxes(boxes, image, i, real_i, N)
    bx1, by1, bx2, by2 = _boxes(boxes, image, j, real_j, N)
    distance = _overlap(
        ax1[:, None], ay1[:, None], ax2[:, None], ay2[:, None],
        bx1[None, :], by1[None, :], bx2[None, :], by2[None, :],
    )[0]  # fmt: skip
    return tl.where(i[:, None] == j[None, :], 0.0, distance)


@triton.jit
def _segments_kernel(weight, base, rise, S: tl.constexpr, SP: tl.constexpr):
    """Normalise one counter's weights [8, S]; the last segment ends at exactly 1."""
    role = tl.arange(0, 8)[:, None]
    s = tl.arange(0, SP)[None, :]
    place = tl.program_id(0) * 8 * S + role * S + s
    size = tl.abs(tl.load(weight + place, mask=s < S, other=0.0))
    largest = tl.max(size, axis=1)[:, None]
    size = tl.where(largest > 0, size / tl.where(largest > 0, largest, 1.0), tl.where(s < S, 1.0, 0.0))
    share = size / tl.sum(size, axis=1)[:, None]
    start = tl.cumsum(share, axis=1) - share
    start = tl.minimum(tl.maximum(start, 0.0), 1.0)
    share = tl.where(s == S - 1, 1.0 - start, share)
    tl.store(base + place, start, mask=s < S)
    tl.store(rise + place, share, mask=s < S)


@triton.jit
def _weight_gradient_kernel(weight, grad_rise, grad_weight, S: tl.constexpr, SP: tl.constexpr):
    """Turn the gradient of each segment's rise |w| / Σ|w| into that of its weight."""
    role = tl.arange(0, 8)[:, None]
    s = tl.arange(0, SP)[None, :]
    place = tl.program_id(0) * 8 * S + role * S + s
    w = tl.load(weight + place, mask=s < S, other=0.0)
    grad = tl.load(grad_rise + place, mask=s < S, other=0.0)
    total = tl.sum(tl.abs(w), axis=1)[:, None]
    total = tl.where(total > 0, total, 1.0)
    weighted = tl.sum(grad * tl.abs(w) / total, axis=1)[:, None]
    sign = tl.where(w > 0, 1.0, tl.where(w < 0, -1.0, 0.0))
    tl.store(grad_weight + place, sign * (grad - weighted) / total, mask=s < S)


@triton.jit
def _count_forward_kernel(
    attention, boxes, mask, base, rise,
    features, count, certainty, scale, rows, products,
    N, MAX_OBJECTS, IMAGES_PER_COUNTER,
    HAS_MASK: tl.constexpr, KEEP: tl.constexpr, S: tl.constexpr, B: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    base += image // IMAGES_PER_COUNTER * 8 * S
    rise += image // IMAGES_PER_COUNTER * 8 * S
    square = image * N * N
    tile = tl.arange(0, B)

    # X = f4(A) f5(D), for all threads of this block to read.
    from_distance = 0.0
    for i0 in range(0, N, B):
        i = i0 + tile
        real_i = _real(mask, image, i, N, HAS_MASK)
        a_i = tl.load(attention + image * N + i, mask=real_i, other=0.0)[:, None]
        for j0 in range(0, N, B):
            j = j0 + tile
            real_j = _real(mask, image, j, N, HAS_MASK)
            pair = real_i[:, None] & real_j[None, :]
            a_j = tl.load(attention + image * N + j, mask=real_j, other=0.0)[None, :]
            d = _distance(boxes, image, i, j, real_i, real_j, N)
            of_a = _value(a_i * a_j, base + 3 * S, rise + 3 * S, S)
            of_d = _value(d, base + 4 * S, rise + 4 * S, S)
            x = tl.where(pair, of_a * of_d, 0.0)
            tl.store(rows + square + i[:, None] * N + j[None, :], x, mask=(i[:, None] < N) & (j[None, :] < N))
            sure = _value(d, base + 6 * S, rise + 6 * S, S)
            from_distance += tl.sum(tl.sum(tl.where(pair, tl.abs(sure - 0.5), 0.0), axis=1), axis=0)
    tl.debug_barrier()

    # Row sums of Sim, and s = 1 / row sum.
    for i0 in range(0, N, B):
        i = i0 + tile
        real_i = _real(mask, image, i, N, HAS_MASK)
        a_i = tl.load(attention + image * N + i, mask=real_i, other=0.0)[:, None]
        alike = tl.zeros((B,), tl.float32)
        for j0 in range(0, N, B):
            j = j0 + tile
            real_j = _real(mask, image, j, N, HAS_MASK)
            a_j = tl.load(attention + image * N + j, mask=real_j, other=0.0)[None, :]
            product = tl.full((B, B), 1.0, tl.float32)
            zeros = tl.zeros((B, B), tl.int32)
            for k in range(0, N):
                x_i = tl.load(rows + square + k * N + i, mask=i < N, other=0.0)[:, None]
                x_j = tl.load(rows + square + k * N + j, mask=j < N, other=0.0)[None, :]
                factor = _value(1.0 - tl.abs(x_i - x_j), base + 2 * S, rise + 2 * S, S)
                is_zero = factor == 0
                zeros += is_zero.to(tl.int32)
                product *= tl.where(is_zero, 1.0, factor)
            if KEEP:
                # One number for both: below 0 where one factor is 0, 0 where more are.
                signed = tl.where(zeros == 0, product, tl.where(zeros == 1, -product, 0.0))
                tl.store(products + square + i[:, None] * N + j[None, :], signed,
                         mask=(i[:, None] < N) & (j[None, :] < N))  # fmt: skip
            close = _value(1.0 - tl.abs(a_i - a_j), base + 2 * S, rise + 2 * S, S)
            similarity = tl.where(zeros == 0, close * product, 0.0)
            similarity = tl.where(i[:, None] == j[None, :], 1.0, similarity)
            alike += tl.sum(tl.where(real_i[:, None] & real_j[None, :], similarity, 0.0), axis=1)
        tl.store(scale + image * N + i, tl.where(real_i, 1.0 / tl.where(real_i, alike, 1.0), 0.0), mask=i < N)
    tl.debug_barrier()

    # The sum of C, and the certainty of the weights.
    total, from_attention, number = 0.0, 0.0, 0.0
    for i0 in range(0, N, B):
        i = i0 + tile
        real_i = _real(mask, image, i, N, HAS_MASK)
        a_i = tl.load(attention + image * N + i, mask=real_i, other=0.0)
        loops = _value(a_i * a_i, base, rise, S)
        for j0 in range(0, N, B):
            j = j0 + tile
            real_j = _real(mask, image, j, N, HAS_MASK)
            a_j = tl.load(attention + image * N + j, mask=real_j, other=0.0)
            d = _distance(boxes, image, i, j, real_i, real_j, N)
            of_a = _value(a_i[:, None] * a_j[None, :], base, rise, S)
            of_d = _value(d, base + S, rise + S, S)
            s_j = tl.load(scale + image * N + j, mask=real_j, other=0.0)
            loops += tl.sum(of_a * of_d * s_j[None, :], axis=1)
        total += tl.sum(loops * tl.load(scale + image * N + i, mask=real_i, other=0.0), axis=0)
        sure = _value(a_i, base + 5 * S, rise + 5 * S, S)
        from_attention += tl.sum(tl.where(real_i, tl.abs(sure - 0.5), 0.0), axis=0)
        number += tl.sum(real_i.to(tl.float32), axis=0)

    # No real proposal: as certain as an image whose every weight is 0.
    divisor = tl.maximum(number, 1.0)
    mean = tl.where(number > 0, from_attention / divisor + from_distance / (divisor * divisor), 1.0)
    c = tl.minimum(tl.sqrt(total + 1e-20), MAX_OBJECTS * 1.0)
    confidence = _value(mean, base + 7 * S, rise + 7 * S, S)
    lower = tl.floor(c)
    upper = tl.minimum(lower + 1.0, MAX_OBJECTS * 1.0)
    class_number = tl.arange(0, CLASSES)
    as_float = class_number.to(tl.float32)
    one_hot = tl.where(as_float == lower, 1.0 - (c - lower), 0.0) + tl.where(as_float == upper, c - lower, 0.0)
    tl.store(features + image * (MAX_OBJECTS + 1) + class_number, confidence * one_hot,
             mask=class_number <= MAX_OBJECTS)  # fmt: skip
    tl.store(count + image, c)
    tl.store(certainty + image, mean)


@triton.jit
def _count_backward_kernel(
    attention, boxes, mask, base, rise,
    count, certainty, scale, rows, products, grad_features, grad_count,
    grad_alike, grad_rows, grad_attention, grad_boxes, grad_rise,
    N, MAX_OBJECTS, IMAGES_PER_COUNTER, BLOCKS_PER_COUNTER, IMAGES_PER_BLOCK,
    HAS_MASK: tl.constexpr, S: tl.constexpr, SP: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    counter = tl.program_id(0) // BLOCKS_PER_COUNTER
    block = tl.program_id(0) % BLOCKS_PER_COUNTER
    base += counter * 8 * S
    rise += counter * 8 * S
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
    first = block * IMAGES_PER_BLOCK
    for of_counter in range(first, tl.minimum(first + IMAGES_PER_BLOCK, IMAGES_PER_COUNTER)):
        image = counter.to(tl.int64) * IMAGES_PER_COUNTER + of_counter
        square = image * N * N

        # From the features to the sum of C and the confidence.
        c, mean = tl.load(count + image), tl.load(certainty + image)
        confidence, mean_rise, mean_position = _look_up(mean, base + 7 * S, rise + 7 * S, S)
        lower = tl.floor(c)
        upper = tl.minimum(lower + 1.0, MAX_OBJECTS * 1.0)
        grad_lower = tl.load(grad_features + image * (MAX_OBJECTS + 1) + lower.to(tl.int32))
        grad_upper = tl.load(grad_features + image * (MAX_OBJECTS + 1) + upper.to(tl.int32))
        grad_confidence = (1.0 - (c - lower)) * grad_lower + (c - lower) * grad_upper
        grad_total = (confidence * (grad_upper - grad_lower) + tl.load(grad_count + image)) / (2.0 * c)
        grad_mean = grad_confidence * mean_rise * S
        owed8 += tl.minimum(tl.maximum(mean_position - s, 0.0), 1.0) * grad_confidence
        number = 0.0
        for i0 in range(0, N, B):
            number += tl.sum(_real(mask, image, i0 + tile, N, HAS_MASK).to(tl.float32), axis=0)
        number = tl.maximum(number, 1.0)

        # From C to the row sums of Sim, and to each weight on its own.
        for i0 in range(0, N, B):
            i = i0 + tile
            real_i = _real(mask, image, i, N, HAS_MASK)
            a_i = tl.load(attention + image * N + i, mask=real_i, other=0.0)
            s_i = tl.load(scale + image * N + i, mask=real_i, other=0.0)
            loop, loop_rise, loop_position = _look_up(a_i * a_i, base, rise, S)
            grad_scale = loop
            for j0 in range(0, N, B):
                j = j0 + tile
                real_j = _real(mask, image, j, N, HAS_MASK)
                a_j = tl.load(attention + image * N + j, mask=real_j, other=0.0)
                d = _distance(boxes, image, i, j, real_i, real_j, N)
                of_a = _value(a_i[:, None] * a_j[None, :], base, rise, S)
                of_d = _value(d, base + S, rise + S, S)
                s_j = tl.load(scale + image * N + j, mask=real_j, other=0.0)
                grad_scale += 2.0 * tl.sum(of_a * of_d * s_j[None, :], axis=1)
            tl.store(grad_alike + image * N + i, -grad_total * grad_scale * s_i * s_i, mask=i < N)
            grad_loop = grad_total * s_i
            owed1 += _owed_by_row(loop_position, grad_loop, s)
            sure, sure_rise, sure_position = _look_up(a_i, base + 5 * S, rise + 5 * S, S)
            side = tl.where(sure > 0.5, 1.0, tl.where(sure < 0.5, -1.0, 0.0))
            grad_sure = tl.where(real_i, grad_mean / number * side, 0.0)
            owed6 += _owed_by_row(sure_position, grad_sure, s)
            grad_a = grad_loop * loop_rise * S * 2.0 * a_i + grad_sure * sure_rise * S
            tl.store(grad_attention + image * N + i, grad_a, mask=i < N)
        tl.debug_barrier()

        # From Sim to the rows of X: box i, column k, over all boxes j.
        for i0 in range(0, N, B):
            i = i0 + tile
            real_i = _real(mask, image, i, N, HAS_MASK)
            a_i = tl.load(attention + image * N + i, mask=real_i, other=0.0)
            alike_i = tl.load(grad_alike + image * N + i, mask=real_i, other=0.0)
            for k0 in range(0, N, B):
                k = k0 + tile
                inside = (i[:, None] < N) & (k[None, :] < N)
                x_i = tl.load(rows + square + i[:, None] * N + k[None, :], mask=inside, other=0.0)
                grad_x = tl.zeros((B, B), tl.float32)
                owed = tl.zeros((SP, B, B), tl.float32)
                for j in range(0, N):
                    real_j = _real(mask, image, j, N, HAS_MASK)
                    a_j = tl.load(attention + image * N + j)
                    close = _value(1.0 - tl.abs(a_i - a_j), base + 2 * S, rise + 2 * S, S)
                    signed = tl.load(products + square + j * N + i, mask=i < N, other=0.0)
                    grad = (alike_i + tl.load(grad_alike + image * N + j)) * close * tl.abs(signed)
                    grad = tl.where(real_i & real_j & (i != j), grad, 0.0)[:, None]
                    x_j = tl.load(rows + square + j * N + k, mask=k < N, other=0.0)[None, :]
                    factor, slope, position = _look_up(1.0 - tl.abs(x_i - x_j), base + 2 * S, rise + 2 * S, S)
                    # With one zero factor only that factor has a gradient; with more, none has.
                    is_zero = factor == 0
                    others = tl.where(is_zero == (signed[:, None] < 0), grad / tl.where(is_zero, 1.0, factor), 0.0)
                    others = tl.where(inside, others, 0.0)
                    side = tl.where(x_i > x_j, 1.0, tl.where(x_i < x_j, -1.0, 0.0))
                    grad_x -= others * slope * S * side
                    share = tl.minimum(tl.maximum(position[None, :, :] - s[:, None, None], 0.0), 1.0)
                    owed += share * others[None, :, :]
                tl.store(grad_rows + square + i[:, None] * N + k[None, :], grad_x, mask=inside)
                owed3 += 0.5 * tl.sum(tl.sum(owed, axis=2), axis=1)
        tl.debug_barrier()

        # From Ã, X, Sim and the confidence to relevance and distance, and on to weights and boxes.
        for i0 in range(0, N, B):
            i = i0 + tile
            real_i = _real(mask, image, i, N, HAS_MASK)
            a_i = tl.load(attention + image * N + i, mask=real_i, other=0.0)[:, None]
            s_i = tl.load(scale + image * N + i, mask=real_i, other=0.0)[:, None]
            alike_i = tl.load(grad_alike + image * N + i, mask=real_i, other=0.0)[:, None]
            x1, y1, x2, y2 = _boxes(boxes, image, i, real_i, N)
            ax1, ay1, ax2, ay2 = x1[:, None], y1[:, None], x2[:, None], y2[:, None]
            grad_a = tl.load(grad_attention + image * N + i, mask=i < N, other=0.0)
            grad_x1 = tl.zeros((B,), tl.float32)
            grad_y1 = tl.zeros((B,), tl.float32)
            grad_x2 = tl.zeros((B,), tl.float32)
            grad_y2 = tl.zeros((B,), tl.float32)
            for j0 in range(0, N, B):
                j = j0 + tile
                real_j = _real(mask, image, j, N, HAS_MASK)
                pair = real_i[:, None] & real_j[None, :] & (i[:, None] != j[None, :])
                a_j = tl.load(attention + image * N + j, mask=real_j, other=0.0)[None, :]
                s_j = tl.load(scale + image * N + j, mask=real_j, other=0.0)[None, :]
                alike_j = tl.load(grad_alike + image * N + j, mask=real_j, other=0.0)[None, :]
                x1, y1, x2, y2 = _boxes(boxes, image, j, real_j, N)
                bx1, by1, bx2, by2 = x1[None, :], y1[None, :], x2[None, :], y2[None, :]
                d, width, height, union = _overlap(ax1, ay1, ax2, ay2, bx1, by1, bx2, by2)
                here, there = i[:, None] * N + j[None, :], j[None, :] * N + i[:, None]

                grad_edge = tl.where(pair, 2.0 * grad_total * s_i * s_j, 0.0)
                grad_row = tl.load(grad_rows + square + here, mask=pair, other=0.0)
                grad_row += tl.load(grad_rows + square + there, mask=pair, other=0.0)
                edge_a, edge_a_rise, at_a = _look_up(a_i * a_j, base, rise, S)
                edge_d, edge_d_rise, at_d = _look_up(d, base + S, rise + S, S)
                row_a, row_a_rise, at_a = _look_up(a_i * a_j, base + 3 * S, rise + 3 * S, S)
                row_d, row_d_rise, at_d = _look_up(d, base + 4 * S, rise + 4 * S, S)
                sure, sure_rise, at_d = _look_up(d, base + 6 * S, rise + 6 * S, S)
                side = tl.where(sure > 0.5, 1.0, tl.where(sure < 0.5, -1.0, 0.0))
                grad_sure = tl.where(pair, 2.0 * grad_mean / (number * number) * side, 0.0)
                owed1 += 0.5 * _owed(at_a, grad_edge * edge_d, s)
                owed2 += 0.5 * _owed(at_d, grad_edge * edge_a, s)
                owed4 += 0.5 * _owed(at_a, grad_row * row_d, s)
                owed5 += 0.5 * _owed(at_d, grad_row * row_a, s)
                owed7 += 0.5 * _owed(at_d, grad_sure, s)

                product = tl.maximum(tl.load(products + square + here, mask=pair, other=0.0), 0.0)
                grad_close = (alike_i + alike_j) * product
                close, close_rise, at_close = _look_up(1.0 - tl.abs(a_i - a_j), base + 2 * S, rise + 2 * S, S)
                owed3 += 0.5 * _owed(at_close, grad_close, s)
                side = tl.where(a_i > a_j, 1.0, tl.where(a_i < a_j, -1.0, 0.0))
                grad_relevance = (grad_edge * edge_d * edge_a_rise + grad_row * row_d * row_a_rise) * S
                grad_a += tl.sum(grad_relevance * a_j - grad_close * close_rise * S * side, axis=1)

                grad_d = (grad_edge * edge_a * edge_d_rise + grad_row * row_a * row_d_rise + grad_sure * sure_rise) * S
                over = tl.where(union > 0, grad_d / tl.where(union > 0, union, 1.0), 0.0)
                shared = tl.maximum(width, 0.0) * tl.maximum(height, 0.0)
                grad_area = over * shared / tl.where(union > 0, union, 1.0)
                grad_shared = -over - grad_area
                across_x = grad_area * tl.where(ax2 >= ax1, tl.maximum(ay2 - ay1, 0.0), 0.0)
                across_y = grad_area * tl.where(ay2 >= ay1, tl.maximum(ax2 - ax1, 0.0), 0.0)
                wide = tl.where(width >= 0, grad_shared * tl.maximum(height, 0.0), 0.0)
                high = tl.where(height >= 0, grad_shared * tl.maximum(width, 0.0), 0.0)
                # Equal edges share their gradient, as in PyTorch's maximum and minimum.
                share = tl.where(ax1 > bx1, 1.0, tl.where(ax1 == bx1, 0.5, 0.0))
                grad_x1 -= tl.sum(across_x + wide * share, axis=1)
                share = tl.where(ay1 > by1, 1.0, tl.where(ay1 == by1, 0.5, 0.0))
                grad_y1 -= tl.sum(across_y + high * share, axis=1)
                share = tl.where(ax2 < bx2, 1.0, tl.where(ax2 == bx2, 0.5, 0.0))
                grad_x2 += tl.sum(across_x + wide * share, axis=1)
                share = tl.where(ay2 < by2, 1.0, tl.where(ay2 == by2, 0.5, 0.0))
                grad_y2 += tl.sum(across_y + high * share, axis=1)
            tl.store(grad_attention + image * N + i, grad_a, mask=i < N)
            corner = grad_boxes + (image * N + i) * 4
            tl.store(corner, grad_x1, mask=i < N)
            tl.store(corner + 1, grad_y1, mask=i < N)
            tl.store(corner + 2, grad_x2, mask=i < N)
            tl.store(corner + 3, grad_y2, mask=i < N)

    out = grad_rise + tl.program_id(0).to(tl.int64) * 8 * S + segment
    inside = segment < S
    tl.store(out, owed1, mask=inside)
    tl.store(out + S, owed2, mask=inside)
    tl.store(out + 2 * S, owed3, mask=inside)
    tl.store(out + 3 * S, owed4, mask=inside)
    tl.store(out + 4 * S, owed5, mask=inside)
    tl.store(out + 5 * S, owed6, mask=inside)
    tl.store(out + 6 * S, owed7, mask=inside)
    tl.store(out + 7 * S, owed8, mask=inside)


def _tile(boxes: int) -> tuple[int, int]:
    """Return the side of a tile and the number of warps for images of so many boxes."""
    return (16, 2) if boxes <= 16 else (32, 8)


def _segments(weight: Tensor) -> tuple[Tensor, Tensor]:
    base, rise = torch.empty_like(weight), torch.empty_like(weight)
    counters, _, segments = weight.shape
    _segments_kernel[(counters,)](weight, base, rise, S=segments, SP=triton.next_power_of_2(segments), num_warps=1)
    return base, rise


def count_forward_triton(
    attention: Tensor, boxes: Tensor, weight: Tensor, mask: Tensor | None, max_objects: int, keep: bool
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Count ``attention [M * R, N]`` with ``weight [M, 8, S]``: features, count, and what backward needs."""
    images, number = attention.shape
    counters, _, segments = weight.shape
    features = attention.new_empty(images, max_objects + 1)
    count, certainty = attention.new_empty(images), attention.new_empty(images)
    scale = torch.empty_like(attention)
    rows = attention.new_empty(images, number, number)
    products = attention.new_empty((images, number, number) if keep else (0, 0, 0))
    base, rise = _segments(weight)
    side, warps = _tile(number)
    if images:
        _count_forward_kernel[(images,)](
            attention, boxes, mask, base, rise,
            features, count, certainty, scale, rows, products,
            number, max_objects, images // counters,
            HAS_MASK=mask is not None, KEEP=keep, S=segments, B=side,
            CLASSES=triton.next_power_of_2(max_objects + 1), num_warps=warps,
        )  # fmt: skip
    return features, count, [certainty, scale, rows, products, base, rise]


def count_backward_triton(
    attention: Tensor,
    boxes: Tensor,
    weight: Tensor,
    mask: Tensor | None,
    count: Tensor,
    kept: list[Tensor],
    grad_features: Tensor,
    grad_count: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of attention, boxes and weight."""
    certainty, scale, rows, products, base, rise = kept
    images, number = attention.shape
    counters, _, segments = weight.shape
    grad_attention, grad_boxes, grad_weight = (torch.empty_like(t) for t in (attention, boxes, weight))
    if not images:
        return grad_attention, grad_boxes, grad_weight.zero_()
    images_a_counter = images // counters
    images_a_block = min(max(images // BLOCKS_WANTED, 1), MOST_IMAGES_A_BLOCK)
    blocks = triton.cdiv(images_a_counter, images_a_block)
    grad_rise = weight.new_empty(counters, blocks, 8, segments)
    side, warps = _tile(number)
    padded = triton.next_power_of_2(segments)
    _count_backward_kernel[(counters * blocks,)](
        attention, boxes, mask, base, rise,
        count, certainty, scale, rows, products, grad_features, grad_count,
        torch.empty_like(attention), torch.empty_like(rows), grad_attention, grad_boxes, grad_rise,
        number, grad_features.shape[1] - 1, images_a_counter, blocks, images_a_block,
        HAS_MASK=mask is not None, S=segments, SP=padded, B=side, num_warps=warps,
    )  # fmt: skip
    _weight_gradient_kernel[(counters,)](weight, grad_rise.sum(1), grad_weight, S=segments, SP=padded, num_warps=1)
    return grad_attention, grad_boxes, grad_weight
