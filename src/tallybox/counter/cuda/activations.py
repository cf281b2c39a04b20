"""The activations inside Triton kernels, and the gradients of their weights."""

from __future__ import annotations

import os

import torch
import triton
import triton.language as tl

from tallybox.counter import roles
from tallybox.kernels.cuda.boxes import sign

# PTX has a subtraction that saturates to [0, 1]; Triton's interpreter and other compilers have not.
HAS_PTX = tl.constexpr(os.environ.get("TRITON_INTERPRET") != "1" and torch.version.hip is None)

EDGE_OF_RELEVANCE = tl.constexpr(roles.EDGE_OF_RELEVANCE)
EDGE_OF_DISTANCE = tl.constexpr(roles.EDGE_OF_DISTANCE)
LIKENESS = tl.constexpr(roles.LIKENESS)
ROW_OF_RELEVANCE = tl.constexpr(roles.ROW_OF_RELEVANCE)
ROW_OF_DISTANCE = tl.constexpr(roles.ROW_OF_DISTANCE)
CERTAINTY_OF_ATTENTION = tl.constexpr(roles.CERTAINTY_OF_ATTENTION)
CERTAINTY_OF_DISTANCE = tl.constexpr(roles.CERTAINTY_OF_DISTANCE)
CONFIDENCE = tl.constexpr(roles.CONFIDENCE)


@triton.jit
def look_up(x, tables, ROLE: tl.constexpr, S: tl.constexpr):
    """Return f(x) of an activation, the rise of the segment of x, and the position of x in segments."""
    position = x * S
    start = tl.minimum(tl.maximum(tl.floor(position), 0.0), S - 1.0)
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
def result_gradients(
    c, confidence, image, here, grad_features, grad_count, MAX_OBJECTS,
    HAS_GRAD_FEATURES: tl.constexpr, HAS_GRAD_COUNT: tl.constexpr,
):  # fmt: skip
    """Return the gradients of the sum of C and of the confidence, given those of features and count."""
    lower = tl.where(c == c, tl.floor(c), 0.0)  # an index even if c is NaN
    upper = tl.minimum(lower + 1.0, MAX_OBJECTS * 1.0)
    grad_c = c * 0.0
    grad_confidence = c * 0.0
    if HAS_GRAD_FEATURES:
        of_image = grad_features + image * (MAX_OBJECTS + 1)
        grad_lower = tl.load(of_image + lower.to(tl.int32), mask=here, other=0.0)
        grad_upper = tl.load(of_image + upper.to(tl.int32), mask=here, other=0.0)
        grad_c += confidence * (grad_upper - grad_lower)
        grad_confidence += (1.0 - (c - lower)) * grad_lower + (c - lower) * grad_upper
    if HAS_GRAD_COUNT:
        grad_c += tl.load(grad_count + image, mask=here, other=0.0)
    return grad_c / (2.0 * c), grad_confidence


@triton.jit(do_not_specialize=["BLOCKS_PER_COUNTER"])
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
