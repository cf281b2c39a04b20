"""How Triton kernels are launched."""

from typing import Any


def launch(kernel: Any, blocks: int, arguments: dict[str, Any], *, num_warps: int) -> None:
    """Launch so many blocks of a kernel with those of the arguments that it takes."""
    kernel[(blocks,)](**{name: arguments[name] for name in kernel.arg_names}, num_warps=num_warps)
