"""The innermost steps: eight activations at once, and eight factors of a row product with their gradients."""

from __future__ import annotations

from typing import Any

from tallybox.counter.cpu.parts import F3
from tallybox.kernels.cpu.compiling import TINY, Array, Number, compiled
from tallybox.kernels.cpu.vectors import (
    REGISTER_ENTRIES,
    add_at,
    as_numbers,
    choose,
    look_up_in_memory,
    look_up_in_registers,
    truncate,
)

Vector = Any  # eight numbers of the arrays' precision
Integers = Any
Truths = Any


@compiled
def look_up(table: Array, role: int, s: Integers) -> Vector:
    """Return table[role, s]."""
    if table.shape[1] <= REGISTER_ENTRIES:
        return look_up_in_registers(table, role, s)
    return look_up_in_memory(table, role, s)


@compiled
def locate_all(x: Vector, rise: Array) -> tuple[Integers, Vector]:
    """Return the segments that x in [0, 1] fall into, the last for NaN, and how far into them, in [0, 1]."""
    dtype = rise.dtype.type
    segments = dtype(rise.shape[1])
    position = x * segments
    s = truncate(max(min(position, segments - dtype(1)), dtype(0)))
    return s, position - as_numbers(s, position)


@compiled
def value_at(role: int, s: Integers, place: Vector, base: Array, rise: Array) -> Vector:
    """f(x) of one activation for x that `locate_all` found."""
    return look_up(base, role, s) + look_up(rise, role, s) * place


@compiled
def owe_all(role: int, s: Integers, place: Vector, grad: Vector, rise: Array, owed: Array) -> Vector:
    """Note what f(x), of gradient grad, owe to their segments; return the gradient of x."""
    add_at(owed, role, s, grad, grad * place)
    return grad * look_up(rise, role, s) * rise.dtype.type(rise.shape[1])


@compiled
def signed(x: Vector, sign: Vector, zero: Number) -> Vector:
    """X times the sign of another number, and that of 0 is 0."""
    return choose(sign > zero, x, choose(sign < zero, -x, zero))


@compiled
def likeness(x_i: Vector, x_j: Vector, base: Array, rise: Array) -> Vector:
    """f3(1 - |X_ik - X_jk|), not below TINY."""
    dtype = rise.dtype.type
    s, place = locate_all(dtype(1) - abs(x_i - x_j), rise)
    return max(value_at(F3, s, place, base, rise), dtype(TINY))


@compiled
def likeness_backward(
    x_i: Vector, x_j: Vector, product: Number | Vector, is_real: Truths, base: Array, rise: Array, owed: Array
) -> Vector:
    """Note what steps of a row product owe, given its value times its gradient; return minus the gradient of X_ik."""
    dtype = rise.dtype.type
    difference = x_i - x_j
    s, place = locate_all(dtype(1) - abs(difference), rise)
    slope = look_up(rise, F3, s)
    others = product / max(look_up(base, F3, s) + slope * place, dtype(TINY))
    owing = choose(is_real, others, dtype(0))
    add_at(owed, F3, s, owing, owing * place)
    return signed(others * slope * dtype(rise.shape[1]), difference, dtype(0))
