"""How Numba kernels are launched: images, or groups of them, shared out among threads."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tallybox.concurrency import chunks_of, run_chunks
from tallybox.kernels.cpu.compiling import Array, Arrays
from tallybox.kernels.operators import Inputs


class Launcher(NamedTuple):
    """A component's kernels, which take the groups of images from one number up to another."""

    forward_kernel: Any  # (inputs, results, state, first, stop)
    backward_kernel: Any  # (inputs, state, gradients of results, those of attention and boxes, of weights, ...)
    group_images: int  # images of one counter; its last group may be smaller
    saved_size: Callable[[int], int]  # numbers saved of a group of images of so many boxes
    steps: Callable[[int], int]  # how long such a group takes

    def launchers(self) -> tuple[Any, Any, Any]:
        """Return what `kernels.operators` calls."""
        return self.state_size, self.forward, self.backward

    def state_size(self, inputs: Inputs, save_state: bool) -> int:
        """Return how many numbers the forward kernel saves."""
        return self._groups(inputs) * self.saved_size(inputs.attention.shape[1]) if save_state else 0

    def forward(self, inputs: Inputs, results: Sequence[Tensor], state: Tensor) -> None:
        """Write the results and, unless it is empty, the saved state."""
        arrays = (_arrays_of(inputs), _arrays(results), self._rows(inputs, state))
        run_chunks(self._chunks(inputs), lambda _, *groups: self.forward_kernel(*arrays, *groups))

    def backward(self, inputs: Inputs, state: Tensor, grads: Sequence[Tensor], boxes_need_grad: bool) -> list[Tensor]:
        """Return the gradients of attention, boxes and weights; that of boxes is 0 where nobody needs it."""
        written = [torch.empty_like(inputs.attention), torch.empty_like(inputs.boxes)]
        arrays = (_arrays_of(inputs), self._rows(inputs, state), _arrays(grads), _arrays(written))
        chunks, (weights,) = self._chunks(inputs), inputs.weights
        sums = np.zeros((len(chunks), *weights.shape))  # in double precision
        run_chunks(chunks, lambda chunk, *groups: self.backward_kernel(*arrays, sums[chunk], boxes_need_grad, *groups))
        return [*written, torch.from_numpy(sums.sum(0)).to(weights.dtype)]

    def _groups(self, inputs: Inputs) -> int:
        counters, images = inputs.weights[0].shape[0], inputs.attention.shape[0]  # `len` would fix a symbolic size
        return counters * -(-images // max(counters, 1) // self.group_images)

    def _chunks(self, inputs: Inputs) -> list[tuple[int, int]]:
        return chunks_of(self._groups(inputs), self.steps(inputs.attention.shape[1]))

    def _rows(self, inputs: Inputs, state: Tensor) -> Array:
        """Return the state as an array with a row for each group."""
        groups = self._groups(inputs)
        return state.numpy().reshape(groups, state.numel() // max(groups, 1))


def _arrays(tensors: Sequence[Tensor]) -> Arrays:
    return tuple(tensor.detach().numpy() for tensor in tensors)


def _arrays_of(inputs: Inputs) -> Arrays:
    """Return attention, boxes, mask and weights, a mask without rows for None."""
    attention, boxes, mask, weights, *_ = inputs
    return (*_arrays((attention, boxes)), np.empty((0, 0), bool) if mask is None else mask.numpy(), *_arrays(weights))
