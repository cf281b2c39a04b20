"""What Triton kernels share: how they are compiled and launched, and boxes inside them.

A kernel's signature lists tensors, then numbers, then constants. It is compiled once for each set of constants: no
number and no address specialises it, so a new number of images or boxes compiles nothing. Kernels name the functions
that they call without their module, because `torch.compile` copies them by name.
"""

import inspect
from collections.abc import Callable
from typing import Any, Protocol

import torch
import triton
from torch.library import wrap_triton
from triton import language as tl

from tallybox.kernels.dispatch import triton_is_interpreted

Arguments = tuple[Any, ...]


class Launch(Protocol):
    """How kernels are launched."""

    def __call__(self, kernel: Any, blocks: int, arguments: Arguments, constants: Arguments, *, num_warps: int) -> None:
        """Launch a kernel on a grid of ``blocks`` with arguments and constants in the order of its signature."""


def kernel(function: Callable[..., None]) -> Any:
    """Declare a Triton kernel whose constants alone specialise it."""
    parameters = inspect.signature(function).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.annotation is not tl.constexpr]
    return triton.jit(function, do_not_specialize=names, do_not_specialize_on_alignment=names)


IS_INTERPRETED = triton_is_interpreted()  # for good: Triton looks when it is first imported

# By kernel, constants, warps and device.
_compiled: dict[Arguments, Any] = {}


def launch_now(kernel: Any, blocks: int, arguments: Arguments, constants: Arguments, *, num_warps: int) -> None:
    """Launch a kernel that is compiled at its first call; Triton's own way binds and hashes all arguments each time."""
    if IS_INTERPRETED:
        kernel[(blocks,)](*arguments, *constants, num_warps=num_warps)
        return
    key = (kernel.fn, constants, num_warps, arguments[0].get_device())
    compiled = _compiled.get(key)
    if compiled is None:
        compiled = kernel.warmup(*arguments, *constants, grid=(1,), num_warps=num_warps)
        _compiled[key] = compiled
    # Triton would ask the driver about each tensor's address: a third of a launch.
    numbers = [argument if argument.__class__ is int else argument.data_ptr() for argument in arguments]
    compiled[blocks, 1, 1](*numbers, *constants)


def launch_in_graph(kernel: Any, blocks: int, arguments: Arguments, constants: Arguments, *, num_warps: int) -> None:
    """Launch a kernel where a compiler sees it: inside `torch.library.triton_op`."""
    wrap_triton(kernel)[(blocks,)](*arguments, *constants, num_warps=num_warps)


def given_or_any(tensor: torch.Tensor | None, other: torch.Tensor) -> torch.Tensor:
    """Return what a kernel takes for a tensor such as a mask; without one, another, which it does not read."""
    return other if tensor is None else tensor
