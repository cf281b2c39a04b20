"""Processes that train together in a test."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import distributed


@contextmanager
def process_group(rank: int, folder: str, number: int) -> Iterator[None]:
    """Join the group of processes that meet in a folder; the process ends with the block.

    Data-parallel training keeps gloo's threads alive after the group is destroyed (torch 2.13), and one of them aborts
    the process if it drops a tensor while Python shuts down. A process that has finished its work therefore leaves
    without that shutdown. One that fails raises as usual.
    """
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting_point", rank=rank, world_size=number)
    yield
    finished = [Path(folder) / f"finished_{process}" for process in range(number)]
    finished[rank].touch()
    while not all(file.exists() for file in finished):  # whoever is still at work fails where another has left
        time.sleep(0.01)
    os._exit(0)
