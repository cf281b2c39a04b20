from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from tallybox.toy.config import ToyConfig
from tallybox.toy.training import Setting, Training, loss_of, train_settings

CPU = torch.device("cpu")
QUICK = ToyConfig(iterations=3, batch=16, evaluation_batches=2)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_models_learn_side_by_side_what_they_learn_one_after_another(threads):
    results = []
    for number in (1, 2):
        threads(number)
        results.append(train_settings([Setting(0.5, 0.5)], 3, QUICK, device=CPU))
    assert results[0] == results[1]


def test_a_model_learns_as_with_torch_s_own_adam():
    training, plain = (Training([Setting(0.3, 0.2)], 0, QUICK, device=CPU) for _ in range(2))
    optimiser = torch.optim.Adam([{"params": model.parameters()} for model in plain.models.values()])
    for step in range(3):
        images = plain.draw()
        training.learn(images)
        optimiser.zero_grad()
        for group, (name, learner) in zip(optimiser.param_groups, plain.learners.items(), strict=True):
            group["lr"] = learner.rate(step)
            loss_of(plain.models[name], images).backward()
        optimiser.step()
    for ours, expected in zip(training.models.parameters(), plain.models.parameters(), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)


def test_a_point_trains_without_what_compiles_graphs():
    code = (
        "import sys, torch\n"
        "from tallybox.toy.config import ToyConfig\n"
        "from tallybox.toy.training import Setting, train_settings\n"
        "config = ToyConfig(iterations=1, evaluation_batches=1, batch=8)\n"
        "train_settings([Setting(0.5, 0.5)], 0, config, device=torch.device('cpu'))\n"
        "assert 'torch._dynamo' not in sys.modules, 'it takes 2 s to import'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
