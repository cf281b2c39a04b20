"""One batch shared by several processes: who has which part, and layers that look at all of it.

PyTorch's data parallel averages gradients. That makes several processes the equal of one only where nothing else
depends on how a batch is divided. Two layers do: batch normalisation, whose statistics are those of the examples it
sees, and dropout, whose masks are drawn. `SharedBatchNorm` and `SharedDropout` see to it that these, too, are those of
the whole batch; in a single process they are torch's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor, distributed, nn

from tallybox.errors import InputError

Values = TypeVar("Values", Tensor, NDArray[Any])


@dataclass(frozen=True)
class Processes:
    """Who this process is among those that train together."""

    rank: int = 0
    number: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    def share(self, batch: Values) -> Values:
        """Return this process's part of a batch, ``[B, ...]`` to ``[B / number, ...]``.

        >>> Processes(rank=1, number=2).share(torch.arange(6))
        tensor([3, 4, 5])
        """
        if len(batch) % self.number:
            raise InputError(
                f"a batch must divide evenly among {self.number} processes, but got {len(batch)}; change batch"
            )
        size = len(batch) // self.number
        return batch[self.rank * size : (self.rank + 1) * size]


def current_processes() -> Processes:
    """Return who this is; alone unless a group of processes was started."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return Processes()
    return Processes(distributed.get_rank(), distributed.get_world_size())


@contextmanager
def joined_processes(device: torch.device) -> Iterator[Processes]:
    """Join the others where `torchrun` started several processes; leave them at the end."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or distributed.is_initialized():
        yield current_processes()
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield current_processes()
    finally:
        distributed.destroy_process_group()


def device_of_process(device: torch.device) -> torch.device:
    """Return the GPU that is this process's where `torchrun` started one for each."""
    if device.type == "cuda" and device.index is None and "LOCAL_RANK" in os.environ:
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    return device


def mean_over_processes(value: Tensor) -> Tensor:
    """Return the mean of a value that each process has its own of."""
    processes = current_processes()
    if processes.number == 1:
        return value
    total = value.clone()
    distributed.all_reduce(total)
    return total / processes.number


class SumOverProcesses(torch.autograd.Function):
    """A sum whose gradient, too, is that of all processes."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        """Add what each process has."""
        total = value.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor) -> Tensor:
        """Each process's value counts in what every process makes of the total."""
        grad_value = grad_total.clone()
        distributed.all_reduce(grad_value)
        return grad_value


def sum_over_processes(value: Tensor) -> Tensor:
    """Return the sum of a value that each process has its own of, differentiably."""
    apply: Any = SumOverProcesses.apply  # torch leaves it untyped
    total: Tensor = apply(value)
    return total


class SharedDropout(nn.Module):
    """Dropout ``[B, ...]`` whose masks do not depend on how a batch is divided among processes.

    Each process draws the masks of the whole batch from the same random numbers and takes its part. That costs as much
    as drawing them in a single process, and nothing is sent.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, values: Tensor) -> Tensor:
        """Drop values and scale the others up, while training."""
        if not self.training or self.probability == 0:
            return values
        processes = current_processes()
        if processes.number == 1:
            return nn.functional.dropout(values, self.probability)
        whole = values.new_empty(len(values) * processes.number, *values.shape[1:])
        kept = processes.share(whole.bernoulli_(1 - self.probability))
        return values * kept.div_(1 - self.probability)

    def extra_repr(self) -> str:  # noqa: D102 - torch's
        return f"probability={self.probability}"


class SharedBatchNorm(nn.BatchNorm1d):
    """Batch normalisation ``[B, C]`` by the statistics of the batch that all processes share."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalise by the batch while training, else by the running statistics."""
        processes = current_processes()
        if not self.training or processes.number == 1:
            return super().forward(input)
        examples = len(input) * processes.number
        values = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        mean = sum_over_processes(values.sum(0)) / examples
        centred = values - mean
        variance = sum_over_processes(centred.square().sum(0)) / examples
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        with torch.no_grad():
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * examples / (examples - 1), self.momentum)
        normal = centred * (variance + self.eps).rsqrt()
        output: Tensor = (normal * self.weight + self.bias).to(input.dtype)
        return output
