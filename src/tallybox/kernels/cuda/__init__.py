"""What Triton kernels share: how they are compiled and launched, and boxes inside them.

A kernel's signature lists tensors, then numbers, then constants. It is compiled once for each set of constants: no
number and no address specialises it, so a new number of images or boxes compiles nothing. Kernels name the functions
that they call without their module, because `torch.compile` copies them by name.
"""

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import triton
from torch import Tensor
from torch.library import wrap_triton
from triton import language as tl

from tallybox.kernels.dispatch import triton_is_interpreted

SHAPES_KEPT = 256  # how many shapes of a component stay prepared

IS_INTERPRETED = triton_is_interpreted()  # for good: Triton looks when it is first imported

# By kernel, constants, warps and device.
_compiled: dict[tuple[Any, ...], Any] = {}


class Step:
    """A launch of a kernel on a grid of ``blocks``, prepared once a shape: all of it but the tensors."""

    def __init__(
        self, kernel: Any, blocks: int, numbers: tuple[int, ...], constants: tuple[int, ...], *, num_warps: int
    ) -> None:
        self.kernel, self.grid, self.num_warps = kernel, (blocks, 1, 1), num_warps
        self.constants = constants
        self.behind = (*numbers, *constants)  # the tensors in the kernel's signature
        self.of_device: dict[int, Any] = {}

    def compiled(self, *tensors: Tensor) -> Any:
        """Return the kernel for the tensors' device; it is compiled at its first call."""
        device = tensors[0].get_device()
        key = (self.kernel.fn, self.constants, self.num_warps, device)
        if key not in _compiled:
            _compiled[key] = self.kernel.warmup(*tensors, *self.behind, grid=(1,), num_warps=self.num_warps)
        self.of_device[device] = _compiled[key]
        return _compiled[key]


Launch = Callable[..., None]  # of a step and its tensors: how steps are taken


def launch_now(step: Step, *tensors: Tensor) -> None:
    """Launch a compiled kernel; Triton's own way binds and hashes all arguments each time."""
    if IS_INTERPRETED:
        step.kernel[step.grid](*tensors, *step.behind, num_warps=step.num_warps)
        return
    compiled = step.of_device.get(tensors[0].get_device()) or step.compiled(*tensors)
    # Addresses instead of tensors, because Triton would ask the driver about each: a third of a launch.
    compiled[step.grid](*map(Tensor.data_ptr, tensors), *step.behind)


def launch_in_graph(step: Step, *tensors: Tensor) -> None:
    """Launch a kernel where a compiler sees it: inside `torch.library.triton_op`."""
    wrap_triton(step.kernel)[step.grid](*tensors, *step.behind, num_warps=step.num_warps)


Plan = TypeVar("Plan")


def once_a_shape(plan: Callable[..., Plan]) -> Callable[..., Plan]:
    """Keep the steps that ``plan`` returns for the sizes of a call; the result takes the launch before the sizes."""
    kept = lru_cache(SHAPES_KEPT)(plan)

    def plan_for(launch: Launch, *sizes: int) -> Plan:
        # While a compiler traces, sizes may be symbols, which cannot be looked up.
        return (kept if launch is launch_now else plan)(*sizes)

    return plan_for


def kernel(function: Callable[..., None]) -> Any:
    """Declare a Triton kernel whose constants alone specialise it."""
    parameters = inspect.signature(function).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.annotation is not tl.constexpr]
    return triton.jit(function, do_not_specialize=names, do_not_specialize_on_alignment=names)


def given_or_any(tensor: Tensor | None, other: Tensor) -> Tensor:
    """Return what a kernel takes for a tensor such as a mask; without one, another, which it does not read."""
    return other if tensor is None else tensor
