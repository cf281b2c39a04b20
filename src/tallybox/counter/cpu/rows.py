"""What both kernels for many boxes are made of: one image at a time, eight steps of a row product at once.

Rows are as long as `row_length` says; behind an image's real proposals they are 0.
"""

from __future__ import annotations

from tallybox.counter.cpu.parts import F1, F2, F4, F5, Array, compiled, locate
from tallybox.kernels.cpu.vectors import LANES


@compiled
def row_length(boxes_number: int) -> int:
    """Return the smallest multiple of LANES that so many boxes fit into."""
    return (boxes_number + LANES - 1) // LANES * LANES


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
        for k in range(n, row_length(n)):
            rows[i, k] = zero
        for j in range(i):
            s, place = locate(a[i] * a[j], rise)
            t, there = locate(distance[i, j], rise)
            x = (base[F4, s] + rise[F4, s] * place) * (base[F5, t] + rise[F5, t] * there)
            e = (base[F1, s] + rise[F1, s] * place) * (base[F2, t] + rise[F2, t] * there)
            rows[i, j] = rows[j, i] = x
            edges[i, j] = edges[j, i] = e
