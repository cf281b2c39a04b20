from dataclasses import replace
from functools import partial

import pytest
import torch

from tallybox import Counter
from tests.support.problems import (
    Problem,
    count_of,
    features_of,
    inputs_of,
    random_boxes,
    random_problem,
    solve,
)
from tests.support.tolerances import tolerance

THREE_CATS = torch.tensor(
    [[0.0, 0.0, 1.0, 1.0], [2.0, 0.0, 3.0, 1.0], [4.0, 0.0, 5.0, 1.0], [4.0, 0.0, 5.0, 1.0]], dtype=torch.float64
)
UNTRAINED = torch.ones(1, 8, 16)


@pytest.mark.parametrize(
    ("attention", "count", "features"),
    [
        ([0, 0, 0, 0], 0, [1, 0, 0, 0, 0]),
        ([1, 0, 0, 0], 1, [0, 1, 0, 0, 0]),
        ([1, 1, 0, 0], 2, [0, 0, 1, 0, 0]),
        ([1, 1, 1, 1], 3, [0, 0, 0, 1, 0]),
        ([0, 0, 1, 1], 1, [0, 1, 0, 0, 0]),
    ],
)
def test_three_cats_one_of_them_seen_twice(backend, dtype, attention, count, features):
    problem = Problem(torch.tensor(attention, dtype=torch.float64), THREE_CATS, UNTRAINED, max_objects=4)
    atol = tolerance(backend, dtype).atol
    assert count_of(problem, backend, dtype).item() == pytest.approx(count, abs=atol)
    assert features_of(problem, backend, dtype).tolist() == pytest.approx(features, abs=atol)


def test_two_half_believed_boxes_worked_out_by_hand(backend, dtype):
    """a = (1, 1/2), IoU 1/2.

    A12 = 1/2, so Ã12 = X12 = 1/4; Sim12 = 1/2 (3/4)² = 9/32, s = 32/41 for both;
    |E| = 2 · 1/4 · (32/41)² + 32/41 · (1 + 1/4) = 512/1681 + 40/41 = 2152/1681;
    p_a = (1/2 + 0)/2 = 1/4, p_D = (1/2 + 0 + 0 + 1/2)/4 = 1/4.
    """
    boxes = torch.tensor([[0.0, 0.0, 2.0, 1.0], [0.0, 0.0, 1.0, 1.0]], dtype=torch.float64)
    problem = Problem(torch.tensor([1.0, 0.5]), boxes, UNTRAINED, max_objects=2)
    count = (2152 / 1681) ** 0.5
    atol = tolerance(backend, dtype).atol
    assert count_of(problem, backend, dtype).item() == pytest.approx(count, abs=atol)
    expected = [0, (2 - count) / 2, (count - 1) / 2]
    assert features_of(problem, backend, dtype).tolist() == pytest.approx(expected, abs=atol)


@pytest.mark.parametrize(("weight", "count"), [(0.5, 1.01), (0.7, 2.33), (0.9, 6.90)])
def test_untrained_equal_uncertain_weights_look_like_duplicates(backend, weight, count):
    corner = 2 * torch.arange(10.0, dtype=torch.float64)[:, None].expand(10, 2)
    problem = Problem(torch.full((10,), weight), torch.cat((corner, corner + 1), -1), UNTRAINED)
    assert count_of(problem, backend, torch.float32).item() == pytest.approx(count, abs=0.005)


NOTHING = {
    "no proposals": random_problem(2, proposals=0),
    "all masked": replace(random_problem(2, proposals=5), mask=torch.zeros(2, 5, dtype=torch.bool)),
    "many masked": replace(random_problem(2, proposals=15), mask=torch.zeros(2, 15, dtype=torch.bool)),
    "all of weight zero": replace(random_problem(2, proposals=5), attention=torch.zeros(2, 5)),
}


@pytest.mark.parametrize("name", NOTHING)
def test_images_without_relevant_proposals_count_zero_with_finite_gradients(backend, dtype, name):
    results = solve(NOTHING[name], backend, dtype)
    assert results["count"].tolist() == pytest.approx([0, 0], abs=1e-9)
    assert all(value.isfinite().all() for value in results.values())


@pytest.mark.parametrize("name", ["no proposals", "all masked", "many masked"])
def test_images_without_proposals_are_certain_of_zero(backend, dtype, name):
    features = features_of(NOTHING[name], backend, dtype)
    torch.testing.assert_close(features, torch.eye(11, dtype=torch.float64)[[0, 0]], rtol=0, atol=1e-6)


def test_more_objects_than_max_objects_count_as_max_objects(backend, dtype):
    corner = 2 * torch.arange(8.0, dtype=torch.float64)[:, None].expand(8, 2)
    problem = Problem(torch.ones(8), torch.cat((corner, corner + 1), -1), UNTRAINED, max_objects=5)
    assert count_of(problem, backend, dtype).item() == pytest.approx(5, abs=tolerance(backend, dtype).atol)


class CounterOfCount(Counter):
    """A counter whose forward pass is its count."""

    forward = Counter.count


@pytest.mark.parametrize("kind", [Counter, CounterOfCount])
@pytest.mark.parametrize("proposals", [4, 7], ids=["all kept", "some kept"])
def test_gradients_are_those_of_finite_differences(float64_backend, proposals, kind):
    problem = random_problem(2, proposals=proposals, max_objects=4, segments=3, masked=True, seed=12)
    attention, boxes, mask = inputs_of(problem, float64_backend, torch.float64)
    counter = kind(4, segments=3, backend=float64_backend)

    def call(attention, boxes, weight):
        return torch.func.functional_call(counter, {"weight": weight}, (attention, boxes, mask))

    weight = problem.weight.to(attention.device).requires_grad_()
    assert torch.autograd.gradcheck(call, (attention, boxes, weight))


def test_a_new_counter_starts_as_the_identity():
    counter = Counter(segments=7)
    assert {name: list(value.shape) for name, value in counter.state_dict().items()} == {"weight": [1, 8, 7]}
    assert (counter.weight == 1).all()


def test_heads_diverge_under_a_readout_that_treats_them_alike():
    torch.manual_seed(0)
    counter, boxes = Counter(5, heads=3), random_boxes(8, 5, seed=1).float()
    start = counter.weight.detach().clone()
    optimizer = torch.optim.SGD(counter.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        (counter.count(torch.rand(8, 5), boxes).mean(-1) - 2).square().sum().backward()
        optimizer.step()
    steps = counter.weight.detach() - start
    assert (steps[0] - steps[1]).abs().max() > 1e-3


@pytest.mark.parametrize("heads", [1, 3])
def test_parameters_can_be_reset_after_initialisation_without_memory(monkeypatch, layer, heads):
    expected = layer(5, heads=heads).state_dict()
    monkeypatch.setattr(torch, "linspace", partial(torch.linspace, device="cpu"))  # as a detector of transformers does
    with torch.device("meta"):
        counter = layer(5, heads=heads)
    counter.to_empty(device="cpu").reset_parameters()
    torch.testing.assert_close(dict(counter.state_dict()), dict(expected))
