"""The activations inside Numba kernels: eight values at once, and the gradients of their weights."""

from typing import Any, NamedTuple

import numpy as np

from tallybox.counter.reference import SIMILARITY
from tallybox.kernels import TINY
from tallybox.kernels.cpu import vectors
from tallybox.kernels.cpu.compiling import Array, Number, compiled
from tallybox.kernels.cpu.vectors import LANES, add_at, choose

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
def empty_tables(segments: int, like: Array) -> Tables:
    """Allocate with enough numbers behind each table for look-ups in registers, which read past a short row."""
    numbers = np.empty((2, 8 * segments + vectors.REGISTER_ENTRIES), like.dtype)
    base, rise = numbers[0][: 8 * segments], numbers[1][: 8 * segments]
    return Tables(base.reshape(8, segments), rise.reshape(8, segments))


@compiled
def normalise(weight: Array, f: Tables) -> None:
    """Fill a counter's tables from its weights ``[8, S]``; a row that holds NaN becomes NaN."""
    for role in range(8):
        size = np.abs(weight[role]).astype(np.float64)
        if size.max() == 0:
            size[:] = 1
        share = size / size.max()
        share /= share.sum()
        start = np.cumsum(share) - share
        f.base[role] = start
        f.rise[role] = share
        f.rise[role, -1] = 1 - start[-1] + 0 * share[-1]  # the last segment ends at exactly 1, or NaN


@compiled
def nan_among(first: int, last: int, f: Tables) -> Number:
    """Return NaN if one of the activations first ... last is, else 0."""
    return 0 * f.rise[first : last + 1, -1].sum()


@compiled
def look_up(table: Array, role: int, s: Integers) -> Vector:
    """Return table[role, s]."""
    if table.shape[1] <= vectors.REGISTER_ENTRIES:
        return vectors.look_up_in_registers(table, (role,), s)
    return vectors.look_up_in_memory(table, (role,), s)


@compiled
def locate(x: Vector, f: Tables) -> tuple[Integers, Vector]:
    """Return the segments that x in [0, 1] fall into, the last for NaN, and how far into them, in [0, 1]."""
    segments = f.rise.shape[1]
    position = x * segments
    s = vectors.truncate(max(min(position, segments - 1), 0))
    return s, position - vectors.as_numbers(s, position)


@compiled
def value(role: int, s: Integers, fraction: Vector, f: Tables) -> Vector:
    """f(x) of one activation for x that `locate` found."""
    return look_up(f.base, role, s) + look_up(f.rise, role, s) * fraction


@compiled
def accumulate(role: int, s: Integers, fraction: Vector, grad: Vector, f: Tables, sums: Array) -> Vector:
    """Add gradients of f(x) to the sums of their segments; return the gradients of x."""
    add_at(sums, (role,), s, grad, grad * fraction)
    return grad * look_up(f.rise, role, s) * f.rise.shape[1]


@compiled
def flush(sums: Array, weight: Array, grad_weight: Array) -> None:
    """Turn the sums ``[8, S, LANES, 2]`` into gradients of a counter's weights, add these up, and clear the sums.

    f(x) depends on the rises |w| / Σ|w| of all segments before that of x, and on a fraction of its own.
    """
    segments = weight.shape[1]
    grad = np.empty(segments)
    for role in range(8):
        later, total, weighted = 0.0, 0.0, 0.0
        for s in range(segments - 1, -1, -1):
            of_values, of_fractions = 0.0, 0.0
            for lane in range(LANES):
                of_values += sums[role, s, lane, 0]
                of_fractions += sums[role, s, lane, 1]
            grad[s] = later + of_fractions
            later += of_values
            total += abs(weight[role, s])
            weighted += grad[s] * abs(weight[role, s])
        for s in range(segments):
            slope = np.sign(weight[role, s]) * (grad[s] - weighted / total) / total
            grad_weight[role, s] += slope if total != 0 else 0.0
    sums[:] = 0


@compiled
def signed(x: Vector, sign: Vector) -> Vector:
    """X times the sign of another number, and that of 0 is 0."""
    return choose(sign > 0, x, choose(sign < 0, -x, 0))


@compiled
def row_similarity(x_i: Vector, x_j: Vector, f: Tables) -> Vector:
    """f3(1 - |X_ik - X_jk|), not below TINY."""
    s, fraction = locate(1 - abs(x_i - x_j), f)
    return max(value(SIMILARITY, s, fraction, f), TINY)


@compiled
def row_similarity_backward(
    x_i: Vector, x_j: Vector, product: Vector, is_real: Truths, f: Tables, sums: Array
) -> Vector:
    """Return minus the gradient of X_ik, given a row product times its gradient; accumulate that of f3."""
    s, fraction = locate(1 - abs(x_i - x_j), f)
    slope = look_up(f.rise, SIMILARITY, s)
    others = product / max(look_up(f.base, SIMILARITY, s) + slope * fraction, TINY)
    grad = choose(is_real, others, 0)
    add_at(sums, (SIMILARITY,), s, grad, grad * fraction)
    return signed(others * slope * f.rise.shape[1], x_i - x_j)
