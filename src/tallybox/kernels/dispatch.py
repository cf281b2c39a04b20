"""Choose the implementation of a call: one table."""

import os
import warnings
from functools import cache
from importlib.util import find_spec
from typing import Literal, get_args

import torch
from torch import Tensor

from tallybox.checks import is_exporting, is_transformed
from tallybox.errors import BackendError, InputError

Backend = Literal["auto", "reference", "cpu", "triton"]
BACKENDS = get_args(Backend)

# A CUDA kernel of N³ steps walks an image in one block: more boxes than this take too long.
MAX_BOXES_IN_TRITON = 512

PACKAGES = {"cpu": "numba", "triton": "triton"}
INSTALLED = {backend: find_spec(package) is not None for backend, package in PACKAGES.items()}


class BackendWarning(UserWarning):
    """The fused backend does not cover these inputs, so the slower reference serves them."""


def check_backend(backend: str) -> None:
    """Raise unless ``backend`` is a known name."""
    if backend not in BACKENDS:
        names = ", ".join(f'"{name}"' for name in BACKENDS)
        raise InputError(f"backend must be one of {names}, but got {backend!r}")


def choose_backend(
    requested: Backend, *, device: torch.device, dtype: torch.dtype, boxes: int = 0, limit: str | None = None
) -> str:
    """Follow the table; raise if the requested backend cannot serve the call.

    ``boxes`` is how many boxes of each image take part, 0 for kernels that take any number. ``limit`` says what about
    the call no fused backend covers, see `fused_limit`.

    | requested   | on    | served by                                                             |
    |-------------|-------|-----------------------------------------------------------------------|
    | "reference" | any   | reference                                                             |
    | "auto"      | any   | reference while exporting a graph: other runtimes know no fused kernel |
    | "auto"      | any   | reference if there is a limit                                         |
    | "auto"      | cpu   | cpu if numba is installed, else reference                          |
    | "auto"      | cuda  | triton if it is installed and covers the inputs, else reference    |
    | "auto"      | other | reference                                                             |
    | "cpu"       | cpu   | cpu                                                                   |
    | "triton"    | cuda  | triton (also on cpu, in its interpreter, with TRITON_INTERPRET=1)     |
    """
    check_backend(requested)
    if requested == "reference":
        return "reference"
    if requested != "auto":
        obstacle = limit or _uncovered(requested, device=device, dtype=dtype, boxes=boxes)
        if not INSTALLED[requested]:
            package = PACKAGES[requested]
            obstacle = f"needs {package}, which is not installed (pip install 'tallybox[{requested}]')"
        if obstacle is not None:
            raise BackendError(f'backend "{requested}" {obstacle}; use "auto" or "reference"')
        return requested
    fused = {"cpu": "cpu", "cuda": "triton"}.get(device.type)
    if is_exporting() or limit is not None or fused is None or not INSTALLED[fused]:
        return "reference"
    obstacle = _uncovered(fused, device=device, dtype=dtype, boxes=boxes)
    if obstacle is None:
        return fused
    if not torch.compiler.is_compiling():
        _warn_once(f'backend "{fused}" {obstacle}; the reference serves these inputs, more slowly')
    return "reference"


def fused_limit(*inputs: Tensor | None, distance: Tensor | None = None) -> str | None:
    """Say what about these inputs of a call no fused backend covers, if anything."""
    if distance is not None:
        return "computes distances from boxes, but distance was given"
    if is_transformed(*inputs):
        return "has no rules for torch.func transforms and forward-mode derivatives"
    return None


def _uncovered(backend: str, *, device: torch.device, dtype: torch.dtype, boxes: int) -> str | None:
    """Say what about these inputs a fused backend does not cover, if anything."""
    if backend == "cpu":
        return None if device.type == "cpu" else f"computes on cpu, but the inputs are on {device}"
    if device.type != "cuda" and not (device.type == "cpu" and triton_is_interpreted()):
        return f"computes on cuda, but the inputs are on {device}"
    if dtype != torch.float32:
        return f"computes in float32, but the inputs are {str(dtype).removeprefix('torch.')}"
    if boxes > MAX_BOXES_IN_TRITON:
        return f"takes at most {MAX_BOXES_IN_TRITON} boxes an image, but got {boxes}"
    return None


def triton_is_interpreted() -> bool:
    """Tell whether Triton runs its kernels on CPU, as tests do on machines without a GPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def _warn_once(message: str) -> None:
    warnings.warn(message, BackendWarning, stacklevel=6)
