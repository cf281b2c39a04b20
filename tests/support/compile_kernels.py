"""Compile every Triton kernel for a GPU that need not be there: `python -m tests.support.compile_kernels`.

The interpreter, which the other tests run kernels in, knows no types: a name that is a number here and a pointer there
passes. Run without TRITON_INTERPRET.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tallybox.counter.cuda import launch as counter
from tallybox.counter.operator import allocate_results
from tallybox.counter.saved import SavedState
from tallybox.presence import operator as presence_operator
from tallybox.presence.cuda import launch as presence
from tallybox.presence.weights import PresenceFunctions, initial_weights

TARGET = GPUTarget("cuda", 90, 32)

# Images and boxes: a lane for each image, a block for each of one tile, and of several.
SIZES = ((4096, 10), (64, 10), (64, 36))
POINTERS = {torch.float32: "*fp32", torch.bool: "*i1", torch.int32: "*i32"}

compiled = set()


def compile_launch(
    kernel: Any, blocks: int, tensors: tuple[Tensor | None, ...], *, num_warps: int, **others: Any
) -> None:
    """Compile a kernel for the arguments of a launch, instead of launching it."""
    arguments = dict(zip(kernel.arg_names, tensors, strict=False)) | others
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


def compile_counter(images: int, boxes: int, *, branches: bool) -> None:
    """Compile the kernels of a plain call, or of one with all that kernels have a branch for."""
    given = (torch.rand(images, boxes), torch.rand(images, boxes, 4), torch.rand(1, 8, 16))
    given = (*given, torch.ones(images, boxes, dtype=torch.bool) if branches else None)
    features, count, *state = allocate_results(*given, boxes, "triton")
    saved = SavedState(*state)
    counter.forward(*given, features, count, saved)
    grads = (features, count if branches else None)
    counter.backward(*given, count, saved, *grads, boxes, boxes_need_grad=True)


def compile_presence(images: int, boxes: int, *, branches: bool) -> None:
    """Compile the kernels of presence counting likewise."""
    tables = PresenceFunctions.of(initial_weights(heads=1, segments=16)).table()
    mask = torch.ones(images, boxes, dtype=torch.bool) if branches else None
    given = (torch.rand(images, boxes), torch.rand(images, boxes, 4), tables, mask)
    *results, state = presence_operator.allocate_results(*given, 10, branches, True, "triton")
    presence.forward(*given, *results, state, branches)
    presence.backward(*given, state, *results, branches, boxes_need_grad=True)


if __name__ == "__main__":
    counter.launch = presence.launch = compile_launch
    for with_branches in (False, True):
        for size in SIZES:
            compile_counter(*size, branches=with_branches)
        compile_presence(*SIZES[-1], branches=with_branches)
