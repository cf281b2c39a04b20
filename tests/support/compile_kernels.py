"""Compile every Triton kernel for a GPU that need not be there: `python -m tests.support.compile_kernels`.

The interpreter, which the other tests run kernels in, knows no types: a name that is a number here and a pointer there
passes. Run without TRITON_INTERPRET.
"""

import time
from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tallybox.counter import functional as counter_functional
from tallybox.counter.cuda import launch as counter
from tallybox.kernels.cuda import Step
from tallybox.kernels.operators import Inputs
from tallybox.presence import functional as presence_functional
from tallybox.presence.cuda import launch as presence
from tallybox.presence.weights import initial_weights

TARGET = GPUTarget("cuda", 90, 32)

# Images and boxes: a lane or a group for each image, a block for each of one tile, and of several.
SIZES = ((16384, 10), (64, 10), (64, 36))
POINTERS = {torch.float32: "*fp32", torch.bool: "*i1"}

compiled = set()


def compile_launch(step: Step, *tensors: Tensor) -> None:
    """Compile a step's kernel for the types of its tensors, instead of launching it."""
    kernel, constants = step.kernel, step.constants
    types = [*(POINTERS[tensor.dtype] for tensor in tensors), *["i32"] * (len(step.behind) - len(constants))]
    signature = dict(zip(kernel.arg_names, [*types, *["constexpr"] * len(constants)], strict=True))
    places = {(len(types) + place,): constant for place, constant in enumerate(constants)}
    key = (kernel.fn, *types, *constants, step.num_warps)
    if key not in compiled:
        compiled.add(key)
        start = time.perf_counter()
        triton.compile(ASTSource(kernel, signature, places), target=TARGET, options={"num_warps": step.num_warps})
        seconds = time.perf_counter() - start
        print(f"{kernel.__module__}.{kernel.__name__} {constants}: {seconds:.1f} s", flush=True)


def compile_component(
    component: Any, functional: Any, weights: Sequence[Tensor], images: int, boxes: int, *, masked: bool
) -> None:
    """Compile the kernels of a call and of its backward pass."""
    mask = torch.ones(images, boxes, dtype=torch.bool) if masked else None
    inputs = Inputs(torch.rand(images, boxes), torch.rand(images, boxes, 4), mask, weights, 10, logits=masked)
    results = [torch.empty(shape) for shape in functional.result_shapes(inputs.attention, 10)]
    state = torch.empty(component.state_size(inputs, save_state=True))
    component.forward(inputs, results, state, launch=compile_launch)
    grads = results if masked else [results[0], *[None] * len(results[1:])]
    component.backward(inputs, state, grads, boxes_need_grad=True, launch=compile_launch)


if __name__ == "__main__":
    for masked in (False, True):
        for size in SIZES:
            compile_component(counter, counter_functional, [torch.rand(1, 8, 16)], *size, masked=masked)
            weights = initial_weights(heads=1, segments=16)
            compile_component(presence, presence_functional, weights, *size, masked=masked)
