"""What Triton kernels share: launching, boxes."""

from typing import Any


def launch(kernel: Any, blocks: int, arguments: dict[str, Any], *, num_warps: int) -> None:
    """Launch a kernel on a grid of ``blocks``, passing it the arguments it declares."""
    kernel[(blocks,)](**{name: arguments[name] for name in kernel.arg_names}, num_warps=num_warps)
