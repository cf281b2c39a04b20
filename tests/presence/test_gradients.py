"""Gradients: those of finite differences away from kinks, and finite at every edge of the inputs."""

from dataclasses import replace

import pytest
import torch

from tallybox import PresenceCounter, PresenceWeights
from tallybox.presence.weights import calibration_edges
from tests.support.problems import (
    Problem,
    assert_same_in_scale,
    build_counter,
    cotangent,
    gradients_of,
    inputs_of,
    random_boxes,
    random_generator,
    random_presence_weights,
    random_problem,
    solve,
    square_boxes,
    untrained,
)
from tests.support.tolerances import tolerance

UNTRAINED = untrained(PresenceCounter)
WEIGHTS = {"untrained": UNTRAINED, "trained": random_presence_weights(1, seed=1)}
ONE_PLACE = torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=torch.float64)


@pytest.mark.parametrize(
    ("output", "logits"), [("forward", False), ("distribution", True), ("presence", False)], ids=str
)
def test_gradients_are_those_of_finite_differences(float64_backend, output, logits):
    problem = random_problem(
        2, proposals=4, max_objects=3, segments=3, masked=True, logits=logits, seed=12, layer=PresenceCounter
    )
    attention, boxes, mask = inputs_of(problem, float64_backend, torch.float64)
    weights = PresenceWeights(*(weight.to(attention.device).requires_grad_() for weight in problem.weight))
    layer = build_counter(problem, float64_backend, torch.float64)

    class Output(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, *given):
            return getattr(self.layer, output)(*given)

    def call(attention, boxes, *weights):
        named = {f"layer.{name}": value for name, value in zip(PresenceWeights._fields, weights, strict=True)}
        return torch.func.functional_call(Output(), named, (attention, boxes, mask))

    assert torch.autograd.gradcheck(call, (attention, boxes, *weights))


EDGES = {
    "scores of 0": (torch.zeros(2, 4), random_boxes(2, 4, seed=1), None),
    "scores of 1": (torch.ones(2, 4), random_boxes(2, 4, seed=1), None),
    "scores of 0 and 1": (torch.tensor([[0.0, 1, 0, 1], [1, 1, 1, 0]]), random_boxes(2, 4, seed=1), None),
    "equal scores": (torch.full((2, 4), 0.5), random_boxes(2, 4, seed=1), None),
    "identical boxes": (torch.rand(2, 4), ONE_PLACE.expand(2, 4, 4), None),
    "identical boxes, equal scores": (torch.full((2, 4), 0.5), ONE_PLACE.expand(2, 4, 4), None),
    "identical boxes, scores of 1": (torch.ones(2, 4), ONE_PLACE.expand(2, 4, 4), None),
    "identical boxes, scores of 0": (torch.zeros(2, 4), ONE_PLACE.expand(2, 4, 4), None),
    "boxes without area": (torch.rand(2, 4), torch.ones(2, 4, 4), None),
    "all masked": (torch.rand(2, 4), random_boxes(2, 4, seed=1), torch.zeros(2, 4, dtype=torch.bool)),
    "NaN where masked": (
        torch.tensor([[0.5, torch.nan], [torch.nan, 1.0]]),
        torch.stack((ONE_PLACE, torch.full((4,), torch.nan))).expand(2, 2, 4) * torch.ones(2, 1, 1),
        torch.tensor([[True, False], [False, False]]),
    ),
    "one proposal": (torch.rand(2, 1), random_boxes(2, 1, seed=1), None),
    "no proposals": (torch.rand(2, 0), random_boxes(2, 0, seed=1), None),
    "many duplicates at 1": (torch.ones(1, 40), ONE_PLACE.expand(1, 40, 4), None),
}


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("edge", EDGES)
def test_gradients_are_finite_at_every_edge_of_the_inputs(backend, dtype, edge, weights):
    attention, boxes, mask = EDGES[edge]
    problem = Problem(attention.double(), boxes.double(), WEIGHTS[weights], mask=mask)
    for name, value in solve(problem, backend, dtype).items():
        assert value.isfinite().all(), name


@pytest.mark.parametrize("value", [1e30, -1e30, 15.0, -15.0, 14.0, -14.0])
def test_gradients_are_finite_for_any_logit(backend, dtype, value):
    problem = Problem(
        torch.tensor([value, value, 0.0], dtype=torch.float64), random_boxes(3, seed=2), WEIGHTS["trained"], logits=True
    )
    for name, result in solve(problem, backend, dtype).items():
        assert result.isfinite().all(), name


def test_a_score_of_zero_or_one_gets_no_gradient_and_one_beside_it_does(backend):
    problem = Problem(torch.tensor([0.0, 1.0, 0.5], dtype=torch.float64), random_boxes(3, seed=3), UNTRAINED)
    gradient = solve(problem, backend, torch.float32)["grad_attention"]
    assert gradient[:2].tolist() == [0, 0]
    assert gradient[2] != 0


def test_untrained_a_score_where_segments_of_the_calibration_meet_has_the_slope_of_both(backend, dtype):
    """φ is the identity: a single proposal counts its score, with a slope of 1 everywhere inside."""
    scores = calibration_edges(16, torch.zeros((), dtype=torch.float64))[1:-1]
    problem = Problem(scores.unsqueeze(-1), ONE_PLACE.expand(len(scores), 1, 4), UNTRAINED)
    layer = build_counter(problem, backend, dtype)
    attention, boxes, _ = inputs_of(problem, backend, dtype)
    layer.count(attention, boxes).sum().backward()
    slope = attention.grad.squeeze(-1).to("cpu", torch.float64)
    torch.testing.assert_close(slope, torch.ones_like(slope), rtol=1e-3, atol=1e-3)


def zero_factor_problem(number: int) -> Problem:
    """Suppressors with p = 1 and s = 1 exactly: a calibration that reaches 1 early, boxes in one place."""
    calibration = torch.zeros(1, 16, dtype=torch.float64)
    calibration[0, 8] = 1
    return Problem(
        torch.linspace(0.999, 0.99, number, dtype=torch.float64),
        ONE_PLACE.expand(number, 4),
        UNTRAINED._replace(calibration=calibration),
    )


def presence_gradients(problem: Problem, backend: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Presences and their gradients, pulled back from a different direction for each, by name."""
    layer, inputs = build_counter(problem, backend, dtype), inputs_of(problem, backend, dtype)
    presence = layer.presence(*inputs)
    presence.backward(torch.linspace(-1, 2, presence.numel()).reshape(presence.shape).to(presence))
    results = {"presence": presence.detach()} | gradients_of(layer, *inputs[:2])
    return {name: value.to("cpu", torch.float64) for name, value in results.items()}


@pytest.mark.parametrize("number", [2, 3, 4, 6])
def test_factors_of_exactly_zero_have_the_gradients_of_the_reference(backend, dtype, number):
    """The first leaves nothing of the others; each further one is in the way of the gradient of those before."""
    problem = zero_factor_problem(number)
    expected = presence_gradients(problem, "reference", torch.float64)
    assert expected["presence"].tolist() == [[1.0] + [0.0] * (number - 1)]
    assert expected["grad_order"].abs().sum() > 0
    got = presence_gradients(problem, backend, dtype)
    assert_same_in_scale(got, expected, tolerance(backend, dtype, PresenceCounter))


def test_every_proposal_gets_its_own_gradient(backend, dtype):
    problem = random_problem(2, proposals=6, heads=2, seed=4, masked=True, layer=PresenceCounter)
    expected = presence_gradients(problem, "reference", torch.float64)
    got = presence_gradients(problem, backend, dtype)
    assert_same_in_scale(got, expected, tolerance(backend, dtype, PresenceCounter))


def test_gradients_of_masked_places_are_exactly_zero(backend, dtype):
    problem = random_problem(3, proposals=6, masked=True, seed=5, layer=PresenceCounter)
    nan = replace(
        problem,
        attention=problem.attention.masked_fill(~problem.mask, torch.nan),
        boxes=problem.boxes.masked_fill(~problem.mask.unsqueeze(-1), torch.inf),
    )
    results = solve(nan, backend, dtype)
    assert (results["grad_attention"][~problem.mask] == 0).all()
    assert (results["grad_boxes"][~problem.mask] == 0).all()
    expected = solve(problem, backend, dtype)
    assert all(torch.equal(results[name], expected[name]) for name in results)


@pytest.mark.parametrize("seed", [27, 36, 90, 189])
def test_on_a_grid_with_scores_of_0_and_1_fused_gradients_are_as_close_as_the_references(seed):
    """Copies at a score of 1: large terms of both signs add up to a small gradient."""
    attention = torch.randint(2, (8, 36), generator=random_generator(seed)).double()
    problem = Problem(attention, square_boxes(8, 36, seed=seed), untrained(PresenceCounter))

    def gradients(backend: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
        counter = build_counter(problem, backend, dtype)
        given, boxes, _ = inputs_of(problem, backend, dtype)
        log_probabilities = counter(given, boxes)[..., :-1]
        log_probabilities.backward(cotangent(log_probabilities))
        return {name: value.double() for name, value in gradients_of(counter, given, boxes).items()}

    exact = gradients("reference", torch.float64)
    fused, reference = (gradients(backend, torch.float32) for backend in ("cpu", "reference"))
    for name, expected in exact.items():
        allowed = 2 * (reference[name] - expected).abs().max() + 1e-4
        assert (fused[name] - expected).abs().max() <= allowed, name
