import pytest
import torch

from benchmarks import toy
from tallybox.errors import TallyboxError
from tallybox.toy.training import ToyConfig

CPU = torch.device("cpu")


def test_the_toy_task_is_timed_after_both_backends_learned_the_same():
    config = ToyConfig(iterations=2, batch=4, evaluation_batches=1)
    rows = list(toy.bench_toy(CPU, seconds=0.01, config=config))
    assert len(rows) == 2
    assert all(row.median_ms > 0 for row in rows)


def test_backends_that_learn_differently_are_not_timed():
    with pytest.raises(TallyboxError, match="differently"):
        toy.check_learning(CPU, tolerance=0.0)
