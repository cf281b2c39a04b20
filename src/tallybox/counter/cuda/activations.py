"""The activations inside Triton kernels, and the gradients of their weights."""

import os

import torch
import triton
import triton.language as tl

from tallybox.counter import reference
from tallybox.kernels.cuda import kernel
from tallybox.kernels.cuda.boxes import sign

# PTX has a subtraction that saturates to [0, 1]; Triton's interpreter and other compilers have not.
HAS_PTX = tl.constexpr(os.environ.get("TRITON_INTERPRET") != "1" and torch.version.hip is None)

RELEVANCE_EDGE = tl.constexpr(reference.RELEVANCE_EDGE)
DISTANCE_EDGE = tl.constexpr(reference.DISTANCE_EDGE)
SIMILARITY = tl.constexpr(reference.SIMILARITY)
RELEVANCE_ROW = tl.constexpr(reference.RELEVANCE_ROW)
DISTANCE_ROW = tl.constexpr(reference.DISTANCE_ROW)
ATTENTION_CONFIDENCE = tl.constexpr(reference.ATTENTION_CONFIDENCE)
DISTANCE_CONFIDENCE = tl.constexpr(reference.DISTANCE_CONFIDENCE)
CONFIDENCE = tl.constexpr(reference.CONFIDENCE)
EDGE_FLOOR = tl.constexpr(reference.EDGE_FLOOR)


@triton.jit
def look_up(x, tables, ROLE: tl.constexpr, S: tl.constexpr):
    """Return f(x) of an activation, the rise of the segment of x, and the position of x in segments."""
    position = x * S
    start = tl.floor(position)
    start = tl.where(start > 0.0, start, 0.0)  # also for NaN, which maxima keep or drop by the version of Triton
    start = tl.where(start < S - 1.0, start, S - 1.0)
    base = tables + ROLE * S + start.to(tl.int32)
    segment_rise = tl.load(base + 8 * S)
    return tl.load(base) + segment_rise * (position - start), segment_rise, position


@triton.jit
def value(x, tables, ROLE: tl.constexpr, S: tl.constexpr):
    """f(x)."""
    return look_up(x, tables, ROLE, S)[0]


@triton.jit
def share(position, s):
    """How much of each segment lies below a position: clamp(position - s, 0, 1)."""
    if HAS_PTX:
        return tl.inline_asm_elementwise(
            "sub.sat.f32 $0, $1, $2;", "=f,f,f", [position, s], dtype=tl.float32, is_pure=True, pack=1
        )
    return tl.minimum(tl.maximum(position - s, 0.0), 1.0)


@triton.jit
def normalise(weight, tables, S: tl.constexpr, SP: tl.constexpr):
    """Write the tables of one counter's weights [8, S]; the last segment ends at exactly 1.

    Every block of a counter writes the same numbers to the same place, and then reads its own.
    """
    s = tl.arange(0, SP)[None, :]
    index = tl.arange(0, 8)[:, None] * S + s
    size = tl.abs(tl.load(weight + index, mask=s < S, other=0.0))
    all_zero = tl.max(tl.where(size == 0, 0.0, 1.0), axis=1)[:, None] == 0  # NaN is not zero
    largest = tl.where(all_zero, 1.0, tl.max(size, axis=1)[:, None])
    size = tl.where(all_zero, tl.where(s < S, 1.0, 0.0), size / largest)
    segment_rise = size / tl.sum(size, axis=1)[:, None]
    start = tl.cumsum(segment_rise, axis=1) - segment_rise
    start = tl.where(start < 0, 0.0, tl.where(start > 1, 1.0, start))
    segment_rise = tl.where(s == S - 1, 1.0 - start + 0.0 * segment_rise, segment_rise)
    tl.store(tables + index, start, mask=s < S)
    tl.store(tables + 8 * S + index, segment_rise, mask=s < S)
    tl.debug_barrier()


@triton.jit
def nan_among(tables, FIRST: tl.constexpr, LAST: tl.constexpr, S: tl.constexpr):
    """NaN if one of the activations FIRST ... LAST is, else 0."""
    total = 0.0
    for role in tl.static_range(FIRST, LAST + 1):
        total += 0.0 * tl.load(tables + 8 * S + role * S + S - 1)
    return total


@triton.jit
def write_results(
    total, number, from_attention, from_distance, image, here, tables, features, count,
    saved_count, saved_confidence_input, MAX_OBJECTS, S: tl.constexpr,
):  # fmt: skip
    """Write the features and count of images [L], and save their count and certainty.

    ``total`` is the sum of C, ``number`` how many real proposals there are, the others are sums over these and over
    their pairs.
    """
    # No real proposal: as certain as an image whose every weight is 0.
    divisor = tl.maximum(number, 1.0)
    mean = tl.where(number > 0, from_attention / divisor + from_distance / (divisor * divisor), 1.0)
    # Products and diagonals take no NaN from an activation.
    c = tl.sqrt(total + EDGE_FLOOR + nan_among(tables, RELEVANCE_EDGE, DISTANCE_ROW, S))
    c = tl.where(c > MAX_OBJECTS, MAX_OBJECTS * 1.0, c)  # NaN stays NaN, here and in the features
    tl.store(count + image, c, mask=here)
    tl.store(saved_count, c, mask=here)
    tl.store(saved_confidence_input, mean, mask=here)
    confidence = value(mean, tables, CONFIDENCE, S)
    lower = tl.floor(c)
    upper, upper_share = tl.minimum(lower + 1.0, MAX_OBJECTS * 1.0), c - lower
    for objects in range(0, MAX_OBJECTS + 1):
        one_hot = tl.where(lower == objects, 1.0 - upper_share, 0.0) + tl.where(upper == objects, upper_share, 0.0)
        tl.store(features + image * (MAX_OBJECTS + 1) + objects, confidence * (one_hot + (c - c)), mask=here)


@triton.jit
def image_gradients(
    image, here, saved_count, saved_confidence_input, tables, grad_features, grad_count, MAX_OBJECTS,
    HAS_GRAD_COUNT: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Return images' gradients of the sum of C, the confidence and the certainty, and the position of the certainty."""
    c = tl.load(saved_count, mask=here, other=1.0)
    mean = tl.load(saved_confidence_input, mask=here, other=0.0)
    confidence, mean_rise, position = look_up(mean, tables, CONFIDENCE, S)
    lower = tl.where(c == c, tl.floor(c), 0.0)  # an index even if c is NaN
    upper = tl.minimum(lower + 1.0, MAX_OBJECTS * 1.0)
    of_image = grad_features + image * (MAX_OBJECTS + 1)
    grad_lower = tl.load(of_image + lower.to(tl.int32), mask=here, other=0.0)
    grad_upper = tl.load(of_image + upper.to(tl.int32), mask=here, other=0.0)
    grad_c = confidence * (grad_upper - grad_lower)
    if HAS_GRAD_COUNT:
        grad_c += tl.load(grad_count + image, mask=here, other=0.0)
    grad_confidence = (1.0 - (c - lower)) * grad_lower + (c - lower) * grad_upper
    return grad_c / (2.0 * c), grad_confidence, grad_confidence * mean_rise * S, position


@triton.jit
def proposal_gradients(a, s, real, grad_total, grad_mean, number, tables, S: tl.constexpr):
    """Return each weight's own gradient, and the positions and gradients of f1 (self-loop) and f6 (certainty)."""
    _, loop_rise, at_loop = look_up(a * a, tables, RELEVANCE_EDGE, S)
    grad_loop = grad_total * s
    certain, certain_rise, at_certain = look_up(a, tables, ATTENTION_CONFIDENCE, S)
    grad_certain = tl.where(real, grad_mean / number * sign(certain - 0.5), 0.0)
    grad_a = (grad_loop * loop_rise * 2.0 * a + grad_certain * certain_rise) * S
    return grad_a, at_loop, grad_loop, at_certain, grad_certain


@triton.jit
def pair_gradients(
    a_i, a_j, s_i, s_j, d, grad_row, grad_close, pair, grad_total, grad_mean, number, tables, S: tl.constexpr,
):  # fmt: skip
    """From the gradients of C, of X and of f3(1 - |a_i - a_j|) to those of a_i and D, and of all functions of a pair.

    After these two, the positions of A, D and 1 - |a_i - a_j|, and the gradients of f1, f2, f4, f5 and f7.
    """
    grad_edge = tl.where(pair, 2.0 * grad_total * s_i * s_j, 0.0)
    edge_a, edge_a_rise, at_a = look_up(a_i * a_j, tables, RELEVANCE_EDGE, S)
    edge_d, edge_d_rise, at_d = look_up(d, tables, DISTANCE_EDGE, S)
    row_a, row_a_rise, at_a = look_up(a_i * a_j, tables, RELEVANCE_ROW, S)
    row_d, row_d_rise, at_d = look_up(d, tables, DISTANCE_ROW, S)
    certain, certain_rise, at_d = look_up(d, tables, DISTANCE_CONFIDENCE, S)
    grad_certain = tl.where(pair, 2.0 * grad_mean / (number * number) * sign(certain - 0.5), 0.0)
    _, close_rise, at_close = look_up(1.0 - tl.abs(a_i - a_j), tables, SIMILARITY, S)
    of_edge_a, of_edge_d = grad_edge * edge_d, grad_edge * edge_a
    of_row_a, of_row_d = grad_row * row_d, grad_row * row_a
    grad_relevance = (of_edge_a * edge_a_rise + of_row_a * row_a_rise) * S
    grad_a = grad_relevance * a_j - grad_close * close_rise * S * sign(a_i - a_j)
    grad_d = (of_edge_d * edge_d_rise + of_row_d * row_d_rise + grad_certain * certain_rise) * S
    return grad_a, grad_d, at_a, at_d, at_close, of_edge_a, of_edge_d, of_row_a, of_row_d, grad_certain


@kernel
def weight_gradient_kernel(
    weight, partial, grad_weight, BLOCKS_PER_COUNTER, S: tl.constexpr, SP: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Sum the gradients of rises |w| / Σ|w| over a counter's blocks [blocks, 8, S]; carry them on to its weights.

    One program for each activation of each counter.
    """
    counter, role = (tl.program_id(0) // 8).to(tl.int64), tl.program_id(0) % 8
    s = tl.arange(0, SP)
    total = tl.zeros((CHUNK, SP), tl.float32)
    for start in range(0, BLOCKS_PER_COUNTER, CHUNK):
        block = start + tl.arange(0, CHUNK)
        inside = (block < BLOCKS_PER_COUNTER)[:, None] & (s < S)[None, :]
        index = (counter * BLOCKS_PER_COUNTER + block[:, None]) * 8 * S + role * S + s[None, :]
        total += tl.load(partial + index, mask=inside, other=0.0)
    grad = tl.sum(total, axis=0)
    own = counter * 8 * S + role * S + s
    w = tl.load(weight + own, mask=s < S, other=0.0)
    size = tl.sum(tl.abs(w), axis=0)
    size = tl.where(size == 0, 1.0, size)
    grad -= tl.sum(grad * tl.abs(w) / size, axis=0)
    tl.store(grad_weight + own, sign(w) * grad / size, mask=s < S)
