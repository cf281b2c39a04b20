"""What both pairs of kernels are made of."""

from __future__ import annotations

import os
from typing import Any

import torch
import triton
import triton.language as tl

from tallybox.kernels.cuda.boxes import sign

# PTX has a subtraction that saturates to [0, 1]; Triton's interpreter and other compilers have not.
HAS_PTX = tl.constexpr(os.environ.get("TRITON_INTERPRET") != "1" and torch.version.hip is None)


SIZES = (
    "IMAGES", "MAX_OBJECTS", "IMAGES_PER_COUNTER", "BLOCKS_PER_COUNTER", "IMAGES_PER_BLOCK", "TILES", "BLOCKS",
    "PARTIAL",
)  # fmt: skip
TENSORS = (
    "attention", "boxes", "mask", "weight", "features", "state", "grad_result", "grad_features", "grad_attention",
     "grad_boxes", "grad_weight", "scratch", "tables", "presence", "distribution",
    "grad_presence", "grad_distribution", "owed", "slope", "shift", "calibration", "evidence", "overlap", "headroom",
    "order", "step", "sharpness", "grad_slope", "grad_shift", "grad_calibration", "grad_evidence", "grad_overlap",
    "grad_headroom", "grad_order", "grad_step", "grad_sharpness",
)  # fmt: skip


def kernel(*more_sizes: str) -> Any:
    """Compile a kernel that, once compiled, serves every call with the same constants (`launch` keeps it).

    So nothing is assumed of a size that happens to be 1 or a multiple of 16, nor of where a tensor lies in memory.
    """
    return triton.jit(do_not_specialize=[*SIZES, *more_sizes], do_not_specialize_on_alignment=[*TENSORS])


@triton.jit
def look_up(x, base, rise, S: tl.constexpr):
    """Return f(x), the rise of its segment, and where x falls: segment number plus place in it."""
    position = x * S
    start = tl.minimum(tl.maximum(tl.floor(position), 0.0), S - 1.0)
    index = start.to(tl.int32)
    segment_rise = tl.load(rise + index)
    return tl.load(base + index) + segment_rise * (position - start), segment_rise, position


@triton.jit
def value(x, base, rise, S: tl.constexpr):
    """f(x)."""
    return look_up(x, base, rise, S)[0]


@triton.jit
def share(position, s):
    """How much of each segment lies below a position: clamp(position - s, 0, 1)."""
    if HAS_PTX:
        return tl.inline_asm_elementwise(
            "sub.sat.f32 $0, $1, $2;", "=f,f,f", [position, s], dtype=tl.float32, is_pure=True, pack=1
        )
    return tl.minimum(tl.maximum(position - s, 0.0), 1.0)


@triton.jit
def normalise(weight, base, rise, S: tl.constexpr, SP: tl.constexpr):
    """Write where each segment of one counter's weights [8, S] starts, and its rise; the last ends at exactly 1.

    Every block of a counter writes the same numbers to the same place, and then reads its own.
    """
    s = tl.arange(0, SP)[None, :]
    place = tl.arange(0, 8)[:, None] * S + s
    size = tl.abs(tl.load(weight + place, mask=s < S, other=0.0))
    largest = tl.max(size, axis=1)[:, None]
    size = tl.where(largest > 0, size / tl.where(largest > 0, largest, 1.0), tl.where(s < S, 1.0, 0.0))
    segment_rise = size / tl.sum(size, axis=1)[:, None]
    start = tl.minimum(tl.maximum(tl.cumsum(segment_rise, axis=1) - segment_rise, 0.0), 1.0)
    segment_rise = tl.where(s == S - 1, 1.0 - start, segment_rise)
    tl.store(base + place, start, mask=s < S)
    tl.store(rise + place, segment_rise, mask=s < S)
    tl.debug_barrier()


@triton.jit
def weight_gradient(
    first, weight, partial, grad_weight, BLOCKS, ROWS: tl.constexpr, S: tl.constexpr, SP: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """Sum what a counter's blocks [BLOCKS, 8, S] say its segments are owed, and carry it on to its weights [8, S].

    So for ROWS of its activations, from the first on. The rise is |w| / Σ|w|.
    """
    place = (first + tl.arange(0, ROWS))[:, None] * S + tl.arange(0, SP)[None, :]
    real = (tl.arange(0, SP) < S)[None, :]
    total = tl.zeros((CHUNK, ROWS, SP), tl.float32)
    for start in range(0, BLOCKS, CHUNK):
        block = start + tl.arange(0, CHUNK)
        inside = (block < BLOCKS)[:, None, None] & real[None, :, :]
        total += tl.load(partial + block[:, None, None] * 8 * S + place[None, :, :], mask=inside, other=0.0)
    grad = tl.sum(total, axis=0)
    w = tl.load(weight + place, mask=real, other=0.0)
    size = tl.sum(tl.abs(w), axis=1)[:, None]
    size = tl.where(size > 0, size, 1.0)
    grad -= tl.sum(grad * tl.abs(w) / size, axis=1)[:, None]
    tl.store(grad_weight + place, sign(w) * grad / size, mask=real)


@kernel()
def weight_gradient_kernel(
    attention, boxes, mask, weight, state, grad_result, grad_attention, grad_boxes, grad_weight, scratch,
    PARTIAL, BLOCKS, S: tl.constexpr, SP: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The last step back: one program for each activation of each counter. Blocks have summed from PARTIAL on."""
    counter = (tl.program_id(0) // 8).to(tl.int64)
    partial = scratch + PARTIAL + counter * BLOCKS * 8 * S
    of_counter = counter * 8 * S
    weight_gradient(
        tl.program_id(0) % 8, weight + of_counter, partial, grad_weight + of_counter, BLOCKS, 1, S, SP, CHUNK
    )
