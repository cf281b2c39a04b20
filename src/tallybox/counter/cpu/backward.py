"""The backward kernel."""

from typing import NamedTuple

import numpy as np

from tallybox.counter import reference
from tallybox.counter.cpu import activations, forward
from tallybox.counter.cpu.activations import Tables, accumulate, locate, signed, value
from tallybox.counter.cpu.forward import Group, Saved
from tallybox.kernels.cpu.boxes import box_iou_backward
from tallybox.kernels.cpu.compiling import Array, Arrays, compiled
from tallybox.kernels.cpu.vectors import LANES, add_to, choose, load, store


class GroupGradients(NamedTuple):
    """Gradients of what `Group` holds and of the results, and the sums that `accumulate` adds to."""

    total: Array  # [LANES], of the sum of C
    certainty: Array  # [LANES], of the confidence, then of p_a + p_D
    a: Array  # [N, LANES]
    b: Array  # [4, N, LANES]
    similarity_sum: Array  # [N, LANES], of Sim's row sums
    rows: Array  # [N, N, LANES]
    sums: Array  # [8, S, LANES, 2]


@compiled
def empty_gradients(g: Group, segments: int) -> GroupGradients:
    """Allocate; the sums are 0."""
    total, certainty = np.empty_like(g.number), np.empty_like(g.number)
    a, similarity_sum = np.empty_like(g.a), np.empty_like(g.a)
    sums = np.zeros((8, segments, LANES, 2), g.a.dtype)
    return GroupGradients(total, certainty, a, np.empty_like(g.b), similarity_sum, np.empty_like(g.rows), sums)


@compiled
def result_backward(
    first: int, end: int, f: Tables, saved: Saved, grad_features: Array, grad_count: Array, grad: GroupGradients
) -> None:
    """Carry the gradients from the results to the sum of C, and to the certainty."""
    grad.total[:] = 0
    grad.certainty[:] = 0
    for image in range(first, end):
        lane = image - first
        c = saved.c[lane]
        lower = int(c) if c == c else 0
        upper, upper_share = min(lower + 1, grad_features.shape[1] - 1), c - np.floor(c)
        grad_lower, grad_upper = grad_features[image, lower], grad_features[image, upper]
        grad_c = saved.confidence[lane] * (grad_upper - grad_lower) + grad_count[image]
        grad.total[lane] = grad_c / (2 * c)
        grad.certainty[lane] = (1 - upper_share) * grad_lower + upper_share * grad_upper
    s, fraction = locate(load(saved.certainty, ()), f)
    store(grad.certainty, (), accumulate(reference.CONFIDENCE, s, fraction, load(grad.certainty, ()), f, grad.sums))


@compiled
def scales_backward(n: int, f: Tables, g: Group, saved: Saved, grad: GroupGradients) -> None:
    """Carry the gradients from C to the row sums of Sim, and to each weight on its own."""
    number, grad_total = load(g.number, ()), load(grad.total, ())
    for i in range(n):
        is_real = number > i
        a_i, scale_i = load(g.a, (i,)), load(saved.scale, (i,))
        grad_scale = grad_total * forward.edges_of(i, n, f, g, saved)
        store(grad.similarity_sum, (i,), -grad_scale * scale_i * scale_i)
        s, fraction = locate(a_i * a_i, f)
        grad_loop = choose(is_real, grad_total * scale_i, 0)
        grad_square = accumulate(reference.RELEVANCE_EDGE, s, fraction, grad_loop, f, grad.sums)
        s, fraction = locate(a_i, f)
        certainty = value(reference.ATTENTION_CONFIDENCE, s, fraction, f) - 0.5
        grad_certainty = choose(is_real, signed(load(grad.certainty, ()) / number, certainty), 0)
        grad_a = accumulate(reference.ATTENTION_CONFIDENCE, s, fraction, grad_certainty, f, grad.sums)
        store(grad.a, (i,), grad_square * 2 * a_i + grad_a)


@compiled
def similarity_backward(n: int, f: Tables, g: Group, saved: Saved, grad: GroupGradients) -> None:
    """Carry the gradients from Sim to the rows of X, and to the differences of weights."""
    number = load(g.number, ())
    grad.rows[:] = 0
    for i in range(n):
        for j in range(i):
            grad_similarity = load(grad.similarity_sum, (i,)) + load(grad.similarity_sum, (j,))
            grad_closeness_value = choose(number > i, grad_similarity, 0) * load(saved.pairs, (j, i))
            difference = load(g.a, (i,)) - load(g.a, (j,))
            s, fraction = locate(1 - abs(difference), f)
            product = grad_closeness_value * value(reference.SIMILARITY, s, fraction, f)
            for k in range(n):
                slope = activations.row_similarity_backward(
                    load(g.rows, (i, k)), load(g.rows, (j, k)), product, number > k, f, grad.sums
                )
                add_to(grad.rows, (i, k), -slope)
                add_to(grad.rows, (j, k), slope)
            grad_closeness = accumulate(reference.SIMILARITY, s, fraction, grad_closeness_value, f, grad.sums)
            grad_closeness = signed(grad_closeness, difference)
            add_to(grad.a, (i,), -grad_closeness)
            add_to(grad.a, (j,), grad_closeness)


@compiled
def matrices_backward(n: int, f: Tables, g: Group, saved: Saved, grad: GroupGradients, boxes_need_grad: bool) -> None:
    """Carry the gradients from Ã, X and the certainty to relevance and distance, and on to weights and boxes."""
    number = load(g.number, ())
    grad_pair = 2 * load(grad.certainty, ()) / max(number * number, 1)
    grad.b[:] = 0
    for i in range(n):
        is_real = number > i
        a_i = load(g.a, (i,))
        twice = choose(is_real, 2 * load(grad.total, ()) * load(saved.scale, (i,)), 0)
        for j in range(i):
            a_j = load(g.a, (j,))
            s, of_a = locate(a_i * a_j, f)
            t, of_d = locate(load(saved.pairs, (i, j)), f)
            grad_edge = twice * load(saved.scale, (j,))
            grad_row = load(grad.rows, (i, j)) + load(grad.rows, (j, i))
            certainty = value(reference.DISTANCE_CONFIDENCE, t, of_d, f) - 0.5
            grad_certainty = choose(is_real, signed(grad_pair, certainty), 0)
            by_edge = grad_edge * value(reference.DISTANCE_EDGE, t, of_d, f)
            by_row = grad_row * value(reference.DISTANCE_ROW, t, of_d, f)
            grad_relevance = accumulate(reference.RELEVANCE_EDGE, s, of_a, by_edge, f, grad.sums)
            grad_relevance = grad_relevance + accumulate(reference.RELEVANCE_ROW, s, of_a, by_row, f, grad.sums)
            by_edge = grad_edge * value(reference.RELEVANCE_EDGE, s, of_a, f)
            by_row = grad_row * value(reference.RELEVANCE_ROW, s, of_a, f)
            grad_distance = accumulate(reference.DISTANCE_EDGE, t, of_d, by_edge, f, grad.sums)
            grad_distance = grad_distance + accumulate(reference.DISTANCE_ROW, t, of_d, by_row, f, grad.sums)
            by_certainty = accumulate(reference.DISTANCE_CONFIDENCE, t, of_d, grad_certainty, f, grad.sums)
            add_to(grad.a, (i,), grad_relevance * a_j)
            add_to(grad.a, (j,), grad_relevance * a_i)
            if boxes_need_grad:
                grad_iou = -grad_distance - by_certainty
                of_i, of_j = box_iou_backward(forward.corners(i, g), forward.corners(j, g), grad_iou, 0, 0.5)
                for corner in range(4):
                    add_to(grad.b, (corner, i), of_i[corner])
                    add_to(grad.b, (corner, j), of_j[corner])


@compiled
def write_gradients(
    first: int, end: int, g: Group, grad: GroupGradients, grad_attention: Array, grad_boxes: Array
) -> None:
    """Write the gradients of real proposals to their indices, and 0 elsewhere."""
    grad_attention[first:end] = 0
    grad_boxes[first:end] = 0
    for image in range(first, end):
        lane = image - first
        for i in range(int(g.number[lane])):
            grad_attention[image, g.order[i, lane]] = grad.a[i, lane]
            for corner in range(4):
                grad_boxes[image, g.order[i, lane], corner] = grad.b[corner, i, lane]


@compiled
def count_backward_kernel(
    inputs: Arrays, state: Array, grads: Arrays, written: Arrays, grad_weight: Array,
    boxes_need_grad: bool, first_group: int, stop: int,
) -> None:  # fmt: skip
    """Write the gradients of groups first_group ... stop - 1, and add those of their counters' weights up."""
    (attention, boxes, mask, weight), (grad_features, grad_count) = inputs, grads
    grad_attention, grad_boxes = written
    number, segments = attention.shape[1], weight.shape[2]
    f, g = activations.empty_tables(segments, attention), forward.empty_group(number, attention)
    grad = empty_gradients(g, segments)
    steps, last_counter = 0, -1
    for index in range(first_group, stop):
        counter, first, end = forward.group_images(index, len(attention) // len(weight))
        if last_counter >= 0 and (counter != last_counter or steps > activations.STEPS_BETWEEN_FLUSHES):
            activations.flush(grad.sums, weight[last_counter], grad_weight[last_counter])
            steps = 0
        if counter != last_counter:
            activations.normalise(weight[counter], f)
            last_counter = counter
        saved = forward.saved_group(state[index], number)
        n = forward.load_proposals(first, end, attention, boxes, mask, g)
        result_backward(first, end, f, saved, grad_features, grad_count, grad)
        forward.fill_matrices(n, f, g, saved)
        scales_backward(n, f, g, saved, grad)
        similarity_backward(n, f, g, saved, grad)
        matrices_backward(n, f, g, saved, grad, boxes_need_grad)
        write_gradients(first, end, g, grad, grad_attention, grad_boxes)
        steps += LANES * n * n * n
    if last_counter >= 0:
        activations.flush(grad.sums, weight[last_counter], grad_weight[last_counter])
