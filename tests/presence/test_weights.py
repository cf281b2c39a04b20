"""From weights to functions: where their knots lie, what they rise by, and that they only rise."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tallybox import PresenceCounter, PresenceWeights
from tallybox.presence.weights import (
    CELLS,
    LOGIT_LIMIT,
    PresenceFunctions,
    calibration_edges,
    initial_weights,
    score_coordinate,
)
from tests.support.problems import random_generator, random_presence_weights, untrained
from tests.support.strategies import presence_weights
from tests.support.tolerances import ROUNDING, tolerance

EXACT = ROUNDING[torch.float64]._asdict()
DOUBLE = torch.zeros((), dtype=torch.float64)


@pytest.mark.parametrize("segments", [1, 2, 7, 16, 64])
def test_edges_of_the_calibration_lie_at_even_steps_of_the_coordinate(segments):
    edges = calibration_edges(segments, DOUBLE)
    assert edges[[0, -1]].tolist() == [0, 1]
    assert (edges.diff() > 0).all()
    steps = torch.arange(1, segments, dtype=torch.float64) / segments
    torch.testing.assert_close(score_coordinate(edges[1:-1].logit()), steps, rtol=1e-9, atol=1e-9)


def test_edges_lie_as_densely_near_zero_as_near_one():
    edges = calibration_edges(16, DOUBLE)
    torch.testing.assert_close(edges, 1 - edges.flip(0), **EXACT)


def test_the_coordinate_goes_from_zero_to_one_within_the_limits_and_stays_there():
    logits = torch.tensor([-1e30, -LOGIT_LIMIT, 0, LOGIT_LIMIT, 1e30], dtype=torch.float64)
    torch.testing.assert_close(score_coordinate(logits), torch.tensor([0, 0, 0.5, 1, 1], dtype=torch.float64), **EXACT)


@given(logits=st.lists(st.floats(-14, 14), min_size=2, max_size=2, unique=True))
def test_the_coordinate_rises_with_the_score(logits):
    low, high = score_coordinate(torch.tensor(sorted(logits), dtype=torch.float64)).tolist()
    assert low <= high


@given(weights=presence_weights(2))
def test_functions_start_at_zero_rise_and_end_at_their_ceiling(weights):
    f = PresenceFunctions.of(weights)
    for rising in (f.calibration, f.order, f.overlap, f.overlap.mT):
        assert (rising.diff(dim=-1) >= 0).all()
    assert (f.calibration[:, 0] == 0).all()
    torch.testing.assert_close(f.calibration[:, -1], torch.ones(2).double(), **EXACT)
    assert (f.order[:, 0] == 0).all()
    torch.testing.assert_close(f.order[:, -1] + f.step, torch.ones(2).double(), **EXACT)
    assert (f.overlap[:, 0] == 0).all()
    assert (f.evidence[:, 0] == 0).all()
    assert torch.equal(f.evidence[:, 1:], weights.evidence)
    rises = weights.overlap.abs().sum((-2, -1))
    ceiling = rises / (rises + weights.headroom.abs())
    torch.testing.assert_close(f.overlap[:, -1, -1], ceiling, **EXACT)
    assert (f.overlap.amax((-2, -1)) < 1).all()


@pytest.mark.parametrize("name", ["calibration", "overlap", "headroom", "order", "step"])
def test_signs_of_rises_do_not_matter(name):
    weights = random_presence_weights(3, seed=1)
    flipped = weights._replace(**{name: -getattr(weights, name)})
    for got, expected in zip(PresenceFunctions.of(flipped), PresenceFunctions.of(weights), strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize("factor", [1e-20, 1e20])
def test_only_ratios_of_rises_matter(factor):
    weights = random_presence_weights(3, seed=2)
    names = ["calibration", "overlap", "headroom", "order", "step"]
    scaled = weights._replace(**{name: factor * getattr(weights, name) for name in names})
    for got, expected in zip(PresenceFunctions.of(scaled), PresenceFunctions.of(weights), strict=True):
        torch.testing.assert_close(got, expected, **EXACT)


@pytest.mark.parametrize("name", ["calibration", "overlap", "order"])
def test_rises_as_large_as_float32_can_hold_make_the_same_functions(name):
    weights = PresenceWeights(*(weight.float() for weight in random_presence_weights(3, seed=2)))
    without = weights._replace(headroom=torch.zeros(3), step=torch.zeros(3))
    huge = without._replace(**{name: 1e38 * getattr(without, name)})
    for got, expected in zip(PresenceFunctions.of(huge), PresenceFunctions.of(without), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_the_first_column_of_the_overlap_rises_for_every_score_and_the_others_for_low_ones():
    """The second argument of η is 1 less the score's coordinate: a column counts from its knot on."""
    weights = random_presence_weights(seed=3)
    only = torch.zeros(CELLS, CELLS + 1, dtype=torch.float64)
    only[3, 0], only[5, 4] = 1, 3
    f = PresenceFunctions.of(weights._replace(overlap=only, headroom=DOUBLE))
    expected = torch.zeros(CELLS + 1, CELLS + 1, dtype=torch.float64)
    expected[4:, :] += 1 / 4
    expected[6:, 4:] += 3 / 4
    torch.testing.assert_close(f.overlap, expected, **EXACT)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_untrained_functions_are_straight_and_their_order_is_a_step(heads):
    f = PresenceFunctions.of(untrained(PresenceCounter, heads=heads))
    straight = torch.linspace(0, 1, CELLS + 1, dtype=torch.float64)
    torch.testing.assert_close(f.overlap, straight[:, None].expand(heads, -1, CELLS + 1), **EXACT)
    torch.testing.assert_close(f.calibration[0], calibration_edges(16, DOUBLE), **EXACT)
    assert (f.order == 0).all()
    assert (f.step == 1).all()
    assert (f.evidence == 0).all()
    assert (f.slope == 1).all()


def test_several_heads_start_from_different_levels_and_one_from_the_score_itself():
    assert initial_weights(heads=1, segments=4).shift.tolist() == [0]
    assert initial_weights(heads=3, segments=4).shift.tolist() == [-1, 0, 1]


def test_weights_that_are_all_zero_make_functions_without_a_nan():
    weights = untrained(PresenceCounter)
    zero = weights._replace(**{name: torch.zeros_like(value) for name, value in weights._asdict().items()})
    f = PresenceFunctions.of(zero)
    assert (f.overlap == 0).all()
    assert (f.order == 0).all()
    assert f.step.item() == 1
    torch.testing.assert_close(f.calibration, torch.linspace(0, 1, 17, dtype=torch.float64)[None], **EXACT)


@pytest.mark.parametrize("name", ["headroom", "order", "overlap"])
def test_what_starts_at_zero_can_grow(name):
    weights = untrained(PresenceCounter)
    weight = getattr(weights, name).requires_grad_()
    f = PresenceFunctions.of(weights._replace(**{name: weight}))
    (f.overlap[..., -1, :].sum() + f.order.sum()).backward()
    assert (weight.grad != 0).any()
    assert weight.grad.isfinite().all()


@pytest.mark.parametrize("segments", [1, 16, 64])
def test_edges_have_their_distances_in_float32_too(segments):
    edges = calibration_edges(segments, torch.zeros(()))
    assert edges.dtype == torch.float32
    assert (edges.diff() > 0).all()
    assert math.isclose(edges.diff().sum().item(), 1, rel_tol=1e-6)


def rows_of(kind: str, segments: int) -> PresenceWeights:
    if kind == "trained":
        return random_presence_weights(3, segments=segments, seed=1)
    weights = initial_weights(3, segments)
    if kind == "untrained":
        return weights
    factor = {"zeros": 0, "huge": 1e37}[kind]  # huge: the sum of the sizes is not finite
    return PresenceWeights(*((weight + 1) * factor for weight in weights))


@pytest.mark.parametrize("segments", [1, 7, 16])
@pytest.mark.parametrize("kind", ["trained", "untrained", "zeros", "huge"])
def test_the_table_on_a_gpu_and_its_gradient_are_those_of_the_functions(poisoned_memory, kind, segments):
    launch = pytest.importorskip("tallybox.presence.cuda.launch", reason="needs triton")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    close = tolerance("triton", torch.float32)._asdict()
    weights = PresenceWeights(*(weight.float().to(device).requires_grad_() for weight in rows_of(kind, segments)))
    expected = PresenceFunctions.of(weights).table()
    given = [weight.detach() for weight in weights]
    write, carry_back = launch.table_steps(3, segments, images=0, state=0)
    table = torch.empty_like(expected)
    launch.launch_now(write, *given, table)
    torch.testing.assert_close(table, expected, **close)
    grad = torch.randn(expected.shape, generator=random_generator(2)).to(device)
    grad[..., -(segments + 1) :] = 0  # edges are constants
    of_functions = torch.autograd.grad(expected, weights, grad, allow_unused=True, materialize_grads=True)
    of_kernel = launch.weight_gradients(carry_back, given, grad)
    for name, one, other in zip(PresenceWeights._fields, of_kernel, of_functions, strict=True):
        scale = other.abs().max().clamp(min=1e-30)
        torch.testing.assert_close(one / scale, other / scale, **close, msg=name)
