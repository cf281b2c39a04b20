"""Eight images at once; the image is the last dimension of every array.

Each image's real proposals stand in front. Behind them, up to the largest number n in the group, stand proposals of
weight 0: their rows of X and Ã are 0, and so their factors in others' products are 1.
"""

from typing import NamedTuple

import numba.extending
import numpy as np

from tallybox.counter import reference
from tallybox.counter.cpu.activations import Tables, Vector, locate, value
from tallybox.kernels.cpu.boxes import real_proposals
from tallybox.kernels.cpu.compiling import Array, compiled
from tallybox.kernels.cpu.vectors import LANES, load, store


class Group(NamedTuple):
    """What both kernels hold of eight images."""

    number: Array  # [LANES] of real proposals, as floating point numbers
    order: Array  # [N, LANES] their indices
    a: Array  # [N, LANES] attention
    b: Array  # [4, N, LANES] corners
    rows: Array  # [N, N, LANES] X
    edges: Array  # [N, N, LANES] Ã


class Saved(NamedTuple):
    """What the forward kernel saves of eight images."""

    c: Array  # [LANES] the count
    certainty: Array  # [LANES] p_a + p_D
    scale: Array  # [N, LANES] s
    pairs: Array  # [N, N, LANES] D below the diagonal, row products of Sim above


@compiled
def empty_group(boxes: int, like: Array) -> Group:
    """Allocate for images of so many boxes."""
    matrices = np.empty((2, boxes, boxes, LANES), like.dtype)
    order, a = np.empty((boxes, LANES), np.int32), np.empty((boxes, LANES), like.dtype)
    return Group(
        np.empty(LANES, like.dtype), order, a, np.empty((4, boxes, LANES), like.dtype), matrices[0], matrices[1]
    )


@numba.extending.register_jitable
def saved_size(boxes: int) -> int:
    """Return how many numbers are saved of a group."""
    return LANES * (2 + boxes + boxes * boxes)


@compiled
def saved_group(state: Array, boxes: int) -> Saved:
    """Return views of a group's row of the saved state."""
    rows = state.reshape(2 + boxes + boxes * boxes, LANES)
    return Saved(rows[0], rows[1], rows[2 : 2 + boxes], rows[2 + boxes :].reshape(boxes, boxes, LANES))


@compiled
def group_images(group: int, images_per_counter: int) -> tuple[int, int, int]:
    """Return the counter of a group, and where its images begin and end; a counter's last group may be smaller."""
    groups_per_counter = (images_per_counter + LANES - 1) // LANES
    counter = group // groups_per_counter
    first = counter * images_per_counter + group % groups_per_counter * LANES
    return counter, first, min(first + LANES, (counter + 1) * images_per_counter)


@compiled
def load_proposals(first: int, end: int, attention: Array, boxes: Array, mask: Array, g: Group) -> int:
    """Copy the real proposals of images first ... end - 1; return the largest number of them in an image."""
    g.a[:] = 0
    g.b[:] = 0
    g.number[:] = 0
    largest = 0
    for image in range(first, end):
        lane = image - first
        number = real_proposals(image, attention, boxes, mask, g.order[:, lane], g.a[:, lane], g.b[:, :, lane])
        g.number[lane] = number
        largest = max(largest, number)
    return largest


@compiled
def corners(i: int, g: Group) -> tuple[Vector, Vector, Vector, Vector]:
    """Return x1, y1, x2 and y2 of box i."""
    return load(g.b, (0, i, 0)), load(g.b, (1, i, 0)), load(g.b, (2, i, 0)), load(g.b, (3, i, 0))


@compiled
def fill_matrices(n: int, f: Tables, g: Group, saved: Saved) -> None:
    """Compute X = f4(A) f5(D) and Ã = f1(A) f2(D), both triangles, from D below the diagonal of pairs."""
    for i in range(n):
        for lane in range(LANES):
            g.rows[i, i, lane] = g.edges[i, i, lane] = g.a.dtype.type(0)
        for j in range(i):
            s, of_a = locate(load(g.a, (i, 0)) * load(g.a, (j, 0)), f)
            t, of_d = locate(load(saved.pairs, (i, j, 0)), f)
            row = value(reference.RELEVANCE_ROW, s, of_a, f) * value(reference.DISTANCE_ROW, t, of_d, f)
            edge = value(reference.RELEVANCE_EDGE, s, of_a, f) * value(reference.DISTANCE_EDGE, t, of_d, f)
            store(g.rows, (i, j, 0), row)
            store(g.rows, (j, i, 0), row)
            store(g.edges, (i, j, 0), edge)
            store(g.edges, (j, i, 0), edge)
