"""How Triton kernels are launched."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def launch(kernel: Any, blocks: int, tensors: tuple[Tensor | None, ...], *, num_warps: int, **sizes: Any) -> None:
    """Launch so many blocks of a kernel on the device of its first tensor; Triton itself uses the current device.

    ``sizes`` are its other arguments by name, constants of the compilation among them.
    """
    first: Any = tensors[0]
    with torch.cuda.device_of(first):
        kernel[(blocks,)](*tensors, **sizes, num_warps=num_warps)
