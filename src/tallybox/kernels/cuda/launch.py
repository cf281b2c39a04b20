"""How Triton kernels are launched."""

from __future__ import annotations

from typing import Any

import torch


def launch(kernel: Any, blocks: int, arguments: dict[str, Any], *, num_warps: int) -> None:
    """Launch so many blocks of a kernel with those of the arguments that it takes.

    On the device of its first tensor: Triton itself uses the current device.
    """
    given = {name: arguments[name] for name in kernel.arg_names}
    with torch.cuda.device_of(next(iter(given.values()))):
        kernel[(blocks,)](**given, num_warps=num_warps)
