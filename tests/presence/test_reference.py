"""Each equation by hand."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tallybox import PresenceCounter
from tallybox.presence import reference
from tallybox.presence.weights import PresenceFunctions, PresenceWeights
from tests.support.problems import random_boxes, random_generator, random_presence_weights, untrained
from tests.support.strategies import unit_floats
from tests.support.tolerances import ROUNDING, SUM_OF_PROBABILITIES

EXACT = ROUNDING[torch.float64]._asdict()


def vector(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def functions(**changed: torch.Tensor) -> PresenceFunctions:
    """The functions of an untrained counter, of no leading dimensions, with some weights changed."""
    weights = PresenceWeights(*(weight[0] for weight in untrained(PresenceCounter)))
    return PresenceFunctions.of(weights._replace(**changed))


def by_enumeration(presence: list[float], max_objects: int) -> list[float]:
    """Go through every way in which the proposals can be there or not."""
    probability = [0.0] * (max_objects + 1)
    for there in itertools.product([False, True], repeat=len(presence)):
        way = math.prod(p if here else 1 - p for p, here in zip(presence, there, strict=True))
        probability[min(sum(there), max_objects)] += way
    return probability


@given(presence=st.lists(unit_floats(), max_size=10), max_objects=st.integers(1, 12))
def test_the_distribution_is_that_of_every_way_to_be_there(presence, max_objects):
    got = reference.poisson_binomial(vector(*presence), max_objects)
    torch.testing.assert_close(got, vector(*by_enumeration(presence, max_objects)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("number", [1, 2, 3, 5, 8, 1000])
@pytest.mark.parametrize("max_objects", [1, 10])
def test_probabilities_sum_to_one_in_float32(number, max_objects):
    presence = torch.rand(4, number, generator=random_generator(number))
    distribution = reference.poisson_binomial(presence, max_objects)
    assert (distribution >= 0).all()
    torch.testing.assert_close(distribution.sum(-1), torch.ones(4), **SUM_OF_PROBABILITIES._asdict())


def test_the_expected_count_of_a_distribution_that_holds_every_count_is_the_sum_of_presences():
    presence = torch.rand(3, 8, generator=random_generator(0), dtype=torch.float64)
    distribution = reference.poisson_binomial(presence, 8)
    torch.testing.assert_close((distribution * torch.arange(9)).sum(-1), presence.sum(-1), **EXACT)


def test_small_probabilities_keep_their_digits_in_float32():
    got = reference.poisson_binomial(torch.full((6,), 1e-4), 6)[-1].item()
    assert got == pytest.approx(1e-24, rel=1e-5)


def test_logits_are_kept_within_their_limits():
    got = reference.score_logit(vector(0, 0.5, 1), logits=False)
    torch.testing.assert_close(got, vector(-14, 0, 14), rtol=1e-9, atol=1e-9)
    assert reference.score_logit(vector(-1e30, 3, 1e30), logits=True).tolist() == [-14, 3, 14]


def test_scores_of_zero_and_one_are_at_the_limits_in_float32_too():
    got = reference.score_logit(torch.tensor([0.0, 1.0]), logits=False)
    torch.testing.assert_close(got, torch.tensor([-14.0, 14.0]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("logits", [False, True])
def test_beyond_the_limits_a_score_has_no_slope(logits):
    attention = (vector(-1e3, 0, 1e3) if logits else vector(0, 0.5, 1)).requires_grad_()
    reference.score_logit(attention, logits=logits).sum().backward()
    assert attention.grad.tolist() == [0, 1 if logits else 4, 0]


@given(
    scores=st.lists(st.integers(0, 2), max_size=7),
    corners=st.lists(st.lists(st.integers(0, 1), min_size=4, max_size=4), min_size=7, max_size=7),
)
def test_proposals_are_in_a_total_order(scores, corners):
    number = len(scores)
    before = reference.precedes(vector(*scores), torch.tensor(corners, dtype=torch.float64)[:number])
    assert not before.diagonal().any()
    others = ~torch.eye(number, dtype=torch.bool)
    assert (before ^ before.mT)[others].all()
    assert sorted(before.sum(-1).tolist()) == list(range(number))


def test_interpolation_is_straight_between_knots_and_goes_on_beyond_the_last():
    knots = vector(0, 1, 1, 4)
    got = reference.interpolate(vector(0, 0.5, 1, 1.5, 2.25, 3), knots)
    torch.testing.assert_close(got, vector(0, 0.5, 1, 1, 1.75, 4), **EXACT)


@given(score=unit_floats(), shift=st.floats(-3, 3))
def test_untrained_calibration_is_the_score_itself(score, shift):
    logit = reference.score_logit(vector(score), logits=False)
    got = reference.calibrated_score(logit, torch.zeros(1, 1), functions(shift=vector(shift).squeeze()))
    expected = torch.sigmoid(logit + shift)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("logit", [-14.0, -6.0, 0.0, 6.0, 14.0, 40.0])
def test_calibration_goes_from_zero_to_one_whatever_its_weights(logit):
    f = functions(calibration=random_presence_weights(seed=2).calibration)
    got = reference.calibrated_score(vector(logit), torch.zeros(1, 1), f).item()
    assert 0 <= got <= 1
    assert got == pytest.approx(1, abs=1e-3) if logit >= 14 else got < 1


def test_evidence_of_neighbours_moves_the_logit():
    evidence = torch.zeros(8, 9, dtype=torch.float64)
    evidence[-1] = 2.0  # from an overlap of 7/8 on
    f = functions(evidence=evidence)
    overlap = torch.tensor([[1.0, 1, 0.5], [1, 1, 15 / 16], [0.5, 15 / 16, 1]], dtype=torch.float64)
    told = reference.neighbour_evidence(vector(0.2, 0.5, 0.9), overlap, f)
    torch.testing.assert_close(told[~torch.eye(3).bool()], vector(2, 0, 2, 1, 0, 1), **EXACT)
    z = vector(0.0, 1, -1)
    got = reference.calibrated_score(z, told.masked_fill(torch.eye(3).bool(), 0), f)
    torch.testing.assert_close(got, torch.sigmoid(z + vector(2, 3, 1)), rtol=1e-9, atol=1e-9)


def test_evidence_is_by_the_score_of_the_one_who_tells():
    evidence = torch.arange(9, dtype=torch.float64).expand(8, 9)
    told = reference.neighbour_evidence(vector(0.25, 1), torch.ones(2, 2).double(), functions(evidence=evidence))
    torch.testing.assert_close(told, torch.tensor([[2.0, 8], [2, 8]]).double(), **EXACT)


def test_a_smooth_order_follows_the_difference_of_logits():
    f = functions(order=torch.ones(16).double(), step=vector(0).squeeze(), sharpness=vector(2).squeeze())
    got = reference.pair_order(vector(0, 1), torch.zeros(2, 2).bool(), f)
    expected = torch.tensor([[0.5, torch.sigmoid(vector(2))], [torch.sigmoid(vector(-2)), 0.5]]).double()
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)


def test_functions_are_used_in_the_roles_that_the_equations_give_them():
    """Change each weight in turn, and see which quantities move first."""
    logit, boxes = vector(1, 0.5, -0.3), random_boxes(3, seed=3)
    overlap = torch.full((3, 3), 0.4, dtype=torch.float64)
    before = reference.precedes(logit, boxes)
    trained = random_presence_weights(seed=4)
    plain = reference.presence_quantities(logit, overlap, before, None, PresenceFunctions.of(trained), 3)
    other = random_presence_weights(seed=5)
    moved = {}
    for name in PresenceWeights._fields:
        f = PresenceFunctions.of(trained._replace(**{name: getattr(other, name)}))
        got = reference.presence_quantities(logit, overlap, before, None, f, 3)
        moved[name] = {
            quantity
            for quantity in ("evidence", "calibrated", "suppression")
            if not torch.allclose(getattr(got, quantity), getattr(plain, quantity))
        }
        assert not torch.allclose(got.presence, plain.presence), name
    assert moved == {
        "slope": {"calibrated"},
        "shift": {"calibrated"},
        "calibration": {"calibrated"},
        "evidence": {"evidence", "calibrated"},
        "overlap": {"suppression"},
        "headroom": {"suppression"},
        "order": {"suppression"},
        "step": {"suppression"},
        "sharpness": {"suppression"},
    }
