"""The counting component on CPU: one image at a time, its matrices in cache, nothing of size N³ in memory.

The only file that imports numba. Kernels work on a range of images and release the interpreter lock;
the launchers at the end share the images out among threads. They compile once and are then read
from a cache on disk.

Legend: M counters, R images each, N boxes, S segments. `rise [8, S]` is how much each activation rises
in each segment, `base [8, S]` its value where the segment starts; f(x) = base[s] + rise[s] (S x - s).
Sim, D, X and Ã are symmetric with constant diagonals, so only pairs i < j are visited. Masked proposals
are left out before anything is computed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]
Number = Any  # float32 or float64, as the arrays; Python's own floats would widen the arithmetic

# Rounding may differ from the order written here; NaN and infinity keep their meaning.
_compile = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "arcp", "nsz"})

F1, F2, F3, F4, F5, F6, F7, F8 = range(8)

# Gradients of the likeness activation are summed in this many places in turn, so that an addition
# need not wait for the one before it to reach memory.
LANES = 8

# Fewer pair-and-box steps than this are not worth waking another thread for.
STEPS_PER_THREAD = 20_000


@_compile
def _normalise(weight: Array, base: Array, rise: Array) -> None:
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
            rise[role, s] = share
            start += share


@_compile
def _normalise_backward(weight: Array, grad_rise: Array, grad_weight: Array) -> None:
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


@_compile
def _value(x: Number, base: Array, rise: Array) -> Number:
    """f(x)."""
    segments = rise.dtype.type(rise.shape[0])
    position = x * segments
    start = max(min(np.floor(position), segments - rise.dtype.type(1)), rise.dtype.type(0))
    s = np.int32(start)
    return base[s] + rise[s] * (position - start)


@_compile
def _backward(x: Number, grad: Number, rise: Array, grad_start: Array, grad_slope: Array) -> Number:
    """Return the gradient of x, given that of f(x), and note what f(x) owes to each segment."""
    segments = rise.dtype.type(rise.shape[0])
    position = x * segments
    start = max(min(np.floor(position), segments - rise.dtype.type(1)), rise.dtype.type(0))
    s = np.int32(start)
    grad_start[s] += grad
    grad_slope[s] += grad * (position - start)
    return grad * rise[s] * segments


@_compile
def _real_proposals(image: int, attention: Array, boxes: Array, mask: Array, order: Array, a: Array, b: Array) -> int:
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


@_compile
def _fill_matrices(n: int, a: Array, b: Array, base: Array, rise: Array, distance: Array, rows: Array, edges: Array) -> None:
    """Compute D, X = f4(A) f5(D) and Ã = f1(A) f2(D), both triangles."""
    zero = a.dtype.type(0)
    one = a.dtype.type(1)
    for i in range(n):
        distance[i, i] = zero
        rows[i, i] = zero
        edges[i, i] = zero
        area_i = max(b[2, i] - b[0, i], zero) * max(b[3, i] - b[1, i], zero)
        for j in range(i + 1, n):
            width = max(min(b[2, i], b[2, j]) - max(b[0, i], b[0, j]), zero)
            height = max(min(b[3, i], b[3, j]) - max(b[1, i], b[1, j]), zero)
            shared = width * height
            union = area_i + max(b[2, j] - b[0, j], zero) * max(b[3, j] - b[1, j], zero) - shared
            if union > zero:
                d = one - shared / union
            else:
                same = b[0, i] == b[0, j] and b[1, i] == b[1, j] and b[2, i] == b[2, j] and b[3, i] == b[3, j]
                d = zero if same else one
            relevance = a[i] * a[j]
            x = _value(relevance, base[F4], rise[F4]) * _value(d, base[F5], rise[F5])
            e = _value(relevance, base[F1], rise[F1]) * _value(d, base[F2], rise[F2])
            distance[i, j] = distance[j, i] = d
            rows[i, j] = rows[j, i] = x
            edges[i, j] = edges[j, i] = e


@_compile
def _row_product(row_i: Array, row_j: Array, base: Array, rise: Array) -> tuple[Number, int]:
    """Return ∏_k f3(1 - |X_ik - X_jk|) over the factors that are not 0, and how many are."""
    one = rise.dtype.type(1)
    segments = rise.dtype.type(rise.shape[0])
    last = segments - one
    product = one
    zeros = np.int32(0)
    for k in range(row_i.shape[0]):
        position = (one - abs(row_i[k] - row_j[k])) * segments
        start = min(np.floor(position), last)
        s = np.int32(start)
        factor = base[s] + rise[s] * (position - start)
        is_zero = factor == rise.dtype.type(0)
        zeros += np.int32(is_zero)
        product *= one if is_zero else factor
    return product, zeros


@_compile
def _row_product_backward(
    row_i: Array,
    row_j: Array,
    grad_i: Array,
    grad_j: Array,
    scaled_product: Number,
    zeros: int,
    base: Array,
    rise: Array,
    share: Array,
    place: Array,
    segment: Array,
    grad_start: Array,
    grad_slope: Array,
) -> None:
    """Add the gradients of a row product, whose non-zero factors times its own gradient are given.

    With one zero factor only that factor has a gradient; with more, none has.
    """
    zero = rise.dtype.type(0)
    one = rise.dtype.type(1)
    segments = rise.dtype.type(rise.shape[0])
    last = segments - one
    n = row_i.shape[0]
    for k in range(n):
        difference = row_i[k] - row_j[k]
        position = (one - abs(difference)) * segments
        start = min(np.floor(position), last)
        s = np.int32(start)
        factor = base[s] + rise[s] * (position - start)
        is_zero = factor == zero
        divisor = one if is_zero else factor
        others = scaled_product / divisor if is_zero == (zeros == 1) else zero
        slope = others * rise[s] * segments
        sign = one if difference > zero else (-one if difference < zero else zero)
        grad_i[k] -= slope * sign
        grad_j[k] += slope * sign
        share[k] = others
        place[k] = position - start
        segment[k] = s
    for k in range(n):
        lane = k % LANES
        grad_start[segment[k], lane] += share[k]
        grad_slope[segment[k], lane] += share[k] * place[k]


@_compile
def _count_forward_kernel(
    attention: Array,
    boxes: Array,
    mask: Array,
    weight: Array,
    features: Array,
    count: Array,
    certainty: Array,
    scale: Array,
    products: Array,
    first: int,
    stop: int,
) -> None:
    """Count images first ... stop - 1 of [M * R]; keep what the backward pass needs if products is given."""
    dtype = attention.dtype.type
    zero, half, one = dtype(0), dtype(0.5), dtype(1)
    boxes_number, max_objects = attention.shape[1], features.shape[1] - 1
    images_per_counter = attention.shape[0] // weight.shape[0]
    base = np.empty(weight.shape[1:], attention.dtype)
    rise = np.empty_like(base)
    order = np.empty(boxes_number, np.int32)
    a = np.empty(boxes_number, attention.dtype)
    b = np.empty((4, boxes_number), attention.dtype)
    distance = np.empty((boxes_number, boxes_number), attention.dtype)
    rows, edges = np.empty_like(distance), np.empty_like(distance)
    alike = np.empty(boxes_number, attention.dtype)
    counter = -1
    for image in range(first, stop):
        if image // images_per_counter != counter:
            counter = image // images_per_counter
            _normalise(weight[counter], base, rise)
        n = _real_proposals(image, attention, boxes, mask, order, a, b)
        _fill_matrices(n, a, b, base, rise, distance, rows, edges)
        alike[:n] = one
        for i in range(n):
            for j in range(i + 1, n):
                product, zeros = _row_product(rows[i, :n], rows[j, :n], base[F3], rise[F3])
                if products.shape[0] > 0:
                    # One place for both: the sign says that one factor is 0, 0 that more are.
                    products[image, i, j] = product if zeros == 0 else (-product if zeros == 1 else zero)
                if zeros == 0:
                    similarity = _value(one - abs(a[i] - a[j]), base[F3], rise[F3]) * product
                    alike[i] += similarity
                    alike[j] += similarity
        total = zero
        from_attention, from_distance = zero, zero
        for i in range(n):
            scale_i = one / alike[i]
            scale[image, i] = scale_i
            inner = zero
            for j in range(i):
                inner += edges[i, j] * scale[image, j]
                from_distance += abs(_value(distance[i, j], base[F7], rise[F7]) - half)
            total += scale_i * (_value(a[i] * a[i], base[F1], rise[F1]) + inner + inner)
            from_attention += abs(_value(a[i], base[F6], rise[F6]) - half)
        if n > 0:
            real = dtype(n)
            mean = from_attention / real + (half * real + from_distance + from_distance) / (real * real)
        else:
            mean = one  # as certain as an image whose every weight is 0
        c = min(np.sqrt(total + dtype(1e-20)), dtype(max_objects))
        confidence = _value(mean, base[F8], rise[F8])
        lower = np.int32(np.floor(c))
        upper_share = c - np.floor(c)
        features[image, :] = zero
        features[image, lower] = confidence * (one - upper_share)
        features[image, min(lower + 1, max_objects)] += confidence * upper_share
        count[image] = c
        certainty[image] = mean


@_compile
def _overlap_backward(i: int, j: int, b: Array, grad_distance: Number, grad_b: Array) -> None:
    """Add what boxes i and j owe to D_ij = 1 - IoU; equal edges share their gradient."""
    dtype = b.dtype.type
    zero, half, one = dtype(0), dtype(0.5), dtype(1)
    width = min(b[2, i], b[2, j]) - max(b[0, i], b[0, j])
    height = min(b[3, i], b[3, j]) - max(b[1, i], b[1, j])
    shared = max(width, zero) * max(height, zero)
    area_i = max(b[2, i] - b[0, i], zero) * max(b[3, i] - b[1, i], zero)
    area_j = max(b[2, j] - b[0, j], zero) * max(b[3, j] - b[1, j], zero)
    union = area_i + area_j - shared
    if not union > zero:
        return
    grad_area = grad_distance * shared / (union * union)
    grad_shared = -grad_distance / union - grad_area
    for axis in range(2):
        low, high = axis, axis + 2
        across = 1 - axis
        for box in (i, j):
            if b[high, box] >= b[low, box]:
                grad = grad_area * max(b[across + 2, box] - b[across, box], zero)
                grad_b[low, box] -= grad
                grad_b[high, box] += grad
        extent, other = (width, height) if axis == 0 else (height, width)
        if extent >= zero:
            grad = grad_shared * max(other, zero)
            share = one if b[low, i] > b[low, j] else (zero if b[low, i] < b[low, j] else half)
            grad_b[low, i] -= grad * share
            grad_b[low, j] -= grad * (one - share)
            share = one if b[high, i] < b[high, j] else (zero if b[high, i] > b[high, j] else half)
            grad_b[high, i] += grad * share
            grad_b[high, j] += grad * (one - share)


@_compile
def _count_backward_kernel(
    attention: Array,
    boxes: Array,
    mask: Array,
    weight: Array,
    count: Array,
    certainty: Array,
    scale: Array,
    products: Array,
    grad_features: Array,
    grad_count: Array,
    grad_attention: Array,
    grad_boxes: Array,
    grad_rise: Array,
    first: int,
    stop: int,
) -> None:
    """Write the gradients of images first ... stop - 1, and add what their counters' segments are owed."""
    dtype = attention.dtype.type
    zero, half, one, two = dtype(0), dtype(0.5), dtype(1), dtype(2)
    boxes_number, max_objects = attention.shape[1], grad_features.shape[1] - 1
    images_per_counter = attention.shape[0] // weight.shape[0]
    segments = weight.shape[2]
    base = np.empty(weight.shape[1:], attention.dtype)
    rise = np.empty_like(base)
    order = np.empty(boxes_number, np.int32)
    a = np.empty(boxes_number, attention.dtype)
    b = np.empty((4, boxes_number), attention.dtype)
    grad_a, grad_b = np.empty_like(a), np.empty_like(b)
    distance = np.empty((boxes_number, boxes_number), attention.dtype)
    rows, edges, grad_rows = np.empty_like(distance), np.empty_like(distance), np.empty_like(distance)
    grad_alike = np.empty(boxes_number, attention.dtype)
    share, place, segment = np.empty_like(a), np.empty_like(a), np.empty(boxes_number, np.int32)
    # Sums over many images: in double precision, and at first by where a segment starts and its slope.
    grad_start = np.zeros((8, segments))
    grad_slope = np.zeros((8, segments))
    like_start = np.zeros((segments, LANES))
    like_slope = np.zeros((segments, LANES))
    counter = -1
    for image in range(first, stop):
        if image // images_per_counter != counter:
            if counter >= 0:
                _settle(grad_start, grad_slope, like_start, like_slope, grad_rise[counter])
            counter = image // images_per_counter
            _normalise(weight[counter], base, rise)
        n = _real_proposals(image, attention, boxes, mask, order, a, b)
        _fill_matrices(n, a, b, base, rise, distance, rows, edges)
        grad_a[:n] = zero
        grad_b[:, :n] = zero
        grad_rows[:n, :n] = zero

        # From the features to the sum of C and the confidence.
        c, mean = count[image], certainty[image]
        confidence = _value(mean, base[F8], rise[F8])
        lower = np.int32(np.floor(c))
        upper = min(lower + 1, max_objects)
        upper_share = c - np.floor(c)
        grad_lower, grad_upper = grad_features[image, lower], grad_features[image, upper]
        grad_confidence = (one - upper_share) * grad_lower + upper_share * grad_upper
        grad_total = (confidence * (grad_upper - grad_lower) + grad_count[image]) / (two * c)
        grad_mean = _backward(mean, grad_confidence, rise[F8], grad_start[F8], grad_slope[F8])

        # From C to the row sums of Sim, and to each weight on its own.
        for i in range(n):
            inner = zero
            for j in range(n):
                inner += edges[i, j] * scale[image, j]
            scale_i = scale[image, i]
            squared = a[i] * a[i]
            grad_scale = grad_total * (_value(squared, base[F1], rise[F1]) + inner + inner)
            grad_alike[i] = -grad_scale * scale_i * scale_i
            grad_loop = _backward(squared, grad_total * scale_i, rise[F1], grad_start[F1], grad_slope[F1])
            grad_a[i] += grad_loop * two * a[i]
            grad_certainty = grad_mean / dtype(n) * np.sign(_value(a[i], base[F6], rise[F6]) - half)
            grad_a[i] += _backward(a[i], grad_certainty, rise[F6], grad_start[F6], grad_slope[F6])

        # From Sim to the rows of X, and to the differences of weights.
        for i in range(n):
            for j in range(i + 1, n):
                grad_similarity = grad_alike[i] + grad_alike[j]
                product = products[image, i, j]
                difference = a[i] - a[j]
                closeness = one - abs(difference)
                if product != zero:
                    _row_product_backward(
                        rows[i, :n],
                        rows[j, :n],
                        grad_rows[i, :n],
                        grad_rows[j, :n],
                        grad_similarity * _value(closeness, base[F3], rise[F3]) * abs(product),
                        np.int32(product < zero),
                        base[F3],
                        rise[F3],
                        share,
                        place,
                        segment,
                        like_start,
                        like_slope,
                    )
                grad_like = grad_similarity * max(product, zero)
                grad_closeness = _backward(closeness, grad_like, rise[F3], grad_start[F3], grad_slope[F3])
                grad_a[i] -= grad_closeness * np.sign(difference)
                grad_a[j] += grad_closeness * np.sign(difference)

        # From Ã, X and the confidence to relevance and distance, and on to weights and boxes.
        for i in range(n):
            for j in range(i + 1, n):
                relevance, d = a[i] * a[j], distance[i, j]
                grad_edge = two * grad_total * scale[image, i] * scale[image, j]
                grad_row = grad_rows[i, j] + grad_rows[j, i]
                edge_a, edge_d = _value(relevance, base[F1], rise[F1]), _value(d, base[F2], rise[F2])
                row_a, row_d = _value(relevance, base[F4], rise[F4]), _value(d, base[F5], rise[F5])
                grad_relevance = _backward(relevance, grad_edge * edge_d, rise[F1], grad_start[F1], grad_slope[F1])
                grad_relevance += _backward(relevance, grad_row * row_d, rise[F4], grad_start[F4], grad_slope[F4])
                grad_distance = _backward(d, grad_edge * edge_a, rise[F2], grad_start[F2], grad_slope[F2])
                grad_distance += _backward(d, grad_row * row_a, rise[F5], grad_start[F5], grad_slope[F5])
                grad_certainty = two * grad_mean / dtype(n * n) * np.sign(_value(d, base[F7], rise[F7]) - half)
                grad_distance += _backward(d, grad_certainty, rise[F7], grad_start[F7], grad_slope[F7])
                grad_a[i] += grad_relevance * a[j]
                grad_a[j] += grad_relevance * a[i]
                _overlap_backward(i, j, b, grad_distance, grad_b)

        grad_attention[image, :] = zero
        grad_boxes[image, :, :] = zero
        for i in range(n):
            grad_attention[image, order[i]] = grad_a[i]
            for corner in range(4):
                grad_boxes[image, order[i], corner] = grad_b[corner, i]
    if counter >= 0:
        _settle(grad_start, grad_slope, like_start, like_slope, grad_rise[counter])


@_compile
def _settle(grad_start: Array, grad_slope: Array, like_start: Array, like_slope: Array, grad_rise: Array) -> None:
    """Add a counter's sums to its gradient [8, S] and clear them: a start is the sum of the rises before it."""
    segments = grad_start.shape[1]
    for s in range(segments):
        for lane in range(LANES):
            grad_start[F3, s] += like_start[s, lane]
            grad_slope[F3, s] += like_slope[s, lane]
    for role in range(8):
        later = 0.0
        for s in range(segments - 1, -1, -1):
            grad_rise[role, s] += grad_slope[role, s] + later
            later += grad_start[role, s]
    grad_start[:] = 0.0
    grad_slope[:] = 0.0
    like_start[:] = 0.0
    like_slope[:] = 0.0


@cache
def _threads(number: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(number, thread_name_prefix="tallybox")


os.register_at_fork(after_in_child=_threads.cache_clear)  # a forked child has none of its parent's threads


def _share_out(images: int, boxes_number: int, run: Callable[[int, int, int], None]) -> None:
    """Call run(chunk, first, stop) for consecutive chunks of the images, on as many threads as torch uses."""
    chunks = _chunk_number(images, boxes_number)
    borders = np.linspace(0, images, chunks + 1).astype(int).tolist()
    if chunks == 1:
        run(0, 0, images)
        return
    pool = _threads(torch.get_num_threads())
    for done in [pool.submit(run, chunk, *borders[chunk : chunk + 2]) for chunk in range(chunks)]:
        done.result()


def _chunk_number(images: int, boxes_number: int) -> int:
    # Two chunks a thread: one that is held up leaves the others something to do.
    worth = images * (boxes_number + 4) ** 3 // STEPS_PER_THREAD
    return int(max(1, min(images, worth, 2 * torch.get_num_threads())))


def _array(tensor: Tensor | None) -> Array:
    return np.empty((0, 0), bool) if tensor is None else tensor.detach().numpy()


def count_forward_cpu(
    attention: Tensor, boxes: Tensor, weight: Tensor, mask: Tensor | None, max_objects: int, keep: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Count ``attention [M * R, N]`` with ``weight [M, 8, S]``: features, count, and what backward needs."""
    images, number = attention.shape
    features = attention.new_empty(images, max_objects + 1)
    count, certainty = attention.new_empty(images), attention.new_empty(images)
    scale = attention.new_empty(images, number)
    products = attention.new_empty((images, number, number) if keep else (0, 0, 0))
    arrays = [_array(t) for t in (attention, boxes, mask, weight, features, count, certainty, scale, products)]
    _share_out(images, number, lambda _, first, stop: _count_forward_kernel(*arrays, first, stop))
    return features, count, certainty, scale, products


def count_backward_cpu(
    attention: Tensor,
    boxes: Tensor,
    weight: Tensor,
    mask: Tensor | None,
    count: Tensor,
    certainty: Tensor,
    scale: Tensor,
    products: Tensor,
    grad_features: Tensor,
    grad_count: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of attention, boxes and weight."""
    images, number = attention.shape
    grad_attention, grad_boxes = torch.empty_like(attention), torch.empty_like(boxes)
    grad_rise = np.zeros((_chunk_number(images, number), *weight.shape))
    arrays = [
        _array(t)
        for t in (attention, boxes, mask, weight, count, certainty, scale, products)
        + (grad_features, grad_count, grad_attention, grad_boxes)
    ]
    _share_out(
        images,
        number,
        lambda chunk, first, stop: _count_backward_kernel(*arrays, grad_rise[chunk], first, stop),
    )
    grad_weight = torch.empty_like(weight)
    _weight_gradient(_array(weight), grad_rise.sum(0), _array(grad_weight))
    return grad_attention, grad_boxes, grad_weight


@_compile
def _weight_gradient(weight: Array, grad_rise: Array, grad_weight: Array) -> None:
    """Carry the gradients of all counters' rises [M, 8, S] to their weights."""
    for counter in range(weight.shape[0]):
        _normalise_backward(weight[counter], grad_rise[counter], grad_weight[counter])
