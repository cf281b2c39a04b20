"""The activations inside Numba kernels: eight values at once, and the gradients of their weights."""

from typing import Any, NamedTuple

import numpy as np

from tallybox.counter.reference import SIMILARITY
from tallybox.kernels import TINY
from tallybox.kernels.cpu.compiling import Array, Number, compiled
from tallybox.kernels.cpu.vectors import (
    LANES,
    REGISTER_ENTRIES,
    add_at,
    as_numbers,
    choose,
    look_up_in_memory,
    look_up_in_registers,
    truncate,
)

Vector = Any  # eight numbers of the arrays' precision
Integers = Any
Truths = Any

# Gradients of activations are summed in the inputs' precision for at most this many steps, then in double.
STEPS_BETWEEN_FLUSHES = 1 << 16


class Tables(NamedTuple):
    """A counter's activations: in segment s, f(x) = base[s] + rise[s] (S x - s)."""

    base: Array  # [8, S]
    rise: Array  # [8, S]


@compiled
def empty_table(segments: int, like: Array) -> Array:
    """Allocate ``[8, S]`` with enough numbers behind it for look-ups in registers, which read past a short row."""
    return np.empty(8 * segments + REGISTER_ENTRIES, like.dtype)[: 8 * segments].reshape(8, segments)


@compiled
def normalise(weight: Array, f: Tables) -> None:
    """Fill a counter's tables from its weights ``[8, S]``; a row that holds NaN becomes NaN."""
    segments = weight.shape[1]
    for role in range(8):
        largest = 0.0
        for s in range(segments):
            size = abs(weight[role, s])
            if size > largest or size != size:
                largest = size
        total = 0.0
        for s in range(segments):
            total += abs(weight[role, s]) / largest if largest != 0 else 1.0
        start = 0.0
        for s in range(segments):
            share = (abs(weight[role, s]) / largest if largest != 0 else 1.0) / total
            f.base[role, s] = start
            # The last segment ends at exactly 1, or NaN.
            f.rise[role, s] = share if s < segments - 1 else 1 - f.base[role, s] + 0 * share
            start += share


@compiled
def nan_among(first: int, last: int, f: Tables) -> Number:
    """Return NaN if one of the activations first ... last is, else 0."""
    total = f.rise.dtype.type(0)
    for role in range(first, last + 1):
        total += f.rise.dtype.type(0) * f.rise[role, f.rise.shape[1] - 1]
    return total


@compiled
def weight_gradient(weight: Array, grad_rise: Array, grad_weight: Array) -> None:
    """Turn the gradients of all counters' rises |w| / Σ|w|, ``[M, 8, S]``, into those of their weights."""
    counters, roles, segments = weight.shape
    for counter in range(counters):
        for role in range(roles):
            w, grad = weight[counter, role], grad_rise[counter, role]
            total, weighted = 0.0, 0.0
            for s in range(segments):
                total += abs(w[s])
                weighted += grad[s] * abs(w[s])
            for s in range(segments):
                slope = np.sign(w[s]) * (grad[s] - weighted / total) / total
                grad_weight[counter, role, s] = slope if total != 0 else 0.0


@compiled
def look_up(table: Array, role: int, s: Integers) -> Vector:
    """Return table[role, s]."""
    if table.shape[1] <= REGISTER_ENTRIES:
        return look_up_in_registers(table, (role, 0), s)
    return look_up_in_memory(table, (role, 0), s)


@compiled
def locate(x: Vector, f: Tables) -> tuple[Integers, Vector]:
    """Return the segments that x in [0, 1] fall into, the last for NaN, and how far into them, in [0, 1]."""
    dtype = f.rise.dtype.type
    segments = dtype(f.rise.shape[1])
    position = x * segments
    s = truncate(max(min(position, segments - dtype(1)), dtype(0)))
    return s, position - as_numbers(s, position)


@compiled
def value(role: int, s: Integers, fraction: Vector, f: Tables) -> Vector:
    """f(x) of one activation for x that `locate` found."""
    return look_up(f.base, role, s) + look_up(f.rise, role, s) * fraction


@compiled
def accumulate(role: int, s: Integers, fraction: Vector, grad: Vector, f: Tables, sums: Array) -> Vector:
    """Add gradients of f(x) to the sums of their segments; return the gradients of x."""
    add_at(sums, (role, 0, 0, 0), s, grad, grad * fraction)
    return grad * look_up(f.rise, role, s) * f.rise.dtype.type(f.rise.shape[1])


@compiled
def flush(sums: Array, grad_rise: Array) -> None:
    """Add the sums ``[8, S, LANES, 2]`` to a counter's gradient ``[8, S]``, and clear them.

    f(x) depends on the rises of all segments before that of x, and on a fraction of its own.
    """
    for role in range(8):
        later = 0.0
        for s in range(sums.shape[1] - 1, -1, -1):
            of_values, of_fractions = 0.0, 0.0
            for lane in range(LANES):
                of_values += sums[role, s, lane, 0]
                of_fractions += sums[role, s, lane, 1]
            grad_rise[role, s] += of_fractions + later
            later += of_values
    sums[:] = 0.0


@compiled
def signed(x: Vector, sign: Vector, zero: Number) -> Vector:
    """X times the sign of another number, and that of 0 is 0."""
    return choose(sign > zero, x, choose(sign < zero, -x, zero))


@compiled
def row_similarity(x_i: Vector, x_j: Vector, f: Tables) -> Vector:
    """f3(1 - |X_ik - X_jk|), not below TINY."""
    dtype = f.rise.dtype.type
    s, fraction = locate(dtype(1) - abs(x_i - x_j), f)
    return max(value(SIMILARITY, s, fraction, f), dtype(TINY))


@compiled
def row_similarity_backward(
    x_i: Vector, x_j: Vector, product: Vector, is_real: Truths, f: Tables, sums: Array
) -> Vector:
    """Return minus the gradient of X_ik, given a row product times its gradient; accumulate that of f3."""
    dtype = f.rise.dtype.type
    difference = x_i - x_j
    s, fraction = locate(dtype(1) - abs(difference), f)
    slope = look_up(f.rise, SIMILARITY, s)
    others = product / max(look_up(f.base, SIMILARITY, s) + slope * fraction, dtype(TINY))
    grad = choose(is_real, others, dtype(0))
    add_at(sums, (SIMILARITY, 0, 0, 0), s, grad, grad * fraction)
    return signed(others * slope * dtype(f.rise.shape[1]), difference, dtype(0))
