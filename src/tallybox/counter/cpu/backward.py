"""The backward kernel."""

from typing import NamedTuple

import numpy as np

from tallybox.counter import reference
from tallybox.counter.cpu import activations, group
from tallybox.counter.cpu.activations import Tables, Vector, accumulate, locate, signed, value
from tallybox.counter.cpu.group import Group, Saved
from tallybox.kernels.cpu.boxes import box_iou_backward
from tallybox.kernels.cpu.compiling import Array, Arrays, compiled
from tallybox.kernels.cpu.vectors import LANES, choose, load, store


class GroupGradients(NamedTuple):
    """Gradients of what `Group` holds, and the sums that `accumulate` adds to."""

    a: Array  # [N, LANES]
    b: Array  # [4, N, LANES]
    similarity_sum: Array  # [N, LANES], of Sim's row sums
    rows: Array  # [N, N, LANES]
    sums: Array  # [8, S, LANES, 2]


@compiled
def add_to(array: Array, i: int, x: Vector) -> None:
    """Add to array ``[N, LANES]`` at i."""
    store(array, (i, 0), load(array, (i, 0)) + x)


@compiled
def result_backward(
    first: int, end: int, f: Tables, saved: Saved, grad_features: Array, grad_count: Array, sums: Array, scratch: Array
) -> tuple[Vector, Vector]:
    """Return the gradients of the sum of C, and of the certainty; ``scratch [3, LANES]``."""
    one, two = scratch.dtype.type(1), scratch.dtype.type(2)
    scratch[:] = 0
    confidence, grad_total, grad_confidence = scratch[0], scratch[1], scratch[2]
    s, fraction = locate(load(saved.certainty, (0,)), f)
    store(confidence, (0,), value(reference.CONFIDENCE, s, fraction, f))
    for image in range(first, end):
        lane = image - first
        c = saved.c[lane]
        lower = int(c) if c == c else 0
        upper, upper_share = min(lower + 1, grad_features.shape[1] - 1), c - np.floor(c)
        grad_lower, grad_upper = grad_features[image, lower], grad_features[image, upper]
        grad_confidence[lane] = (one - upper_share) * grad_lower + upper_share * grad_upper
        grad_total[lane] = (confidence[lane] * (grad_upper - grad_lower) + grad_count[image]) / (two * c)
    return load(grad_total, (0,)), accumulate(reference.CONFIDENCE, s, fraction, load(grad_confidence, (0,)), f, sums)


@compiled
def scales_backward(
    n: int, f: Tables, g: Group, saved: Saved, grad_total: Vector, grad_mean: Vector, grad: GroupGradients
) -> None:
    """Carry the gradients from C to the row sums of Sim, and to each weight on its own."""
    dtype = g.a.dtype.type
    zero, half, two = dtype(0), dtype(0.5), dtype(2)
    number = load(g.number, (0,))
    for i in range(n):
        is_real = number > dtype(i)
        inner = number * zero
        for j in range(n):
            inner = inner + load(g.edges, (i, j, 0)) * load(saved.scale, (j, 0))
        a_i, scale_i = load(g.a, (i, 0)), load(saved.scale, (i, 0))
        s, fraction = locate(a_i * a_i, f)
        grad_scale = grad_total * (value(reference.RELEVANCE_EDGE, s, fraction, f) + inner + inner)
        store(grad.similarity_sum, (i, 0), -grad_scale * scale_i * scale_i)
        grad_loop = choose(is_real, grad_total * scale_i, zero)
        grad_square = accumulate(reference.RELEVANCE_EDGE, s, fraction, grad_loop, f, grad.sums)
        s, fraction = locate(a_i, f)
        grad_certainty = signed(grad_mean / number, value(reference.ATTENTION_CONFIDENCE, s, fraction, f) - half, zero)
        grad_certainty = choose(is_real, grad_certainty, zero)
        grad_a = accumulate(reference.ATTENTION_CONFIDENCE, s, fraction, grad_certainty, f, grad.sums)
        store(grad.a, (i, 0), grad_square * two * a_i + grad_a)


@compiled
def similarity_backward(n: int, f: Tables, g: Group, saved: Saved, grad: GroupGradients) -> None:
    """Carry the gradients from Sim to the rows of X, and to the differences of weights."""
    dtype = g.a.dtype.type
    zero, one = dtype(0), dtype(1)
    number = load(g.number, (0,))
    for i in range(n):
        for k in range(n):
            store(grad.rows, (i, k, 0), number * zero)
    for i in range(n):
        is_real = number > dtype(i)
        for j in range(i):
            grad_similarity = choose(
                is_real, load(grad.similarity_sum, (i, 0)) + load(grad.similarity_sum, (j, 0)), zero
            )
            grad_closeness_value = grad_similarity * load(saved.pairs, (j, i, 0))
            difference = load(g.a, (i, 0)) - load(g.a, (j, 0))
            s, fraction = locate(one - abs(difference), f)
            product = grad_closeness_value * value(reference.SIMILARITY, s, fraction, f)
            for k in range(n):
                slope = activations.row_similarity_backward(
                    load(g.rows, (i, k, 0)), load(g.rows, (j, k, 0)), product, number > dtype(k), f, grad.sums
                )
                store(grad.rows, (i, k, 0), load(grad.rows, (i, k, 0)) - slope)
                store(grad.rows, (j, k, 0), load(grad.rows, (j, k, 0)) + slope)
            grad_closeness = accumulate(reference.SIMILARITY, s, fraction, grad_closeness_value, f, grad.sums)
            grad_closeness = signed(grad_closeness, difference, zero)
            add_to(grad.a, i, -grad_closeness)
            add_to(grad.a, j, grad_closeness)


@compiled
def matrices_backward(
    n: int, f: Tables, g: Group, saved: Saved, grad_total: Vector, grad_mean: Vector,
    grad: GroupGradients, boxes_need_grad: bool,
) -> None:  # fmt: skip
    """Carry the gradients from Ã, X and the certainty to relevance and distance, and on to weights and boxes."""
    dtype = g.a.dtype.type
    zero, half, one, two = dtype(0), dtype(0.5), dtype(1), dtype(2)
    number = load(g.number, (0,))
    grad_pair = two * grad_mean / max(number * number, one)
    for i in range(n):
        is_real = number > dtype(i)
        a_i = load(g.a, (i, 0))
        twice = choose(is_real, two * grad_total * load(saved.scale, (i, 0)), zero)
        for corner in range(4):
            store(grad.b, (corner, i, 0), number * zero)
        for j in range(i):
            a_j = load(g.a, (j, 0))
            s, of_a = locate(a_i * a_j, f)
            t, of_d = locate(load(saved.pairs, (i, j, 0)), f)
            grad_edge = twice * load(saved.scale, (j, 0))
            grad_row = load(grad.rows, (i, j, 0)) + load(grad.rows, (j, i, 0))
            grad_certainty = signed(grad_pair, value(reference.DISTANCE_CONFIDENCE, t, of_d, f) - half, zero)
            grad_certainty = choose(is_real, grad_certainty, zero)
            of_edge, of_row = value(reference.DISTANCE_EDGE, t, of_d, f), value(reference.DISTANCE_ROW, t, of_d, f)
            grad_relevance = accumulate(reference.RELEVANCE_EDGE, s, of_a, grad_edge * of_edge, f, grad.sums)
            more = accumulate(reference.RELEVANCE_ROW, s, of_a, grad_row * of_row, f, grad.sums)
            grad_relevance = grad_relevance + more
            of_edge, of_row = value(reference.RELEVANCE_EDGE, s, of_a, f), value(reference.RELEVANCE_ROW, s, of_a, f)
            grad_distance = accumulate(reference.DISTANCE_EDGE, t, of_d, grad_edge * of_edge, f, grad.sums)
            more = accumulate(reference.DISTANCE_ROW, t, of_d, grad_row * of_row, f, grad.sums)
            grad_distance = grad_distance + more
            grad_distance = grad_distance + accumulate(
                reference.DISTANCE_CONFIDENCE, t, of_d, grad_certainty, f, grad.sums
            )
            add_to(grad.a, i, grad_relevance * a_j)
            add_to(grad.a, j, grad_relevance * a_i)
            if boxes_need_grad:
                of_i, of_j = box_iou_backward(group.corners(i, g), group.corners(j, g), -grad_distance, zero, half)
                for corner in range(4):
                    add_to(grad.b[corner], i, of_i[corner])
                    add_to(grad.b[corner], j, of_j[corner])


@compiled
def write_gradients(
    first: int, end: int, g: Group, grad: GroupGradients, grad_attention: Array, grad_boxes: Array
) -> None:
    """Write the gradients of real proposals to their indices, and 0 elsewhere."""
    for image in range(first, end):
        lane = image - first
        grad_attention[image] = grad.a.dtype.type(0)
        grad_boxes[image] = grad.a.dtype.type(0)
        for i in range(int(g.number[lane])):
            grad_attention[image, g.order[i, lane]] = grad.a[i, lane]
            for corner in range(4):
                grad_boxes[image, g.order[i, lane], corner] = grad.b[corner, i, lane]


@compiled
def count_backward_kernel(
    inputs: Arrays, state: Array, grads: Arrays, written: Arrays, grad_rise: Array,
    boxes_need_grad: bool, first_group: int, stop: int,
) -> None:  # fmt: skip
    """Write the gradients of groups first_group ... stop - 1, and add those of their counters' rises to grad_rise."""
    (attention, boxes, mask, weight), (grad_features, grad_count) = inputs, grads
    grad_attention, grad_boxes = written
    number, segments = attention.shape[1], weight.shape[2]
    f = Tables(activations.empty_table(segments, attention), activations.empty_table(segments, attention))
    g, scratch = group.empty_group(number, attention), np.empty((3, LANES), attention.dtype)
    sums = np.zeros((8, segments, LANES, 2), attention.dtype)
    grad = GroupGradients(np.empty_like(g.a), np.empty_like(g.b), np.empty_like(g.a), np.empty_like(g.rows), sums)
    steps, last_counter = 0, -1
    for index in range(first_group, stop):
        counter, first, end = group.group_images(index, attention.shape[0] // weight.shape[0])
        if last_counter >= 0 and (counter != last_counter or steps > activations.STEPS_BETWEEN_FLUSHES):
            activations.flush(sums, grad_rise[last_counter])
            steps = 0
        if counter != last_counter:
            activations.normalise(weight[counter], f)
            last_counter = counter
        saved = group.saved_group(state[index], number)
        n = group.load_proposals(first, end, attention, boxes, mask, g)
        grad_total, grad_mean = result_backward(first, end, f, saved, grad_features, grad_count, sums, scratch)
        group.fill_matrices(n, f, g, saved)
        scales_backward(n, f, g, saved, grad_total, grad_mean, grad)
        similarity_backward(n, f, g, saved, grad)
        matrices_backward(n, f, g, saved, grad_total, grad_mean, grad, boxes_need_grad)
        write_gradients(first, end, g, grad, grad_attention, grad_boxes)
        steps += LANES * n * n * n
    if last_counter >= 0:
        activations.flush(sums, grad_rise[last_counter])
