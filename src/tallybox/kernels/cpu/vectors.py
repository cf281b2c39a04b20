"""A vector of eight numbers for numba, with arithmetic that is one machine instruction where there is one.

LLVM finds no vectors by itself where a loop looks things up in tables: it cannot know that what the loop
writes is not the table. Here `load` makes a vector, operators, `abs`, `min`, `max` and `choose` work on it
number by number (scalars of the same precision spread), `store` writes it back.
"""

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import extending
from numba.core import cgutils, types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, lower_cast, models, register_model

instruction: Any = extending.intrinsic  # types what it compiles as the compiling function, which takes other arguments

LANES = 8

# Tables of at most this many entries can be looked up in registers: two of eight numbers each.
REGISTER_ENTRIES = 16

INT32, INT64 = ir.IntType(32), ir.IntType(64)
LLVM_ELEMENT = {
    types.float32: ir.FloatType(),
    types.float64: ir.DoubleType(),
    types.int32: INT32,
    types.boolean: ir.IntType(1),
}


class Vector(types.Type):
    """The numba type of a vector."""

    def __init__(self, element: Any) -> None:
        self.element = element
        super().__init__(name=f"Vector({element})")


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    """A vector is a vector of LLVM's."""

    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, ir.VectorType(LLVM_ELEMENT[vector.element], LANES))


TRUTHS, INTEGERS = Vector(types.boolean), Vector(types.int32)


@lower_cast(types.Float, Vector)
def _spread(context: Any, builder: Any, scalar: Any, vector: Vector, value: Any) -> Any:
    undefined = ir.Constant(context.get_value_type(vector), ir.Undefined)
    first = builder.insert_element(undefined, context.cast(builder, value, scalar, vector.element), _int32(0))
    return builder.shuffle_vector(first, undefined, _int32s([0] * LANES))


def _int32(number: int) -> Any:
    return ir.Constant(INT32, number)


def _int32s(numbers: list[int]) -> Any:
    return ir.Constant(ir.VectorType(INT32, len(numbers)), numbers)


def _common(operands: tuple[Any, ...]) -> Vector | None:
    """Return the one type of vector among the operands, if the others are scalars of its precision."""
    vectors = {operand for operand in operands if isinstance(operand, Vector)}
    if len(vectors) != 1:
        return None
    (vector,) = vectors
    return vector if all(operand in (vector, vector.element) for operand in operands) else None


def _define(operation: Any, emit: Callable[..., Any], *, operands: int = 2, result: Vector | None = None) -> None:
    """Let numba type and compile an operation on vectors."""

    class Template(AbstractTemplate):
        def generic(self, kinds: tuple[Any, ...], _: Any) -> Any:
            vector = _common(kinds)
            if vector is not None and len(kinds) == operands:
                return signature(result or vector, *[vector] * operands)
            return None

    infer_global(operation)(Template)

    def lower(context: Any, builder: Any, _: Any, arguments: list[Any]) -> Any:
        return emit(builder, *arguments)

    lower_builtin(operation, *[Vector] * operands)(lower)


def _absolute(builder: Any, x: Any) -> Any:
    name = f"llvm.fabs.v{LANES}f{32 if x.type.element == ir.FloatType() else 64}"
    return builder.call(cgutils.get_or_insert_function(builder.module, ir.FunctionType(x.type, [x.type]), name), [x])


_ARITHMETIC = {operator.add: "fadd", operator.sub: "fsub", operator.mul: "fmul", operator.truediv: "fdiv"}
for _operation, _name in _ARITHMETIC.items():
    _define(_operation, lambda builder, x, y, name=_name: getattr(builder, name)(x, y))
for _operation, _sign in {operator.lt: "<", operator.gt: ">", operator.ge: ">=", operator.eq: "=="}.items():
    _define(_operation, lambda builder, x, y, sign=_sign: builder.fcmp_ordered(sign, x, y), result=TRUTHS)
_define(operator.neg, lambda builder, x: builder.fneg(x), operands=1)
_define(operator.and_, lambda builder, x, y: builder.and_(x, y))
# The second where either is NaN.
_define(min, lambda builder, x, y: builder.select(builder.fcmp_ordered("<", x, y), x, y))
_define(max, lambda builder, x, y: builder.select(builder.fcmp_ordered(">", x, y), x, y))
_define(abs, _absolute, operands=1)


@instruction
def choose(_: Any, truth: Any, x: Any, y: Any) -> Any:
    """Take x where it is true and y elsewhere; for a vector of truths or for one."""
    common: Any = y if truth == types.boolean else _common((x, y))
    return common(truth, common, common), lambda context, builder, _, arguments: builder.select(*arguments)


def _address(context: Any, builder: Any, kinds: Any, arguments: list[Any]) -> Any:
    """Return the address of array[index], the first two arguments; indices are not checked and do not wrap around."""
    array_type, index_type = kinds.args[:2]
    typed = zip(cgutils.unpack_tuple(builder, arguments[1], len(index_type)), index_type, strict=True)
    numbers = [context.cast(builder, number, kind, types.intp) for number, kind in typed]
    whole = context.make_array(array_type)(context, builder, arguments[0])
    return cgutils.get_item_pointer(context, builder, array_type, whole, numbers, wraparound=False)


def _bytes(array: Any) -> int:
    return int(array.dtype.bitwidth // 8)


@instruction
def load(_: Any, array: Any, index: Any) -> Any:
    """Return the numbers that lie one after another from array[index] on."""
    vector = Vector(array.dtype)

    def generate(context: Any, builder: Any, types_: Any, arguments: list[Any]) -> Any:
        start = _address(context, builder, types_, arguments)
        whole = context.get_value_type(vector).as_pointer()
        return builder.load(builder.bitcast(start, whole), align=_bytes(array))

    return vector(array, index), generate


@instruction
def store(_: Any, array: Any, index: Any, value: Any) -> Any:
    """Write a vector's numbers one after another from array[index] on."""

    def generate(context: Any, builder: Any, types_: Any, arguments: list[Any]) -> Any:
        start = _address(context, builder, types_, arguments)
        builder.store(arguments[2], builder.bitcast(start, arguments[2].type.as_pointer()), align=_bytes(array))
        return context.get_dummy_value()

    return types.none(array, index, Vector(array.dtype)), generate


@instruction
def truncate(_: Any, x: Any) -> Any:
    """Turn numbers, none of them NaN, into integers."""
    return INTEGERS(x), lambda context, builder, _, arguments: builder.fptosi(*arguments, ir.VectorType(INT32, LANES))


@instruction
def as_numbers(_: Any, integers: Any, like: Any) -> Any:
    """Turn integers into numbers of the precision of another vector."""
    return like(integers, like), lambda context, builder, _, arguments: builder.sitofp(arguments[0], arguments[1].type)


def _gather(builder: Any, start: Any, vector: Any, entry: Any) -> Any:
    gathered = ir.Constant(vector, ir.Undefined)
    for lane in range(LANES):
        number = builder.zext(builder.extract_element(entry, _int32(lane)), INT64)
        gathered = builder.insert_element(gathered, builder.load(builder.gep(start, [number])), _int32(lane))
    return gathered


def _permute(builder: Any, start: Any, vector: Any, entry: Any) -> Any:
    kind = ir.FunctionType(vector, [vector, entry.type])
    permute = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx2.permps")
    starts = [builder.bitcast(builder.gep(start, [_int32(first)]), vector.as_pointer()) for first in (0, LANES)]
    lower, upper = (builder.call(permute, [builder.load(half, align=4), entry]) for half in starts)
    is_lower = builder.icmp_signed("==", builder.and_(entry, _int32s([LANES] * LANES)), _int32s([0] * LANES))
    return builder.select(is_lower, lower, upper)


def _has_avx2(context: Any) -> bool:
    return "+avx2" in context.codegen().magic_tuple()[2]  # numba keeps what it compiled under this key, too


def _look_up(in_registers: bool) -> Any:
    def define(_: Any, table: Any, start: Any, entry: Any) -> Any:
        vector = Vector(table.dtype)

        def generate(context: Any, builder: Any, kinds: Any, arguments: list[Any]) -> Any:
            address = _address(context, builder, kinds, arguments)
            permuted = in_registers and table.dtype == types.float32 and _has_avx2(context)
            find = _permute if permuted else _gather
            return find(builder, address, context.get_value_type(vector), arguments[2])

        return vector(table, start, entry), generate

    return instruction(define)


# What follows table[start] by a vector of entries; in registers for entries below REGISTER_ENTRIES, where so many
# numbers must follow it.
look_up_in_memory = _look_up(in_registers=False)
look_up_in_registers = _look_up(in_registers=True)


@instruction
def add_at(_: Any, sums: Any, row: Any, entry: Any, first: Any, second: Any) -> Any:
    """Add two vectors to sums[role, entry, lane, 0] and [..., 1] for row = (role, 0, 0, 0), each lane to its own."""
    vector = Vector(sums.dtype)

    def generate(context: Any, builder: Any, kinds: Any, arguments: list[Any]) -> Any:
        start = _address(context, builder, kinds, arguments)
        pair = ir.VectorType(context.get_value_type(vector).element, 2)
        offsets = builder.mul(arguments[2], _int32s([2 * LANES] * LANES))
        for lane in range(LANES):
            offset = builder.zext(builder.extract_element(offsets, _int32(lane)), INT64)
            place = builder.gep(builder.gep(start, [offset]), [_int32(2 * lane)])
            place = builder.bitcast(place, pair.as_pointer())
            addition = builder.shuffle_vector(arguments[3], arguments[4], _int32s([lane, LANES + lane]))
            total = builder.fadd(builder.load(place, align=_bytes(sums)), addition)
            builder.store(total, place, align=_bytes(sums))
        return context.get_dummy_value()

    return types.none(sums, row, entry, vector, vector), generate
