"""How a kernel is launched: through Triton once, and from then on by what it compiled."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from triton.runtime import driver

SEVERAL_DEVICES = torch.cuda.device_count() > 1


class Launch:
    """So many blocks of a kernel, with all that it is given besides tensors; call it with these.

    Triton inspects every argument of every launch, 25 µs beside an H200. Our kernels (`parts.kernel`) assume
    nothing of their arguments but their types, which never change, so what was compiled for the first call serves
    all others: they go where Triton's own launches end, with addresses for tensors, in 8 µs.
    """

    def __init__(self, kernel: Any, blocks: int, sizes: tuple[int, ...], constants: tuple[int, ...], warps: int):
        self.kernel = kernel
        self.blocks = blocks
        self.rest = (*sizes, *constants)
        self.warps = warps
        self._compiled: dict[int, tuple[Any, ...]] = {}  # by device

    def __call__(self, first: Tensor, *others: Tensor | None) -> None:
        """Launch on tensors, all on the device of the first."""
        device = first.get_device()
        compiled = self._compiled.get(device)
        if compiled is None or (SEVERAL_DEVICES and device != torch.cuda.current_device()):
            self._launch_through_triton(device, first, *others)
            return
        run, current_stream, function, metadata = compiled
        addresses = [None if tensor is None else tensor.data_ptr() for tensor in (first, *others)]
        # Three times None: nobody is told about the launch, before or after.
        run(self.blocks, 1, 1, current_stream(device), function, metadata, None, None, None, *addresses, *self.rest)

    def _launch_through_triton(self, device: int, *tensors: Tensor | None) -> None:
        with torch.cuda.device(device):  # where it is not the current one; Triton knows no other
            kernel = self.kernel[(self.blocks,)](*tensors, *self.rest, num_warps=self.warps)
        if kernel is not None:  # an interpreted kernel is not compiled
            current_stream = driver.active.get_current_stream
            self._compiled[device] = (kernel.run, current_stream, kernel.function, kernel.packed_metadata)


def divided_up(number: int, share: int) -> int:
    """Return how many shares hold so many.

    >>> divided_up(33, 32)
    2
    """
    return -(-number // share)


def power_of_two(number: int) -> int:
    """Return the smallest power of two that is not below the number.

    >>> power_of_two(17)
    32
    """
    return 1 << (number - 1).bit_length()
