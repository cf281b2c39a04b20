import pytest
import torch

from benchmarks import toy
from tallybox.errors import TallyboxError
from tallybox.toy.training import Setting, ToyConfig, ToyTraining

CPU = torch.device("cpu")


def test_nothing_is_timed_before_both_learn_the_same(monkeypatch):
    toy.check_learning(CPU)
    monkeypatch.setattr(toy, "AGREEMENT", 0.0)
    with pytest.raises(TallyboxError, match="must learn the same before they are timed, but differ by"):
        next(toy.bench_toy(CPU, seconds=0.01))


def test_a_step_trains_every_model():
    training = ToyTraining([Setting(0.5, 0.5)], 0, ToyConfig(batch=16), device=CPU)
    before = {name: [p.clone() for p in model.parameters()] for name, model in training.models.items()}
    toy.step(training)
    toy.score(training)
    for name, model in training.models.items():
        assert not all(torch.equal(a, b) for a, b in zip(before[name], model.parameters(), strict=True)), name
