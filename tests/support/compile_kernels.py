"""Compile every Triton kernel for a GPU that need not be there: `python -m tests.support.compile_kernels`.

The interpreter, which the other tests run kernels in, knows no types: a name that is a number here and a pointer there
passes. Run without TRITON_INTERPRET.
"""

from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tallybox.counter import functional as counter_functional
from tallybox.counter.cuda import launch as counter
from tallybox.kernels.operators import Inputs
from tallybox.presence import functional as presence_functional
from tallybox.presence.cuda import launch as presence
from tallybox.presence.weights import initial_weights

TARGET = GPUTarget("cuda", 90, 32)

# Images and boxes: a lane or a group for each image, a block for each of one tile, and of several.
SIZES = ((16384, 10), (64, 10), (64, 36))
POINTERS = {torch.float32: "*fp32", torch.bool: "*i1", torch.int32: "*i32"}

compiled = set()


def compile_launch(kernel: Any, blocks: int, arguments: dict[str, Any], *, num_warps: int) -> None:
    """Compile a kernel for the arguments of a launch, instead of launching it."""
    signature, constants = {}, {}
    for parameter in kernel.params:
        given = arguments[parameter.name]
        if parameter.is_constexpr or given is None:
            signature[parameter.name] = "constexpr"
            constants[(parameter.num,)] = given
        else:
            signature[parameter.name] = POINTERS[given.dtype] if isinstance(given, Tensor) else "i32"
    key = (kernel.__name__, *signature.values(), *constants.values(), num_warps)
    if key not in compiled:
        compiled.add(key)
        triton.compile(ASTSource(kernel, signature, constants), target=TARGET, options={"num_warps": num_warps})
        print(f"{kernel.__module__}.{kernel.__name__}", flush=True)


def compile_component(
    component: Any, functional: Any, weight: Tensor, images: int, boxes: int, *, branches: bool
) -> None:
    """Compile the kernels of a plain call, or of one with all that kernels have a branch for."""
    mask = torch.ones(images, boxes, dtype=torch.bool) if branches else None
    inputs = Inputs(torch.rand(images, boxes), torch.rand(images, boxes, 4), weight, mask)
    results = [torch.empty(shape) for shape in functional.result_shapes(inputs.attention, 10)]
    state = torch.empty(component.state_size(inputs, 10, save_state=True))
    component.forward(inputs, results, state)
    component.backward(inputs, state, results, boxes_need_grad=True)


def compile_counter(images: int, boxes: int, *, branches: bool) -> None:
    """Compile the kernels of the paper's component."""
    compile_component(counter, counter_functional, torch.rand(1, 8, 16), images, boxes, branches=branches)


def compile_presence(images: int, boxes: int, *, branches: bool) -> None:
    """Compile the kernels of presence counting."""
    rows = initial_weights(heads=1, segments=16).rows()
    tables = presence.make_tables(rows)
    presence.tables_backward(rows, tables)
    compile_component(presence, presence_functional, tables, images, boxes, branches=branches)


if __name__ == "__main__":
    counter.launch = presence.launch = compile_launch
    for with_branches in (False, True):
        for size in SIZES:
            compile_counter(*size, branches=with_branches)
        compile_presence(*SIZES[-1], branches=with_branches)
