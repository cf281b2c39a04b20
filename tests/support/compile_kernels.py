"""Compile every Triton kernel for a GPU that need not be there: `python -m tests.support.compile_kernels`.

The interpreter, which the other tests run kernels in, knows no types: a name that is a number here and a pointer there
passes. Run without TRITON_INTERPRET.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tallybox.counter.cuda.launch import plan_triton
from tallybox.counter.cuda.launching import Launch
from tallybox.presence.cuda import launch as presence
from tallybox.presence.operator import allocate_results
from tallybox.presence.weights import PresenceFunctions, initial_weights

TARGET = GPUTarget("cuda", 90, 32)

# Images and boxes: a lane for each image, a block for each of one tile, and of several.
SIZES = ((4096, 10), (64, 10), (64, 36))


def launches() -> Iterator[tuple[str, Launch]]:
    """Yield every launch of a plain call, and of one with all that kernels have a branch for."""
    for branches in (False, True):
        for images, boxes in SIZES:
            plan = plan_triton(torch.Size([images, boxes]), torch.Size([8, 16]), branches, boxes, of_count=branches)
            case = f"{images} images of {boxes} boxes" + ", a mask, from the count back" * branches
            yield from ((case, launch) for launch in (plan.way_there, *plan.way_back))


def compile_launch(launch: Launch) -> None:
    """Compile a kernel for what a launch gives it besides tensors."""
    parameters = launch.kernel.params
    tensors = len(parameters) - len(launch.rest)
    signature, constants = {}, {}
    for parameter, given in zip(parameters, [None] * tensors + [*launch.rest], strict=True):
        if parameter.is_constexpr:
            signature[parameter.name] = "constexpr"
            constants[(parameter.num,)] = given
        elif given is None:
            signature[parameter.name] = "*i1" if parameter.name == "mask" else "*fp32"
        else:
            signature[parameter.name] = "i32"
    source = ASTSource(launch.kernel, signature, constants)
    triton.compile(source, target=TARGET, options={"num_warps": launch.warps})


def compile_presence() -> None:
    """Compile the kernels of presence counting for a plain call, and for one with all that they have a branch for."""

    def compile_instead(
        kernel: Any, blocks: int, tensors: tuple[torch.Tensor | None, ...], *, num_warps: int, **sizes: int
    ) -> None:
        given = dict(zip([parameter.name for parameter in kernel.params], tensors, strict=False)) | sizes
        signature, constants = {}, {}
        for parameter in kernel.params:
            value = given.pop(parameter.name)
            if parameter.is_constexpr or value is None:
                signature[parameter.name], constants[(parameter.num,)] = "constexpr", value
            elif isinstance(value, torch.Tensor):
                signature[parameter.name] = "*i1" if value.dtype == torch.bool else "*fp32"
            else:
                signature[parameter.name] = "i32"
        assert not given
        triton.compile(ASTSource(kernel, signature, constants), target=TARGET, options={"num_warps": num_warps})
        print(f"{kernel.__module__}.{kernel.__name__}", flush=True)

    tables = PresenceFunctions.of(initial_weights(heads=1, segments=16)).table()
    attention, boxes = torch.zeros(64, 36), torch.zeros(64, 36, 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(presence, "launch", compile_instead)
        for branches in (False, True):
            mask = torch.ones(64, 36, dtype=torch.bool) if branches else None
            *results, state = allocate_results(attention, boxes, tables, mask, 10, branches, True, "triton")
            presence.forward(attention, boxes, tables, mask, *results, state, branches)
            presence.backward(attention, boxes, tables, mask, state, *results, branches, True)


if __name__ == "__main__":
    compile_presence()
    compiled = set()
    for case, launch in launches():
        key = (launch.kernel.__name__, launch.rest, launch.warps)
        if key not in compiled:
            compiled.add(key)
            compile_launch(launch)
            print(f"{launch.kernel.__module__}.{launch.kernel.__name__} for {case}", flush=True)
