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
# need not wait for the one before it to reach memory; and in single precision for at most this many
# steps, then in double.
LANES = 8
STEPS_BETWEEN_SETTLEMENTS = 1 << 16

# From this many boxes on, a row's steps pay for loops of their own that the compiler can vectorise
# (measured on 2 cores of an AMD EPYC 7003: 6.6 against 14 ns a step at 10 boxes, 6.2 against 2.9 at 100).
BOXES_WORTH_SPLITTING = 24

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
def _start(position: Number, last: Number) -> Number:
    """Return the number of the segment at a position, within the table whatever the position (NaN too)."""
    start = np.floor(position)
    start = start if start < last else last
    return start if start > last - last else last - last


@_compile
def _locate(x: Number, rise: Array) -> tuple[int, Number]:
    """Return the segment that x in [0, 1] falls into, and how far into it, in [0, 1]."""
    dtype = rise.dtype.type
    segments = dtype(rise.shape[1])
    position = x * segments
    start = _start(position, segments - dtype(1))
    return np.uint32(np.int32(start)), position - start


@_compile
def _value(role: int, x: Number, base: Array, rise: Array) -> Number:
    s, place = _locate(x, rise)
    return base[role, s] + rise[role, s] * place


@_compile
def _owe(role: int, s: int, place: Number, grad: Number, rise: Array, owed: Array) -> Number:
    """Note what f(x), of gradient grad, owes to its segment; return the gradient of x."""
    owed[role, s, 0] += grad
    owed[role, s, 1] += grad * place
    return grad * rise[role, s] * rise.dtype.type(rise.shape[1])


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
def _fill_matrices(
    n: int, a: Array, b: Array, base: Array, rise: Array, distance: Array, rows: Array, edges: Array
) -> None:
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
            s, place = _locate(a[i] * a[j], rise)
            t, there = _locate(d, rise)
            x = (base[F4, s] + rise[F4, s] * place) * (base[F5, t] + rise[F5, t] * there)
            e = (base[F1, s] + rise[F1, s] * place) * (base[F2, t] + rise[F2, t] * there)
            distance[i, j] = distance[j, i] = d
            rows[i, j] = rows[j, i] = x
            edges[i, j] = edges[j, i] = e


@_compile
def _row_product(row_i: Array, row_j: Array, base: Array, rise: Array) -> Number:
    """∏_k f3(1 - |X_ik - X_jk|)."""
    dtype = rise.dtype.type
    one, segments = dtype(1), dtype(rise.shape[0])
    last = segments - one
    product = one
    for k in range(row_i.shape[0]):
        position = (one - abs(row_i[k] - row_j[k])) * segments
        start = _start(position, last)
        s = np.uint32(np.int32(start))
        product *= base[s] + rise[s] * (position - start)
    return product


@_compile
def _single_zero(row_i: Array, row_j: Array, base: Array, rise: Array) -> tuple[Number, int]:
    """Of a row product that is 0: the product of its other factors and the place of its only 0, or -1."""
    dtype = rise.dtype.type
    one, segments = dtype(1), dtype(rise.shape[0])
    product = one
    place = -1
    for k in range(row_i.shape[0]):
        position = (one - abs(row_i[k] - row_j[k])) * segments
        start = _start(position, segments - one)
        s = np.uint32(np.int32(start))
        factor = base[s] + rise[s] * (position - start)
        if factor == dtype(0):
            if place >= 0:
                return dtype(0), -1
            place = k
        else:
            product *= factor
    return product, place


@_compile
def _row_step_backward(
    k: int, row_i: Array, row_j: Array, grad_i: Array, grad_j: Array, others: Number, rise: Array, owed: Array
) -> None:
    """Add the gradients of factor k of a row product, given the product of the other factors."""
    dtype = rise.dtype.type
    zero, one, segments = dtype(0), dtype(1), dtype(rise.shape[0])
    difference = row_i[k] - row_j[k]
    position = (one - abs(difference)) * segments
    start = _start(position, segments - one)
    s = np.uint32(np.int32(start))
    slope = others * rise[s] * segments
    slope = slope if difference > zero else (-slope if difference < zero else zero)
    grad_i[k] -= slope
    grad_j[k] += slope
    lane = np.uint32(k) % np.uint32(LANES)
    owed[lane, s, 0] += others
    owed[lane, s, 1] += others * (position - start)


@_compile
def _short_row_backward(
    row_i: Array, row_j: Array, grad_i: Array, grad_j: Array, product: Number, base: Array, rise: Array, owed: Array
) -> None:
    """Add the gradients of a row product whose value times its own gradient is given."""
    dtype = rise.dtype.type
    one, segments = dtype(1), dtype(rise.shape[0])
    for k in range(row_i.shape[0]):
        position = (one - abs(row_i[k] - row_j[k])) * segments
        start = _start(position, segments - one)
        s = np.uint32(np.int32(start))
        others = product / (base[s] + rise[s] * (position - start))
        _row_step_backward(k, row_i, row_j, grad_i, grad_j, others, rise, owed)


@_compile
def _long_row_backward(
    row_i: Array,
    row_j: Array,
    grad_i: Array,
    grad_j: Array,
    product: Number,
    base: Array,
    rise: Array,
    owed: Array,
    steps: Array,
    segment: Array,
) -> None:
    """Do as `_short_row_backward`, in loops that are each vectorised: table look-ups stand alone."""
    dtype = rise.dtype.type
    zero, one, segments = dtype(0), dtype(1), dtype(rise.shape[0])
    n = row_i.shape[0]
    place, others, slope = steps[0, :n], steps[1, :n], steps[2, :n]
    for k in range(n):
        position = (one - abs(row_i[k] - row_j[k])) * segments
        start = _start(position, segments - one)
        place[k] = position - start
        segment[k] = np.int32(start)
    for k in range(n):
        s = np.uint32(segment[k])
        others[k] = base[s] + rise[s] * place[k]
        slope[k] = rise[s]
    for k in range(n):
        without = product / others[k]
        difference = row_i[k] - row_j[k]
        grad = without * slope[k] * segments
        grad = grad if difference > zero else -grad
        slope[k] = grad if difference != zero else zero
        others[k] = without
        place[k] = without * place[k]
    for k in range(n):
        grad_i[k] -= slope[k]
        grad_j[k] += slope[k]
    for k in range(n):
        s, lane = np.uint32(segment[k]), np.uint32(k) % np.uint32(LANES)
        owed[lane, s, 0] += others[k]
        owed[lane, s, 1] += place[k]


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
    keep = products.shape[0] > 0
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
                product = _row_product(rows[i, :n], rows[j, :n], base[F3], rise[F3])
                similarity = _value(F3, one - abs(a[i] - a[j]), base, rise) * product
                alike[i] += similarity
                alike[j] += similarity
                if keep:
                    products[image, i, j] = product
        total = zero
        from_attention, from_distance = zero, zero
        for i in range(n):
            scale_i = one / alike[i]
            scale[image, i] = scale_i
            inner = zero
            for j in range(i):
                inner += edges[i, j] * scale[image, j]
                from_distance += abs(_value(F7, distance[i, j], base, rise) - half)
            total += scale_i * (_value(F1, a[i] * a[i], base, rise) + inner + inner)
            from_attention += abs(_value(F6, a[i], base, rise) - half)
        if n > 0:
            real = dtype(n)
            mean = from_attention / real + (half * real + from_distance + from_distance) / (real * real)
        else:
            mean = one  # as certain as an image whose every weight is 0
        c = min(np.sqrt(total + dtype(1e-20)), dtype(max_objects))
        confidence = _value(F8, mean, base, rise)
        lower = max(min(np.int32(np.floor(c)), max_objects), 0)  # a place in the features even if c is NaN
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
    steps, segment = np.empty((3, boxes_number), attention.dtype), np.empty(boxes_number, np.int32)
    # What each segment is owed: by values in it (how far it starts up), and by their place in it.
    owed = np.zeros((8, segments, 2))
    likeness_owed = np.zeros((LANES, segments, 2), attention.dtype)
    unsettled = 0
    counter = -1
    for image in range(first, stop):
        if image // images_per_counter != counter:
            if counter >= 0:
                _settle(likeness_owed, owed, grad_rise[counter])
            counter = image // images_per_counter
            _normalise(weight[counter], base, rise)
        elif unsettled > STEPS_BETWEEN_SETTLEMENTS:
            _settle(likeness_owed, owed, grad_rise[counter])
            unsettled = 0
        n = _real_proposals(image, attention, boxes, mask, order, a, b)
        _fill_matrices(n, a, b, base, rise, distance, rows, edges)
        grad_a[:n] = zero
        grad_b[:, :n] = zero
        grad_rows[:n, :n] = zero

        # From the features to the sum of C and the confidence.
        c, mean = count[image], certainty[image]
        confidence = _value(F8, mean, base, rise)
        lower = max(min(np.int32(np.floor(c)), max_objects), 0)  # a place in the features even if c is NaN
        upper = min(lower + 1, max_objects)
        upper_share = c - np.floor(c)
        grad_lower, grad_upper = grad_features[image, lower], grad_features[image, upper]
        grad_confidence = (one - upper_share) * grad_lower + upper_share * grad_upper
        grad_total = (confidence * (grad_upper - grad_lower) + grad_count[image]) / (two * c)
        s, place = _locate(mean, rise)
        grad_mean = _owe(F8, s, place, grad_confidence, rise, owed)

        # From C to the row sums of Sim, and to each weight on its own.
        for i in range(n):
            inner = zero
            for j in range(n):
                inner += edges[i, j] * scale[image, j]
            scale_i = scale[image, i]
            s, place = _locate(a[i] * a[i], rise)
            grad_scale = grad_total * (base[F1, s] + rise[F1, s] * place + inner + inner)
            grad_alike[i] = -grad_scale * scale_i * scale_i
            grad_a[i] += _owe(F1, s, place, grad_total * scale_i, rise, owed) * two * a[i]
            s, place = _locate(a[i], rise)
            side = np.sign(base[F6, s] + rise[F6, s] * place - half)
            grad_a[i] += _owe(F6, s, place, grad_mean / dtype(n) * side, rise, owed)

        # From Sim to the rows of X, and to the differences of weights.
        for i in range(n):
            for j in range(i + 1, n):
                row_i, row_j, grad_i, grad_j = rows[i, :n], rows[j, :n], grad_rows[i, :n], grad_rows[j, :n]
                grad_similarity = grad_alike[i] + grad_alike[j]
                product = products[image, i, j]
                s, place = _locate(one - abs(a[i] - a[j]), rise)
                grad_product = grad_similarity * (base[F3, s] + rise[F3, s] * place)
                if product == zero:
                    product, k = _single_zero(row_i, row_j, base[F3], rise[F3])
                    if k >= 0:
                        others = grad_product * product
                        _row_step_backward(k, row_i, row_j, grad_i, grad_j, others, rise[F3], likeness_owed)
                    continue
                grad_product *= product
                if n < BOXES_WORTH_SPLITTING:
                    _short_row_backward(row_i, row_j, grad_i, grad_j, grad_product, base[F3], rise[F3], likeness_owed)
                else:
                    _long_row_backward(
                        row_i, row_j, grad_i, grad_j, grad_product, base[F3], rise[F3], likeness_owed, steps, segment
                    )
                grad_closeness = _owe(F3, s, place, grad_similarity * product, rise, owed)
                grad_a[i] -= grad_closeness * np.sign(a[i] - a[j])
                grad_a[j] += grad_closeness * np.sign(a[i] - a[j])
        unsettled += n * n * n

        # From Ã, X and the confidence to relevance and distance, and on to weights and boxes.
        for i in range(n):
            for j in range(i + 1, n):
                s, place = _locate(a[i] * a[j], rise)
                t, there = _locate(distance[i, j], rise)
                grad_edge = two * grad_total * scale[image, i] * scale[image, j]
                grad_row = grad_rows[i, j] + grad_rows[j, i]
                side = np.sign(base[F7, t] + rise[F7, t] * there - half)
                grad_relevance = _owe(F1, s, place, grad_edge * (base[F2, t] + rise[F2, t] * there), rise, owed) + _owe(
                    F4, s, place, grad_row * (base[F5, t] + rise[F5, t] * there), rise, owed
                )
                grad_distance = (
                    _owe(F2, t, there, grad_edge * (base[F1, s] + rise[F1, s] * place), rise, owed)
                    + _owe(F5, t, there, grad_row * (base[F4, s] + rise[F4, s] * place), rise, owed)
                    + _owe(F7, t, there, two * grad_mean / dtype(n * n) * side, rise, owed)
                )
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
        _settle(likeness_owed, owed, grad_rise[counter])


@_compile
def _settle(likeness_owed: Array, owed: Array, grad_rise: Array) -> None:
    """Add what is owed to a counter's gradient [8, S] and forget it: a start is the sum of the rises before it."""
    segments = owed.shape[1]
    for lane in range(LANES):
        for s in range(segments):
            owed[F3, s, 0] += likeness_owed[lane, s, 0]
            owed[F3, s, 1] += likeness_owed[lane, s, 1]
    for role in range(8):
        later = 0.0
        for s in range(segments - 1, -1, -1):
            grad_rise[role, s] += owed[role, s, 1] + later
            later += owed[role, s, 0]
    owed[:] = 0.0
    likeness_owed[:] = 0.0


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
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Count ``attention [M * R, N]`` with ``weight [M, 8, S]``: features, count, and what backward needs."""
    images, number = attention.shape
    features = attention.new_empty(images, max_objects + 1)
    count, certainty = attention.new_empty(images), attention.new_empty(images)
    scale = attention.new_empty(images, number)
    products = attention.new_empty((images, number, number) if keep else (0, 0, 0))
    arrays = [_array(t) for t in (attention, boxes, mask, weight, features, count, certainty, scale, products)]
    _share_out(images, number, lambda _, first, stop: _count_forward_kernel(*arrays, first, stop))
    return features, count, [certainty, scale, products]


def count_backward_cpu(
    attention: Tensor,
    boxes: Tensor,
    weight: Tensor,
    mask: Tensor | None,
    count: Tensor,
    kept: list[Tensor],
    grad_features: Tensor,
    grad_count: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of attention, boxes and weight."""
    images, number = attention.shape
    grad_attention, grad_boxes = torch.empty_like(attention), torch.empty_like(boxes)
    grads = (grad_features, grad_count, grad_attention, grad_boxes)
    grad_rise = np.zeros((_chunk_number(images, number), *weight.shape))
    arrays = [_array(t) for t in (attention, boxes, mask, weight, count, *kept, *grads)]
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
