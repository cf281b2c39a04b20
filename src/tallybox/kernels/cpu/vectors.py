"""A vector of eight numbers for Numba, each operation one machine instruction if there is one.

LLVM does not vectorise table look-ups next to stores, because a store may alias the table. Plain loops over images took
four times as long (forward and backward on one AMD EPYC core: 35 ms for 8 ms at 256 × 36, 45 ms for 10 ms at 16 × 100).

`load` makes a vector and `store` writes it back. Between them, operators, `abs`, `min`, `max` and `choose` work number
by number; single numbers take the vector's precision. Arrays must be contiguous.
"""

import operator
from typing import Any

from llvmlite import binding, ir
from numba import extending, types
from numba.extending import lower_builtin, models, register_jitable, register_model, type_callable

from tallybox.kernels.cpu.compiling import config

intrinsic: Any = extending.intrinsic  # it has the type of the function it compiles, which takes other arguments

LANES = 8

# Tables of at most this many entries are looked up in two registers of eight numbers each.
REGISTER_ENTRIES = 16

# An LLVM intrinsic of AVX2 permutes eight numbers. Numba compiles for the host unless told otherwise.
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

    def __init__(self, element):
        self.element = element
        self.llvm = ir.VectorType(LLVM_ELEMENT[element], LANES)
        super().__init__(name=f"Vector({element})")


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    """A Numba vector is an LLVM vector."""

    def __init__(self, manager, vector):
        super().__init__(manager, vector, vector.llvm)


TRUTHS, INTEGERS = Vector(types.boolean), Vector(types.int32)


def _int32(number):
    return ir.Constant(INT32, number)


def _int32s(numbers):
    return ir.Constant(ir.VectorType(INT32, len(numbers)), numbers)


def _common(*operands):
    """Return the one vector type among the operands if the others are single numbers."""
    vectors = {operand for operand in operands if isinstance(operand, Vector)}
    known = all(isinstance(operand, Vector | types.Number) for operand in operands)
    return vectors.pop() if known and len(vectors) == 1 else None


def _convert(context, builder, value, kind, wanted):
    """Give a value the type wanted; a single number goes to every lane of a vector."""
    if kind == wanted:
        return value
    if not isinstance(wanted, Vector):
        return context.cast(builder, value, kind, wanted)
    value = context.cast(builder, value, kind, wanted.element)
    undefined = ir.Constant(wanted.llvm, ir.Undefined)
    return builder.shuffle_vector(builder.insert_element(undefined, value, _int32(0)), undefined, _int32s([0] * LANES))


def _define(operation, emit, *, result=None):
    """Let Numba type and compile an operation on one vector, or on two operands of which one is a vector."""

    def type_operation(_):
        return lambda x, y=None: (vector := _common(x) if y is None else _common(x, y)) and (result or vector)

    def lower(context, builder, signature, arguments):
        vector, given = _common(*signature.args), zip(arguments, signature.args, strict=True)
        return emit(builder, *(_convert(context, builder, value, kind, vector) for value, kind in given))

    type_callable(operation)(type_operation)
    for kinds in ([Vector], [Vector, Vector], [Vector, types.Number], [types.Number, Vector]):
        lower_builtin(operation, *kinds)(lower)


def _select(sign):
    """Compare two vectors and take the first if the comparison holds, else (NaN included) the second."""
    return lambda builder, x, y: builder.select(builder.fcmp_ordered(sign, x, y), x, y)


def _call(builder, name, result, *arguments):
    """Call an LLVM intrinsic."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(builder.module.declare_intrinsic(name, fnty=kind), arguments)


_ARITHMETIC = {operator.add: "fadd", operator.sub: "fsub", operator.mul: "fmul", operator.truediv: "fdiv"}
for _operation, _name in _ARITHMETIC.items():
    _define(_operation, lambda builder, x, y, name=_name: getattr(builder, name)(x, y))
for _operation, _sign in {operator.lt: "<", operator.gt: ">", operator.ge: ">=", operator.eq: "=="}.items():
    _define(_operation, lambda builder, x, y, sign=_sign: builder.fcmp_ordered(sign, x, y), result=TRUTHS)
_define(abs, lambda builder, x: _call(builder, f"llvm.fabs.v{LANES}{x.type.element.intrinsic_name}", x.type, x))
_define(operator.and_, lambda builder, x, y: builder.and_(x, y))
_define(operator.neg, lambda builder, x: builder.fneg(x))
_define(min, _select("<"))
_define(max, _select(">"))


@intrinsic
def choose(typing, truth, x, y):
    """Take x if true, else y; ``truth`` is a vector of truths or a single one."""
    result = _common(x, y) or typing.unify_types(x, y)

    def generate(context, builder, _, arguments):
        truth, first, second = arguments
        return builder.select(
            truth, _convert(context, builder, first, x, result), _convert(context, builder, second, y, result)
        )

    return result(truth, x, y), generate


def _address(context, builder, kinds, arguments):
    """Return the address of array[index], the first two arguments; indices are not checked and do not wrap around.

    Indices left out are 0.
    """
    array_type, index_type = kinds.args[:2]
    assert array_type.layout == "C"
    array = context.make_array(array_type)(context, builder, arguments[0])
    offset = ir.Constant(INT64, 0)
    for dimension in range(array_type.ndim):
        offset = builder.mul(offset, builder.extract_value(array.shape, dimension))
        if dimension < len(index_type):
            index = builder.extract_value(arguments[1], dimension)
            offset = builder.add(offset, context.cast(builder, index, index_type[dimension], types.intp))
    return builder.gep(array.data, [offset])


def _bytes(array):
    return array.dtype.bitwidth // 8


@intrinsic
def load(_, array, index):
    """Return the eight consecutive numbers from array[index] on."""
    vector = Vector(array.dtype)

    def generate(context, builder, kinds, arguments):
        start = builder.bitcast(_address(context, builder, kinds, arguments), vector.llvm.as_pointer())
        return builder.load(start, align=_bytes(array))

    return vector(array, index), generate


@intrinsic
def store(_, array, index, value):
    """Write a vector, or one number eight times, to the eight consecutive numbers from array[index] on."""
    vector = Vector(array.dtype)

    def generate(context, builder, kinds, arguments):
        start = builder.bitcast(_address(context, builder, kinds, arguments), vector.llvm.as_pointer())
        builder.store(_convert(context, builder, arguments[2], value, vector), start, align=_bytes(array))
        return context.get_dummy_value()

    return types.none(array, index, value), generate


@intrinsic
def truncate(_, x):
    """Turn numbers, none of them NaN, into integers."""
    return INTEGERS(x), lambda context, builder, _, arguments: builder.fptosi(*arguments, INTEGERS.llvm)


@intrinsic
def as_numbers(_, integers, like):
    """Turn integers into numbers of the precision of another vector."""
    return like(integers, like), lambda context, builder, _, arguments: builder.sitofp(arguments[0], arguments[1].type)


def _gather(builder, start, vector, entry):
    gathered = ir.Constant(vector, ir.Undefined)
    for lane in range(LANES):
        number = builder.zext(builder.extract_element(entry, _int32(lane)), INT64)
        gathered = builder.insert_element(gathered, builder.load(builder.gep(start, [number])), _int32(lane))
    return gathered


def _permute(builder, start, vector, entry):
    starts = [builder.bitcast(builder.gep(start, [_int32(first)]), vector.as_pointer()) for first in (0, LANES)]
    halves = [builder.load(half, align=4) for half in starts]
    lower, upper = (_call(builder, "llvm.x86.avx2.permps", vector, half, entry) for half in halves)
    is_lower = builder.icmp_signed("<", entry, _int32s([LANES] * LANES))
    return builder.select(is_lower, lower, upper)


def _look_up(in_registers):
    def define(_, table, start, entry):
        vector = Vector(table.dtype)
        find = _permute if in_registers and HAS_PERMUTATION and table.dtype == types.float32 else _gather

        def generate(context, builder, kinds, arguments):
            return find(builder, _address(context, builder, kinds, arguments), vector.llvm, arguments[2])

        return vector(table, start, entry), generate

    return intrinsic(define)


# Return the numbers that follow table[start] by a vector of entries. For a look-up in registers, entries are below
# REGISTER_ENTRIES and as many numbers follow table[start].
look_up_in_memory = _look_up(in_registers=False)
look_up_in_registers = _look_up(in_registers=True)


@intrinsic
def add_at(_, sums, row, entry, first, second):
    """Add two vectors to sums[role, entry, lane, 0] and [..., 1] for row = (role,), each lane to its own."""
    vector = Vector(sums.dtype)

    def generate(context, builder, kinds, arguments):
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


@register_jitable
def add_to(array, index, x):
    """Add a vector to the eight consecutive numbers from array[index] on."""
    store(array, index, load(array, index) + x)
