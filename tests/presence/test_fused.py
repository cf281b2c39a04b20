"""The fused backends against the float64 reference, where kernels go wrong: ties, zeros, knots, odd sizes.

Inputs are multiples of powers of two, so that values that lie on a knot do so in every precision.
"""

import pytest
import torch
from torch import Tensor

from tallybox import PresenceCounter, PresenceWeights
from tallybox.kernels.proposals import checked_proposals
from tallybox.presence.functional import presence_results
from tests.support.backends import FUSED, device_of
from tests.support.problems import (
    assert_same_in_scale,
    grid,
    random_boxes,
    random_presence_weights,
    square_boxes,
    untrained,
)
from tests.support.tolerances import tolerance

UNTRAINED = PresenceWeights(*(weight[0] for weight in untrained(PresenceCounter)))


def trained(seed: int, segments: int = 16) -> PresenceWeights:
    return random_presence_weights(segments=segments, seed=seed)


def steps(seed: int) -> PresenceWeights:
    """Functions that are 0 first and 1 early, so that presences and factors are exactly 0 and 1."""
    weights = trained(seed)
    calibration, overlap = torch.zeros(16).double(), torch.zeros(8, 9).double()
    calibration[8], overlap[3, 0] = 1, 1
    zero = torch.zeros(()).double()
    return weights._replace(
        slope=zero + 1, shift=zero, calibration=calibration, overlap=overlap, headroom=zero, evidence=0 * overlap
    )


def shifted_boxes(*shape: int, seed: int) -> Tensor:
    """Boxes of side 1/2 on a grid of 1/8: they overlap by many different shares, some equal, none touching."""
    corner = grid(*shape, 2, seed=seed, parts=3) * 3 / 8
    return torch.cat((corner, corner + 0.5), dim=-1)


def separate_boxes(*shape: int, seed: int) -> Tensor:
    """Unit squares two apart: any two are identical or share nothing."""
    corner = 8 * grid(*shape, 2, seed=seed, parts=4)
    return torch.cat((corner, corner + 1), dim=-1)


def same_place(*shape: int) -> Tensor:
    return torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=torch.float64).expand(*shape, 4)


CASES = {
    "one box": lambda: (torch.tensor([[0.75]]).double(), shifted_boxes(1, 1, seed=1), trained(1), None, 3),
    "equal scores": lambda: (torch.full((2, 5), 0.75).double(), shifted_boxes(2, 5, seed=2), trained(2), None, 4),
    "scores of a half": lambda: (torch.full((2, 5), 0.5).double(), shifted_boxes(2, 5, seed=3), trained(3), None, 4),
    "ties of some": lambda: (grid(2, 6, seed=4, parts=4), shifted_boxes(2, 6, seed=4), trained(4), None, 4),
    "scores of zero and one": lambda: (grid(2, 6, seed=5, parts=1), shifted_boxes(2, 6, seed=5), trained(5), None, 4),
    # Boxes that touch share nothing yet, but would if they moved: the reference takes the slope from that side.
    "boxes that touch": lambda: (grid(3, 6, seed=25), square_boxes(3, 6, seed=25), trained(25), None, 4),
    "identical boxes": lambda: (grid(2, 5, seed=6), same_place(2, 5), trained(6), None, 4),
    "identical proposals": lambda: (torch.full((2, 5), 0.75).double(), same_place(2, 5), trained(7), None, 4),
    "boxes without area": lambda: (
        grid(2, 4, seed=8),
        grid(2, 4, 2, seed=8, parts=2).repeat(1, 1, 2),
        trained(8),
        None,
        4,
    ),
    "identical or apart": lambda: (grid(2, 6, seed=9), separate_boxes(2, 6, seed=9), trained(9), None, 4),
    "steps": lambda: (grid(2, 6, seed=11, parts=8), shifted_boxes(2, 6, seed=11), steps(11), None, 4),
    "steps, identical boxes": lambda: (grid(2, 6, seed=12, parts=8), same_place(2, 6), steps(12), None, 4),
    "untrained, clear": lambda: (grid(2, 6, seed=13, parts=1), same_place(2, 6), UNTRAINED, None, 4),
    "a mask": lambda: (
        grid(2, 6, seed=14),
        shifted_boxes(2, 6, seed=14),
        trained(14),
        grid(2, 6, seed=15, parts=1).bool(),
        4,
    ),
    "a mask with nothing left": lambda: (
        grid(2, 4, seed=16),
        shifted_boxes(2, 4, seed=16),
        trained(16),
        torch.zeros(2, 4).bool(),
        4,
    ),
    "more boxes than a lane, few segments": lambda: (
        0.125 + 0.75 * grid(1, 35, seed=17),
        random_boxes(1, 35, seed=17),
        trained(17, segments=3),
        grid(1, 35, seed=18, parts=1).bool(),
        10,
    ),
    "one object at most, one segment": lambda: (
        grid(2, 9, seed=19),
        random_boxes(2, 9, seed=19),
        trained(19, segments=1),
        None,
        1,
    ),
    "more objects than boxes": lambda: (grid(2, 3, seed=20), random_boxes(2, 3, seed=20), trained(20), None, 40),
    "two counters with three images each": lambda: (
        0.125 + 0.75 * grid(2, 3, 7, seed=21),
        random_boxes(2, 3, 7, seed=21),
        random_presence_weights(2, 1, seed=21),
        grid(2, 3, 7, seed=22, parts=1).bool(),
        4,
    ),
    "images first, then counters": lambda: (
        0.125 + 0.75 * grid(3, 1, 5, seed=23),
        random_boxes(3, 1, 5, seed=23),
        random_presence_weights(2, seed=23),
        None,
        4,
    ),
    "one image, many counters": lambda: (
        0.125 + 0.75 * grid(5, seed=24),
        random_boxes(5, seed=24),
        random_presence_weights(5, seed=24),
        None,
        4,
    ),
}


# In single precision 1 - p is known to 6e-8 only, and a logarithm near its floor of 1e-6 blows that up: features are
# compared in double precision, or where no probability is that small.
PROBABILITIES = ("presence", "distribution")
ALL_RESULTS = ("features", *PROBABILITIES)


def results(
    backend: str, dtype: torch.dtype, case: tuple, chosen: tuple[str, ...] = PROBABILITIES
) -> dict[str, Tensor]:
    """Compute the chosen results, and the gradient of a fixed mixture of them with respect to each input."""
    device = device_of(backend)
    attention, boxes, weights, mask, max_objects = case
    inputs = [value.to(device, dtype, copy=True).contiguous() for value in (attention, boxes, *weights)]
    inputs = [value.requires_grad_() for value in inputs]
    mask = None if mask is None else mask.to(device)
    proposals = checked_proposals(inputs[0], inputs[1], mask, weight_leading=weights.leading, logits=False)
    every = presence_results(
        proposals, PresenceWeights(*inputs[2:]), max_objects=max_objects, logits=False, backend=backend
    )._asdict()
    found = {name: every[name] for name in chosen}
    mixture = sum((value * torch.linspace(-1, 2, value.shape[-1]).to(value)).sum() for value in found.values())
    gradients = torch.autograd.grad(mixture, inputs)
    names = [f"grad_{name}" for name in ("attention", "boxes", *PresenceWeights._fields)]
    found |= dict(zip(names, gradients, strict=True))
    return {name: value.detach().cpu().double() for name, value in found.items()}


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("case", CASES)
def test_features_and_their_gradients_are_the_references_in_double_precision(case):
    drawn = CASES[case]()
    ours = results("cpu", torch.float64, drawn, ALL_RESULTS)
    expected = results("reference", torch.float64, drawn, ALL_RESULTS)
    assert_same_in_scale(ours, expected, tolerance("cpu", torch.float64, PresenceCounter))


@pytest.mark.parametrize("fused", FUSED)
def test_features_and_their_gradients_are_the_references_away_from_certainty(fused):
    drawn = CASES["one image, many counters"]()
    ours = results(fused, torch.float32, drawn, ALL_RESULTS)
    expected = results("reference", torch.float64, drawn, ALL_RESULTS)
    assert_same_in_scale(ours, expected, tolerance(fused, torch.float32, PresenceCounter))


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("fused", FUSED)
@pytest.mark.parametrize("case", CASES)
def test_outputs_and_every_gradient_are_the_references(fused, case):
    drawn = CASES[case]()
    ours = results(fused, torch.float32, drawn)
    expected = results("reference", torch.float64, drawn)
    assert_same_in_scale(ours, expected, tolerance(fused, torch.float32, PresenceCounter))


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("case", ["two counters with three images each", "more objects than boxes", "a mask"])
@pytest.mark.parametrize("fused", ["triton"])
def test_a_group_of_small_images_is_counted_as_each_of_them_alone(monkeypatch, case, fused):
    launch = pytest.importorskip("tallybox.presence.cuda.launch", reason="needs triton")
    alone = results(fused, torch.float32, CASES[case](), ALL_RESULTS)
    monkeypatch.setattr(launch, "MIN_IMAGES_FOR_GROUPS", 2)
    together = results(fused, torch.float32, CASES[case](), ALL_RESULTS)
    assert_same_in_scale(together, alone, tolerance(fused, torch.float32, PresenceCounter))
