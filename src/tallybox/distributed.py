"""Data-parallel training: each process's share of a batch, and layers that see the whole batch.

`DistributedDataParallel` averages gradients, so that several processes train like one, except for two layers that
depend on how a batch is divided: batch normalisation (its statistics) and dropout (its masks). `SharedBatchNorm` and
`SharedDropout` use those of the whole batch; in a single process they behave like torch's layers.
"""

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
    """The processes that train together, and which of them this is."""

    rank: int = 0
    number: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and prints."""
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
    """Return the process group that was initialised, or a single process."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return Processes()
    return Processes(distributed.get_rank(), distributed.get_world_size())


@contextmanager
def joined_processes(device: torch.device) -> Iterator[Processes]:
    """Initialise the process group where `torchrun` started several processes, and destroy it at the end."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or distributed.is_initialized():
        yield current_processes()
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield current_processes()
        distributed.barrier()  # gloo may abort a process that leaves while another is still at work
    finally:
        distributed.destroy_process_group()


def device_of_process(device: torch.device) -> torch.device:
    """Return this process's own GPU where `torchrun` started a process for each."""
    if device.type == "cuda" and device.index is None and "LOCAL_RANK" in os.environ:
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    return device


class _SumOverProcesses(torch.autograd.Function):
    """Sum over processes; the gradient is summed, too. Torch's own differentiable all-reduce is deprecated."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        total = value.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor) -> Tensor:
        return _SumOverProcesses.forward(ctx, grad_total)


def mean_over_processes(value: Tensor) -> Tensor:
    """Return the mean of each process's value, differentiably."""
    processes = current_processes()
    if processes.number == 1:
        return value
    apply: Any = _SumOverProcesses.apply  # torch leaves it untyped
    total: Tensor = apply(value)
    return total / processes.number


class SharedDropout(nn.Dropout):
    """Dropout ``[B, ...]`` whose masks do not depend on how a batch is divided among processes.

    Each process draws the masks of the whole batch from the same random numbers and takes its part. That costs as much
    as drawing them in a single process, and nothing is sent.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Drop values and scale the others up, while training."""
        processes = current_processes()
        if not self.training or self.p == 0 or processes.number == 1:
            return super().forward(input)
        whole = input.new_empty(len(input) * processes.number, *input.shape[1:])
        kept = processes.share(whole.bernoulli_(1 - self.p))
        return input * kept.div_(1 - self.p)


class SharedBatchNorm(nn.BatchNorm1d):
    """Batch normalisation ``[B, C]`` by the statistics of the batch of all processes.

    `torch.nn.SyncBatchNorm` does the same on GPUs only.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalise by the batch while training, else by the running statistics."""
        processes = current_processes()
        if not self.training or processes.number == 1:
            return super().forward(input)
        examples = len(input) * processes.number
        values = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        mean = mean_over_processes(values.mean(0))
        centred = values - mean
        variance = mean_over_processes(centred.square().mean(0))
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
