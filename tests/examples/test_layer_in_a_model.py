import runpy

import pytest

from tests.support.shared_data import REPOSITORY


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(REPOSITORY / "examples/layer_in_a_model/train.py"))


@pytest.mark.parametrize("name", ["sum", "counter", "presence"])
def test_each_model_trains_for_a_few_steps(example, name):
    assert 0 <= example["train"](name, learning_rate=0.025, steps=4) <= 1


@pytest.mark.slow
def test_the_layers_count_better_than_the_sum_as_the_page_says(example):
    right = {name: example["train"](name, learning_rate=0.025, steps=1000) for name in ("sum", "counter", "presence")}
    assert right["sum"] < 0.5
    assert right["counter"] > 0.8
    assert right["presence"] > 0.97
