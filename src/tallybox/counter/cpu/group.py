"""Eight images at once; the image is the last dimension of every array.

Each image's real proposals stand in front. Behind them, up to the largest number n in the group, stand proposals of
weight 0: their rows of X and Ã are 0, and so their factors in others' products are 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tallybox.counter.cpu.activations import Tables, Vector, locate, value
from tallybox.counter.roles import EDGE_OF_DISTANCE, EDGE_OF_RELEVANCE, ROW_OF_DISTANCE, ROW_OF_RELEVANCE
from tallybox.kernels.cpu.compiling import Array, compiled
from tallybox.kernels.cpu.vectors import LANES, load, store


class Group(NamedTuple):
    """What both kernels hold of eight images."""

    number: Array  # [LANES] of real proposals, as floating point numbers
    order: Array  # [N, LANES] their indices
    a: Array  # [N, LANES] attention
    b: Array  # [4, N, LANES] corners
    scale: Array  # [N, LANES] s
    pairs: Array  # [N, N, LANES] D below the diagonal, row products of Sim above
    rows: Array  # [N, N, LANES] X
    edges: Array  # [N, N, LANES] Ã


@compiled
def empty_group(boxes: int, like: Array) -> Group:
    """Allocate for images of so many boxes."""
    return Group(
        np.empty(LANES, like.dtype),
        np.empty((boxes, LANES), np.int32),
        np.empty((boxes, LANES), like.dtype),
        np.empty((4, boxes, LANES), like.dtype),
        np.empty((boxes, LANES), like.dtype),
        np.empty((boxes, boxes, LANES), like.dtype),
        np.empty((boxes, boxes, LANES), like.dtype),
        np.empty((boxes, boxes, LANES), like.dtype),
    )


@compiled
def group_end(first: int, stop: int, images_per_counter: int) -> int:
    """Return where the group of images that starts at first ends: at eight, or with its counter."""
    return min(first + LANES, stop, (first // images_per_counter + 1) * images_per_counter)


@compiled
def load_proposals(first: int, end: int, attention: Array, boxes: Array, mask: Array, g: Group) -> int:
    """Copy the real proposals of images first ... end - 1; return the largest number of them in an image."""
    zero, boxes_number = attention.dtype.type(0), attention.shape[1]
    largest = 0
    for lane in range(LANES):
        image, number = first + lane, 0
        if image < end:
            for i in range(boxes_number):
                if mask.shape[0] == 0 or mask[image, i]:
                    g.order[number, lane] = i
                    g.a[number, lane] = attention[image, i]
                    for corner in range(4):
                        g.b[corner, number, lane] = boxes[image, i, corner]
                    number += 1
        g.number[lane] = number
        largest = max(largest, number)
        for i in range(number, boxes_number):
            g.a[i, lane] = zero
            for corner in range(4):
                g.b[corner, i, lane] = zero
    return largest


@compiled
def save(first: int, end: int, g: Group, scale: Array, pairs: Array) -> None:
    """Copy s and the pairs of real proposals to ``scale [I, N]`` and ``pairs [I, N, N]``."""
    for image in range(first, end):
        lane = image - first
        number = int(g.number[lane])
        for i in range(number):
            scale[image, i] = g.scale[i, lane]
            for j in range(number):
                pairs[image, i, j] = g.pairs[i, j, lane]


@compiled
def load_saved(first: int, n: int, scale: Array, pairs: Array, g: Group) -> None:
    """Undo `save`, with 0 for all that is not real."""
    zero = g.scale.dtype.type(0)
    for lane in range(LANES):
        number = int(g.number[lane])
        for i in range(n):
            g.scale[i, lane] = scale[first + lane, i] if i < number else zero
            for j in range(n):
                g.pairs[i, j, lane] = pairs[first + lane, i, j] if i < number and j < number else zero


@compiled
def corners(i: int, g: Group) -> tuple[Vector, Vector, Vector, Vector]:
    """Return x1, y1, x2 and y2 of box i."""
    return load(g.b, (0, i, 0)), load(g.b, (1, i, 0)), load(g.b, (2, i, 0)), load(g.b, (3, i, 0))


@compiled
def fill_matrices(n: int, f: Tables, g: Group) -> None:
    """Compute X = f4(A) f5(D) and Ã = f1(A) f2(D), both triangles, from D below the diagonal of pairs."""
    for i in range(n):
        for lane in range(LANES):
            g.rows[i, i, lane] = g.edges[i, i, lane] = g.a.dtype.type(0)
        for j in range(i):
            s, of_a = locate(load(g.a, (i, 0)) * load(g.a, (j, 0)), f)
            t, of_d = locate(load(g.pairs, (i, j, 0)), f)
            row = value(ROW_OF_RELEVANCE, s, of_a, f) * value(ROW_OF_DISTANCE, t, of_d, f)
            edge = value(EDGE_OF_RELEVANCE, s, of_a, f) * value(EDGE_OF_DISTANCE, t, of_d, f)
            store(g.rows, (i, j, 0), row)
            store(g.rows, (j, i, 0), row)
            store(g.edges, (i, j, 0), edge)
            store(g.edges, (j, i, 0), edge)
