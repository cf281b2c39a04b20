"""What all kernels are made of: segments of the activations, and both ends of an image, in plain numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tallybox.kernels.cpu.compiling import Array, Number, compiled
from tallybox.kernels.cpu.vectors import LANES, REGISTER_ENTRIES

# The activations' rows in a table: the paper's numbers less one.
F1, F2, F3, F4, F5, F6, F7, F8 = range(8)

# Gradients of activations are summed in the inputs' precision for at most this many steps, then in double.
STEPS_BETWEEN_SETTLEMENTS = 1 << 16


@compiled
def empty_table(segments: int, like: Array) -> Array:
    """Return room for [8, S] numbers, with so many behind each row's start that look-ups in registers may read."""
    return np.empty(8 * segments + REGISTER_ENTRIES, like.dtype)[: 8 * segments].reshape(8, segments)


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
def weight_gradient(weight: Array, grad_rise: Array, grad_weight: Array) -> None:
    """Carry the gradients of all counters' rises [M, 8, S] to their weights."""
    for counter in range(weight.shape[0]):
        normalise_backward(weight[counter], grad_rise[counter], grad_weight[counter])


@compiled
def locate(x: Number, rise: Array) -> tuple[Any, Number]:
    """Return the segment that x in [0, 1] falls into, the last if it is NaN, and how far into it, in [0, 1]."""
    dtype = rise.dtype.type
    zero, segments = dtype(0), dtype(rise.shape[1])
    position = x * segments
    start = np.floor(position)
    last = segments - dtype(1)
    start = start if start < last else last
    start = start if start > zero else zero
    return np.uint32(np.int32(start)), position - start


@compiled
def value(role: int, x: Number, base: Array, rise: Array) -> Number:
    """f(x) of one activation."""
    s, place = locate(x, rise)
    return base[role, s] + rise[role, s] * place


@compiled
def owe(role: int, s: int, place: Number, grad: Number, rise: Array, owed: Array) -> Number:
    """Note what f(x), of gradient grad, owes to its segment; return the gradient of x."""
    owed[role, s, 0, 0] += grad
    owed[role, s, 0, 1] += grad * place
    return grad * rise[role, s] * rise.dtype.type(rise.shape[1])


@compiled
def settle(owed: Array, grad_rise: Array) -> None:
    """Add what is owed [8, S, LANES, 2] to a counter's gradient [8, S] and forget it.

    A segment is owed by values in it, as its start is the sum of the rises before it, and by their place in it.
    """
    for role in range(8):
        later = 0.0
        for s in range(owed.shape[1] - 1, -1, -1):
            by_value, by_place = 0.0, 0.0
            for lane in range(LANES):
                by_value += owed[role, s, lane, 0]
                by_place += owed[role, s, lane, 1]
            grad_rise[role, s] += by_place + later
            later += by_value
    owed[:] = 0.0


@compiled
def write_features(
    image: int, total: Number, mean: Number, base: Array, rise: Array, features: Array, count: Array
) -> None:
    """Write an image's count and features from the sum of C and the certainty."""
    dtype = rise.dtype.type
    one, max_objects = dtype(1), features.shape[1] - 1
    c = min(np.sqrt(total + dtype(1e-20)), dtype(max_objects))
    confidence = value(F8, mean, base, rise)
    lower = max(min(np.int32(np.floor(c)), max_objects), 0)  # a place in the features even if c is NaN
    upper_share = c - np.floor(c)
    for place in range(max_objects + 1):
        features[image, place] = dtype(0)
    features[image, lower] = confidence * (one - upper_share)
    features[image, min(lower + 1, max_objects)] += confidence * upper_share
    count[image] = c


@compiled
def features_backward(
    image: int,
    mean: Number,
    count: Array,
    grad_features: Array,
    grad_count: Array,
    base: Array,
    rise: Array,
    owed: Array,
) -> tuple[Number, Number]:
    """Return the gradients of the sum of C and of the certainty."""
    dtype = rise.dtype.type
    one, two, max_objects = dtype(1), dtype(2), grad_features.shape[1] - 1
    c = count[image]
    confidence = value(F8, mean, base, rise)
    lower = max(min(np.int32(np.floor(c)), max_objects), 0)  # a place in the features even if c is NaN
    upper_share = c - np.floor(c)
    grad_lower, grad_upper = grad_features[image, lower], grad_features[image, min(lower + 1, max_objects)]
    grad_confidence = (one - upper_share) * grad_lower + upper_share * grad_upper
    grad_total = (confidence * (grad_upper - grad_lower) + grad_count[image]) / (two * c)
    s, place = locate(mean, rise)
    return grad_total, owe(F8, s, place, grad_confidence, rise, owed)
