"""A vector of eight numbers for Numba, each operation one machine instruction if there is one.

LLVM does not vectorise table look-ups next to stores, because a store may alias the table. Plain loops over images took
four times as long (forward and backward on one AMD EPYC core: 35 ms for 8 ms at 256 × 36, 45 ms for 10 ms at 16 × 100).

`load` makes a vector and `store` writes it back. Between them, operators, `abs`, `min`, `max` and `choose` work number
by number; scalars of the same precision are repeated in every lane. Arrays must be contiguous.
"""

import operator
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import binding, ir
from numba import extending, types
from numba.extending import lower_builtin, models, register_model, type_callable

instruction: Any = extending.intrinsic  # it has the type of the function it compiles, which takes other arguments

LANES = 8

# Tables of at most this many entries are looked up in two registers of eight numbers each.
REGISTER_ENTRIES = 16

# An LLVM intrinsic of AVX2 permutes eight numbers. Numba compiles for the host unless told otherwise.
config: Any = numba.config  # typed without its settings
HAS_PERMUTATION = not config.CPU_NAME and binding.get_host_cpu_features().get("avx2", False)

INT32, INT64 = ir.IntType(32), ir.IntType(64)
LLVM_ELEMENT = {
    types.float32: ir.FloatType(),
    types.float64: ir.DoubleType(),
    types.int32: INT32,
    types.boolean: ir.IntType(1),
}


class Vector(types.Type):
    """The Numba type of a vector."""

    def __init__(self, element: Any) -> None:
        self.element = element
        super().__init__(name=f"Vector({element})")

    @property
    def llvm(self) -> Any:
        """The LLVM type."""
        return ir.VectorType(LLVM_ELEMENT[self.element], LANES)


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    """A Numba vector is an LLVM vector."""

    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, vector.llvm)


TRUTHS, INTEGERS = Vector(types.boolean), Vector(types.int32)


def _int32(number: int) -> Any:
    return ir.Constant(INT32, number)


def _int32s(numbers: list[int]) -> Any:
    return ir.Constant(ir.VectorType(INT32, len(numbers)), numbers)


def _spread(builder: Any, value: Any) -> Any:
    """Repeat a scalar in every lane; leave a vector unchanged."""
    if isinstance(value.type, ir.VectorType):
        return value
    undefined = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
    return builder.shuffle_vector(builder.insert_element(undefined, value, _int32(0)), undefined, _int32s([0] * LANES))


def _common(*operands: Any) -> Vector | None:
    """Return the one vector type among the operands if the others are scalars of its precision."""
    vectors = {operand for operand in operands if isinstance(operand, Vector)}
    if len(vectors) != 1:
        return None
    (vector,) = vectors
    return vector if all(operand in (vector, vector.element) for operand in operands) else None


def _define(operation: Any, emit: Callable[..., Any], *, result: Vector | None = None) -> None:
    """Let Numba type and compile an operation on one vector, or on two operands of which one is a vector."""

    def type_operation(_: Any) -> Any:
        return lambda x, y=None: (vector := _common(x) if y is None else _common(x, y)) and (result or vector)

    def lower(context: Any, builder: Any, _: Any, arguments: list[Any]) -> Any:
        return emit(builder, *(_spread(builder, argument) for argument in arguments))

    type_callable(operation)(type_operation)
    for kinds in ([Vector], [Vector, Vector], [Vector, types.Float], [types.Float, Vector]):
        lower_builtin(operation, *kinds)(lower)


def _select(sign: str) -> Callable[..., Any]:
    """Compare two vectors and take the first if the comparison holds, else (NaN included) the second."""
    return lambda builder, x, y: builder.select(builder.fcmp_ordered(sign, x, y), x, y)


def _call(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    """Call an LLVM intrinsic."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(builder.module.declare_intrinsic(name, fnty=kind), arguments)


def _absolute(builder: Any, x: Any) -> Any:
    return _call(builder, f"llvm.fabs.v{LANES}{x.type.element.intrinsic_name}", x.type, x)


_ARITHMETIC = {operator.add: "fadd", operator.sub: "fsub", operator.mul: "fmul", operator.truediv: "fdiv"}
for _operation, _name in _ARITHMETIC.items():
    _define(_operation, lambda builder, x, y, name=_name: getattr(builder, name)(x, y))
for _operation, _sign in {operator.lt: "<", operator.gt: ">", operator.ge: ">=", operator.eq: "=="}.items():
    _define(_operation, lambda builder, x, y, sign=_sign: builder.fcmp_ordered(sign, x, y), result=TRUTHS)
_define(operator.and_, lambda builder, x, y: builder.and_(x, y))
_define(operator.neg, lambda builder, x: builder.fneg(x))
_define(min, _select("<"))
_define(max, _select(">"))
_define(abs, _absolute)


@instruction
def choose(_: Any, truth: Any, x: Any, y: Any) -> Any:
    """Take x if true, else y; ``truth`` is a vector of truths or a single one."""
    result: Any = y if truth == types.boolean else _common(x, y)

    def generate(context: Any, builder: Any, _: Any, arguments: list[Any]) -> Any:
        if isinstance(result, Vector):
            arguments = [arguments[0], *(_spread(builder, argument) for argument in arguments[1:])]
        return builder.select(*arguments)

    return result(truth, x, y), generate


def _address(context: Any, builder: Any, kinds: Any, arguments: list[Any]) -> Any:
    """Return the address of array[index], the first two arguments; indices are not checked and do not wrap around."""
    array_type, index_type = kinds.args[:2]
    assert array_type.layout == "C"
    array = context.make_array(array_type)(context, builder, arguments[0])
    offset = ir.Constant(INT64, 0)
    for dimension, kind in enumerate(index_type):
        index = context.cast(builder, builder.extract_value(arguments[1], dimension), kind, types.intp)
        offset = builder.add(builder.mul(offset, builder.extract_value(array.shape, dimension)), index)
    return builder.gep(array.data, [offset])


def _bytes(array: Any) -> int:
    return int(array.dtype.bitwidth // 8)


@instruction
def load(_: Any, array: Any, index: Any) -> Any:
    """Return the eight consecutive numbers from array[index] on."""
    vector = Vector(array.dtype)

    def generate(context: Any, builder: Any, kinds: Any, arguments: list[Any]) -> Any:
        start = builder.bitcast(_address(context, builder, kinds, arguments), vector.llvm.as_pointer())
        return builder.load(start, align=_bytes(array))

    return vector(array, index), generate


@instruction
def store(_: Any, array: Any, index: Any, value: Any) -> Any:
    """Write a vector to the eight consecutive numbers from array[index] on."""

    def generate(context: Any, builder: Any, kinds: Any, arguments: list[Any]) -> Any:
        start = builder.bitcast(_address(context, builder, kinds, arguments), arguments[2].type.as_pointer())
        builder.store(arguments[2], start, align=_bytes(array))
        return context.get_dummy_value()

    return types.none(array, index, Vector(array.dtype)), generate


@instruction
def truncate(_: Any, x: Any) -> Any:
    """Turn numbers, none of them NaN, into integers."""
    return INTEGERS(x), lambda context, builder, _, arguments: builder.fptosi(*arguments, INTEGERS.llvm)


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
    starts = [builder.bitcast(builder.gep(start, [_int32(first)]), vector.as_pointer()) for first in (0, LANES)]
    halves = [builder.load(half, align=4) for half in starts]
    lower, upper = (_call(builder, "llvm.x86.avx2.permps", vector, half, entry) for half in halves)
    is_lower = builder.icmp_signed("<", entry, _int32s([LANES] * LANES))
    return builder.select(is_lower, lower, upper)


def _look_up(in_registers: bool) -> Any:
    def define(_: Any, table: Any, start: Any, entry: Any) -> Any:
        vector = Vector(table.dtype)
        find = _permute if in_registers and HAS_PERMUTATION and table.dtype == types.float32 else _gather

        def generate(context: Any, builder: Any, kinds: Any, arguments: list[Any]) -> Any:
            return find(builder, _address(context, builder, kinds, arguments), vector.llvm, arguments[2])

        return vector(table, start, entry), generate

    return instruction(define)


# Return the numbers that follow table[start] by a vector of entries. For a look-up in registers, entries are below
# REGISTER_ENTRIES and as many numbers follow table[start].
look_up_in_memory = _look_up(in_registers=False)
look_up_in_registers = _look_up(in_registers=True)


@instruction
def add_at(_: Any, sums: Any, row: Any, entry: Any, first: Any, second: Any) -> Any:
    """Add two vectors to sums[role, entry, lane, 0] and [..., 1] for row = (role, 0, 0, 0), each lane to its own."""
    vector = Vector(sums.dtype)

    def generate(context: Any, builder: Any, kinds: Any, arguments: list[Any]) -> Any:
        start = _address(context, builder, kinds, arguments)
        pair = ir.VectorType(vector.llvm.element, 2)
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
