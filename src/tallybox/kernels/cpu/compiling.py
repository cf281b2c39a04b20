"""How Numba kernels are compiled and cached."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = tuple[Array, ...]
Number = Any  # a vector, or a float: numbers of float32 arrays and of Python together give float64
Function = TypeVar("Function", bound=Callable[..., Any])

PACKAGE = Path(__file__).parents[2]
config: Any = numba.config  # typed without its settings


def cache_directory() -> Path:
    """Return where compiled kernels are cached: a directory named by the content of all kernel sources.

    Numba recompiles a function when its own file changes, but not when a file that it imports does. Without a cache
    every process would compile for 12 s, for each component and precision.
    """
    sources = sorted(path for kernels in PACKAGE.glob("*/cpu") for path in kernels.parent.rglob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    if config.CACHE_DIR:
        return Path(config.CACHE_DIR, f"tallybox-{digest}")
    if os.access(PACKAGE, os.W_OK):
        return PACKAGE / "__pycache__" / f"kernels-{digest}"
    return Path.home() / ".cache" / "tallybox" / f"kernels-{digest}"


CACHE_DIRECTORY = str(cache_directory())


def compiled(function: Function, **options: Any) -> Function:
    """Compile a function for float32 or float64 arrays; it releases the interpreter's lock."""
    before = config.CACHE_DIR
    config.CACHE_DIR = CACHE_DIRECTORY  # read while the decorator runs
    try:
        # Rounding may differ from the order written; NaN and infinity keep their meaning.
        kernel: Function = numba.njit(
            nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "arcp", "nsz"}, **options
        )(function)
    finally:
        config.CACHE_DIR = before
    return kernel


def inlined(function: Function) -> Function:
    """Compile a function as part of its callers: passing an array takes as long as a few operations on it."""
    return compiled(function, forceinline=True)
