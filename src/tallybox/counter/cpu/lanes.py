"""What both kernels for eight images at once are made of; the image is the last dimension of every array.

Each lane's real proposals stand in front. Behind them, up to the largest number n in the group, stand
proposals of weight 0: their rows of X and Ã are 0, and so their factors in others' products are 1.
"""

from __future__ import annotations

from tallybox.counter.cpu.likeness import Vector, locate_all, value_at
from tallybox.counter.cpu.parts import F1, F2, F4, F5, Array, compiled
from tallybox.kernels.cpu.vectors import LANES, choose, load, store


@compiled
def group_end(first: int, stop: int, images_per_counter: int) -> int:
    """Return where the group of images that starts at first ends: at eight, or with its counter."""
    return min(first + LANES, stop, (first // images_per_counter + 1) * images_per_counter)


@compiled
def load_group(
    first: int, end: int, attention: Array, boxes: Array, mask: Array, order: Array, a: Array, b: Array, sizes: Array
) -> int:
    """Copy the real proposals of images first ... end - 1 to a [N, LANES] and b [4, N, LANES].

    Note which they are in order and how many in sizes [LANES]; return the largest number.
    """
    zero, boxes_number = attention.dtype.type(0), attention.shape[1]
    largest = 0
    for lane in range(LANES):
        image, number = first + lane, 0
        if image < end:
            for i in range(boxes_number):
                if mask.shape[0] == 0 or mask[image, i]:
                    order[number, lane] = i
                    a[number, lane] = attention[image, i]
                    for corner in range(4):
                        b[corner, number, lane] = boxes[image, i, corner]
                    number += 1
        sizes[lane] = number
        largest = max(largest, number)
        for i in range(number, boxes_number):
            a[i, lane] = zero
            for corner in range(4):
                b[corner, i, lane] = zero
    return largest


@compiled
def keep_state(first: int, end: int, state: Array, sizes: Array, scale: Array, pairs: Array) -> None:
    """Copy s [N, LANES] and the pairs [N, N, LANES] of real proposals to their images' state [M * R, 1 + N + N * N]."""
    boxes_number = scale.shape[0]
    for image in range(first, end):
        lane = image - first
        number = int(sizes[lane])
        for i in range(number):
            state[image, 1 + i] = scale[i, lane]
            for j in range(number):
                state[image, 1 + boxes_number * (i + 1) + j] = pairs[i, j, lane]


@compiled
def load_state(first: int, n: int, state: Array, sizes: Array, scale: Array, pairs: Array) -> None:
    """Undo `keep_state`, with 0 for all that is not real."""
    zero, boxes_number = scale.dtype.type(0), scale.shape[0]
    for lane in range(LANES):
        number = int(sizes[lane])
        for i in range(n):
            scale[i, lane] = state[first + lane, 1 + i] if i < number else zero
            for j in range(n):
                is_real = i < number and j < number
                pairs[i, j, lane] = state[first + lane, 1 + boxes_number * (i + 1) + j] if is_real else zero


@compiled
def overlap(i: int, j: int, b: Array) -> tuple[Vector, Vector]:
    """Return the width and height of what boxes i and j share, negative where they are apart."""
    width = min(load(b, (2, i, 0)), load(b, (2, j, 0))) - max(load(b, (0, i, 0)), load(b, (0, j, 0)))
    height = min(load(b, (3, i, 0)), load(b, (3, j, 0))) - max(load(b, (1, i, 0)), load(b, (1, j, 0)))
    return width, height


@compiled
def extent(i: int, b: Array) -> tuple[Vector, Vector]:
    """Return the width and height of box i, not below 0."""
    zero = b.dtype.type(0)
    width = max(load(b, (2, i, 0)) - load(b, (0, i, 0)), zero)
    return width, max(load(b, (3, i, 0)) - load(b, (1, i, 0)), zero)


@compiled
def distance(i: int, j: int, b: Array) -> Vector:
    """D_ij = 1 - IoU."""
    dtype = b.dtype.type
    zero, one = dtype(0), dtype(1)
    width, height = overlap(i, j, b)
    shared = max(width, zero) * max(height, zero)
    i_width, i_height = extent(i, b)
    j_width, j_height = extent(j, b)
    union = i_width * i_height + j_width * j_height - shared
    same = (load(b, (0, i, 0)) == load(b, (0, j, 0))) & (load(b, (1, i, 0)) == load(b, (1, j, 0)))
    same = same & (load(b, (2, i, 0)) == load(b, (2, j, 0))) & (load(b, (3, i, 0)) == load(b, (3, j, 0)))
    without_area = choose(same, zero * width, one)
    return choose(union > zero, one - shared / union, without_area)


@compiled
def fill_matrices(n: int, a: Array, pairs: Array, base: Array, rise: Array, rows: Array, edges: Array) -> None:
    """Compute X = f4(A) f5(D) and Ã = f1(A) f2(D), both triangles, from D below the diagonal of pairs."""
    for i in range(n):
        for lane in range(LANES):
            rows[i, i, lane] = edges[i, i, lane] = a.dtype.type(0)
        for j in range(i):
            s, place = locate_all(load(a, (i, 0)) * load(a, (j, 0)), rise)
            t, there = locate_all(load(pairs, (i, j, 0)), rise)
            x = value_at(F4, s, place, base, rise) * value_at(F5, t, there, base, rise)
            e = value_at(F1, s, place, base, rise) * value_at(F2, t, there, base, rise)
            store(rows, (i, j, 0), x)
            store(rows, (j, i, 0), x)
            store(edges, (i, j, 0), e)
            store(edges, (j, i, 0), e)
