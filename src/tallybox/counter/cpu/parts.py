"""What both kernels are made of: segments of the activations, and an image's matrices."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Number = Any  # float32 or float64, as the arrays; Python's own floats would widen the arithmetic

# Rounding may differ from the order written; NaN and infinity keep their meaning.
compiled = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "arcp", "nsz"})

# The same, but a sum or product keeps its order, so its loop is not vectorised, which does a short
# row no good (measured on one AMD EPYC core: 37 against 68 ns for 10 boxes).
compiled_in_order = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "arcp", "nsz"})

# Rows of at least this many boxes are long: their arithmetic and their table look-ups go in loops of
# their own, the first vectorised, the second four at a time so that they need not wait for each
# other (measured on one AMD EPYC core, ns a step at 100 boxes: forward 0.9 against 2.0, backward 2.5 against 6.2).
BOXES_OF_A_LONG_ROW = 24

# The activations' rows in a table: the paper's numbers less one.
F1, F2, F3, F4, F5, F6, F7, F8 = range(8)

# Stands in for a factor of 0 in a product, a power of two: the product of the other factors is then
# the whole divided by it, exactly, and every product that holds it is as good as 0.
TINY = 2.0**-60


@compiled
def normalise(weight: Array, base: Array, rise: Array) -> None:
    """Turn weights [8, S] into where each segment starts and how much it rises."""
    segments = weight.shape[1]
    for role in range(8):
        largest = 0.0
        for s in range(segments):
            largest = max(largest, abs(weight[role, s]))
        total = 0.0
        for s in range(segments):
            total += abs(weight[role, s]) / largest if largest > 0 else 1.0
        start = 0.0
        for s in range(segments):
            share = (abs(weight[role, s]) / largest if largest > 0 else 1.0) / total
            base[role, s] = start
            rise[role, s] = share if s < segments - 1 else 1 - base[role, s]  # so that f(1) is exactly 1
            start += share


@compiled
def normalise_backward(weight: Array, grad_rise: Array, grad_weight: Array) -> None:
    """Turn the gradient of each segment's rise |w| / Σ|w| into that of its weight."""
    segments = weight.shape[1]
    for role in range(8):
        total = 0.0
        weighted = 0.0
        for s in range(segments):
            total += abs(weight[role, s])
            weighted += grad_rise[role, s] * abs(weight[role, s])
        for s in range(segments):
            if total > 0:
                grad_weight[role, s] = np.sign(weight[role, s]) * (grad_rise[role, s] - weighted / total) / total
            else:
                grad_weight[role, s] = 0.0


@compiled
def segment_start(position: Number, last: Number) -> Number:
    """Return the number of the segment at a position, within the table whatever the position (NaN too)."""
    start = np.floor(position)
    start = start if start < last else last
    return start if start > last - last else last - last


@compiled
def locate(x: Number, rise: Array) -> tuple[Any, Number]:
    """Return the segment that x in [0, 1] falls into, and how far into it, in [0, 1]."""
    dtype = rise.dtype.type
    segments = dtype(rise.shape[1])
    position = x * segments
    start = segment_start(position, segments - dtype(1))
    return np.uint32(np.int32(start)), position - start


@compiled
def value(role: int, x: Number, base: Array, rise: Array) -> Number:
    """f(x) of one activation."""
    s, place = locate(x, rise)
    return base[role, s] + rise[role, s] * place


@compiled
def owe(role: int, s: int, place: Number, grad: Number, rise: Array, owed: Array) -> Number:
    """Note what f(x), of gradient grad, owes to its segment; return the gradient of x."""
    owed[role, s, 0] += grad
    owed[role, s, 1] += grad * place
    return grad * rise[role, s] * rise.dtype.type(rise.shape[1])


@compiled
def real_proposals(image: int, attention: Array, boxes: Array, mask: Array, order: Array, a: Array, b: Array) -> int:
    """Copy an image's real proposals to the front of a and b; return how many there are."""
    number = 0
    for i in range(attention.shape[1]):
        if mask.shape[0] == 0 or mask[image, i]:
            order[number] = i
            a[number] = attention[image, i]
            for corner in range(4):
                b[corner, number] = boxes[image, i, corner]
            number += 1
    return number


@compiled
def locate_row(i: int, j: int, n: int, rows: Array, rise: Array, places: Array, segment: Array) -> None:
    """Find the segments that 1 - |X_ik - X_jk| falls into for all k, and how far into them."""
    dtype = rise.dtype.type
    one, segments = dtype(1), dtype(rise.shape[1])
    for k in range(n):
        position = (one - abs(rows[i, k] - rows[j, k])) * segments
        start = segment_start(position, segments - one)
        places[k] = position - start
        segment[k] = np.int32(start)


@compiled
def split_state(state: Array, boxes_number: int) -> tuple[Array, Array]:
    """Return s [M * R, N] and the pairs [M * R, N, N] that stand in state behind the certainties [M * R]."""
    images = state.shape[0] // (1 + boxes_number + boxes_number * boxes_number)
    scales = state[images : images * (1 + boxes_number)].reshape(images, boxes_number)
    return scales, state[images * (1 + boxes_number) :].reshape(images, boxes_number, boxes_number)


@compiled
def fill_distance(n: int, b: Array, distance: Array) -> None:
    """Compute D below the diagonal."""
    zero, one = b.dtype.type(0), b.dtype.type(1)
    for i in range(n):
        x1, y1, x2, y2 = b[0, i], b[1, i], b[2, i], b[3, i]
        area_i = max(x2 - x1, zero) * max(y2 - y1, zero)
        for j in range(i):
            width = max(min(x2, b[2, j]) - max(x1, b[0, j]), zero)
            height = max(min(y2, b[3, j]) - max(y1, b[1, j]), zero)
            shared = width * height
            union = area_i + max(b[2, j] - b[0, j], zero) * max(b[3, j] - b[1, j], zero) - shared
            if union > zero:
                distance[i, j] = one - shared / union
            else:
                same = x1 == b[0, j] and y1 == b[1, j] and x2 == b[2, j] and y2 == b[3, j]
                distance[i, j] = zero if same else one


@compiled
def fill_matrices(n: int, a: Array, distance: Array, base: Array, rise: Array, rows: Array, edges: Array) -> None:
    """Compute X = f4(A) f5(D) and Ã = f1(A) f2(D), both triangles, from D below the diagonal."""
    zero = a.dtype.type(0)
    for i in range(n):
        rows[i, i] = zero
        edges[i, i] = zero
        for j in range(i):
            s, place = locate(a[i] * a[j], rise)
            t, there = locate(distance[i, j], rise)
            x = (base[F4, s] + rise[F4, s] * place) * (base[F5, t] + rise[F5, t] * there)
            e = (base[F1, s] + rise[F1, s] * place) * (base[F2, t] + rise[F2, t] * there)
            rows[i, j] = rows[j, i] = x
            edges[i, j] = edges[j, i] = e


@compiled
def weight_gradient(weight: Array, grad_rise: Array, grad_weight: Array) -> None:
    """Carry the gradients of all counters' rises [M, 8, S] to their weights."""
    for counter in range(weight.shape[0]):
        normalise_backward(weight[counter], grad_rise[counter], grad_weight[counter])
