"""Fused kernels take a plain list of images, ordered by counter: [M * R, ...] with weights [M, ...]."""

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Layout(NamedTuple):
    """How leading dimensions that broadcast become one list and back."""

    leading: torch.Size  # of the result
    order: tuple[int, ...] | None  # leading dimensions along which the weights differ first; None: as they are

    @classmethod
    def of(cls, of_weights: torch.Size, *leading: torch.Size) -> "Layout":
        """Lay out everything that broadcasts with weights of these leading dimensions."""
        one_counter = of_weights.numel() == 1 and len(of_weights) <= len(leading[0])
        if one_counter and all(shape == leading[0] for shape in leading):
            return cls(leading[0], None)  # the usual case; broadcasting takes 20 µs to say the same
        common: torch.Size = torch.broadcast_shapes(*leading, of_weights)
        offset = len(common) - len(of_weights)
        differing = [offset + i for i, size in enumerate(of_weights) if size != 1]
        order = (*differing, *(i for i in range(len(common)) if i not in differing))
        return cls(common, None if order == tuple(range(len(common))) else order)

    def to_list(self, tensor: Tensor, item_dimensions: int) -> Tensor:
        """Bring ``[..., *item]`` to ``[M * R, *item]``, contiguous."""
        item = tensor.shape[tensor.dim() - item_dimensions :]
        if tensor.shape[: tensor.dim() - item_dimensions] != self.leading:
            tensor = tensor.expand(*self.leading, *item)
        if self.order is not None:
            tensor = tensor.movedim(self.order, tuple(range(len(self.order))))
        if len(self.leading) != 1:  # a reshape that changes nothing still costs a step of autograd
            tensor = tensor.reshape(math.prod(self.leading), *item)
        return tensor.contiguous()

    def from_list(self, tensor: Tensor) -> Tensor:
        """Bring ``[M * R, *item]`` back to ``[..., *item]``."""
        item = tensor.shape[1:]
        if self.order is None:
            return tensor if len(self.leading) == 1 else tensor.reshape((*self.leading, *item))
        tensor = tensor.reshape((*(self.leading[i] for i in self.order), *item))
        return tensor.movedim(tuple(range(len(self.order))), self.order)
