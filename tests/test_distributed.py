import numpy as np
import pytest
import torch
from torch import nn

from tallybox.distributed import (
    Processes,
    SharedBatchNorm,
    SharedDropout,
    current_processes,
    device_of_process,
    joined_processes,
    mean_over_processes,
)
from tallybox.errors import InputError

CPU = torch.device("cpu")


def test_alone_the_layers_are_torch_s_own():
    values = torch.randn(6, 4)
    ours, theirs = SharedBatchNorm(4), nn.BatchNorm1d(4)
    assert torch.equal(ours(values), theirs(values))
    assert torch.equal(ours.running_var, theirs.running_var)
    torch.manual_seed(3)
    dropped = SharedDropout(0.5)(values)
    torch.manual_seed(3)
    assert torch.equal(dropped, nn.functional.dropout(values, 0.5))
    assert SharedDropout(0.5).eval()(values) is values
    assert SharedDropout(0.0)(values) is values


def test_a_batch_is_divided_evenly_or_not_at_all():
    rows = np.arange(6)
    parts = [Processes(rank, 3).share(rows).tolist() for rank in range(3)]
    assert parts == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(InputError, match="must divide evenly among 4 processes, but got 6"):
        Processes(0, 4).share(rows)


def test_a_single_process_joins_nobody(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with joined_processes(CPU) as processes:
        assert processes == current_processes() == Processes(0, 1)
        assert processes.is_first
    assert mean_over_processes(torch.tensor(3.0)).item() == 3


def test_each_process_has_a_gpu_of_its_own(monkeypatch):
    assert device_of_process(torch.device("cuda")) == torch.device("cuda")
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert device_of_process(torch.device("cuda")) == torch.device("cuda", 2)
    assert device_of_process(torch.device("cuda", 1)) == torch.device("cuda", 1)
    assert device_of_process(CPU) == CPU
