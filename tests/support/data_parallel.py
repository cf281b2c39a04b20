"""A small model around a counter and two processes that train it together.

In a module of its own, because a spawned process imports what it runs by name.
"""

import os
from pathlib import Path

import torch
from torch import Tensor, distributed, nn

from tallybox import Counter, PresenceCounter
from tests.support.problems import Layer, random_boxes, random_generator

IMAGES, PROPOSALS, FEATURES, ANSWERS = 8, 6, 3, 5
WORLD_SIZE = 2
FEATURES_OF_A_HEAD = {Counter: 5, PresenceCounter: 6}
STEPS = 2  # data-parallel training complains about a parameter without a gradient one step later


class CountingModel(nn.Module):
    """Score proposals, count, and guess an answer."""

    def __init__(self, layer: type[Layer]) -> None:
        super().__init__()
        self.score = nn.Linear(FEATURES, 1)
        self.counter = layer(4, heads=2, logits=True)
        self.answer = nn.Linear(2 * FEATURES_OF_A_HEAD[layer], ANSWERS)

    def forward(self, features: Tensor, boxes: Tensor) -> Tensor:
        return self.answer(self.counter(self.score(features).squeeze(-1), boxes))


def build_model(layer: type[Layer]) -> CountingModel:
    torch.manual_seed(0)
    return CountingModel(layer).double()


def batch() -> tuple[Tensor, Tensor, Tensor]:
    g = random_generator(1)
    features = torch.randn(IMAGES, PROPOSALS, FEATURES, generator=g, dtype=torch.float64)
    return features, random_boxes(IMAGES, PROPOSALS, seed=2), torch.randint(ANSWERS, (IMAGES,), generator=g)


def train(model: nn.Module, features: Tensor, boxes: Tensor, answers: Tensor) -> dict[str, Tensor]:
    """Take the steps and return the gradients of the last, by parameter."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(features, boxes), answers).backward()
        optimizer.step()
    return {name.removeprefix("module."): parameter.grad for name, parameter in model.named_parameters()}


def train_share(rank: int, folder: str, layer: type[Layer]) -> None:
    """What each process does: train on its share of the images and leave the gradients in the folder."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting_point", rank=rank, world_size=WORLD_SIZE
    )
    share = (values[rank::WORLD_SIZE] for values in batch())
    gradients = train(nn.parallel.DistributedDataParallel(build_model(layer)), *share)
    torch.save(gradients, Path(folder) / f"gradients_{rank}.pt")
    distributed.barrier()  # a process fails if another has left
    os._exit(0)  # gloo's threads may abort the process while Python shuts down (torch 2.13)
