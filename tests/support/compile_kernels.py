"""Compile every Triton kernel for a GPU that need not be there: `python -m tests.support.compile_kernels`.

The interpreter, which the other tests run kernels in, knows no types: a name that is a number here and a pointer there
passes. Run without TRITON_INTERPRET.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tallybox.counter.cuda.launch import plan_triton
from tallybox.counter.cuda.launching import Launch
from tallybox.presence.cuda import launch as presence

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
        sizes = (64, 36, 1, 16, 10, branches, branches)
        there, back = presence.plan_forward(*sizes), presence.plan_backward(*sizes, used=(branches, branches))
        case = "presence" + ", a mask, logits, from all results back" * branches
        yield from ((case, launch) for launch in (there.tables, there.images, back.images, back.owed, back.tables))


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


if __name__ == "__main__":
    compiled = set()
    for case, launch in launches():
        key = (launch.kernel.__name__, launch.rest, launch.warps)
        if key not in compiled:
            compiled.add(key)
            compile_launch(launch)
            print(f"{launch.kernel.__module__}.{launch.kernel.__name__} for {case}", flush=True)
