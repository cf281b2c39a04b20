import runpy

import pytest
import torch

import tallybox
from tests.support.problems import cotangent, random_problem
from tests.support.shared_data import REPOSITORY
from tests.support.tolerances import tolerance


@pytest.mark.parametrize(("proposals", "max_objects"), [(6, 6), (9, 5), (4, 10)])
def test_features_and_gradients_are_the_packages(proposals, max_objects):
    example = runpy.run_path(str(REPOSITORY / "examples/counter_in_one_file.py"))
    problem = random_problem(5, proposals=proposals, max_objects=max_objects, seed=1)
    results = []
    for counter in (example["Counter"](max_objects), tallybox.Counter(max_objects)):
        counter.double()
        with torch.no_grad():
            counter.weight.copy_(problem.weight[0].reshape(counter.weight.shape))
        attention, boxes = (value.clone().requires_grad_() for value in (problem.attention, problem.boxes))
        features = counter(attention, boxes)
        features.backward(cotangent(features))
        results.append([features, attention.grad, boxes.grad, counter.weight.grad.reshape(8, -1)])
    torch.testing.assert_close(*results, **tolerance("reference", torch.float64)._asdict())
