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


def draw(images: int, number: int, seed: int, *, max_objects: int = 4, **chosen) -> tuple:
    """Draw scores, boxes and weights, without a mask, unless they are chosen."""
    drawn = {
        "attention": grid(images, number, seed=seed),
        "boxes": shifted_boxes(images, number, seed=seed),
        "weights": trained(seed),
        "mask": None,
    }
    return *(drawn | chosen).values(), max_objects


def draw_away_from_certainty(*shape: int, seed: int, weights: PresenceWeights, mask=None, max_objects=4) -> tuple:
    """Draw scores between 1/8 and 7/8."""
    return 0.125 + 0.75 * grid(*shape, seed=seed), random_boxes(*shape, seed=seed), weights, mask, max_objects


def some(*shape: int, seed: int) -> Tensor:
    return grid(*shape, seed=seed, parts=1).bool()


EQUAL = torch.full((2, 5), 0.75, dtype=torch.float64)

CASES = {
    "one box": lambda: draw(1, 1, 1, attention=EQUAL[:1, :1], max_objects=3),
    "equal scores": lambda: draw(2, 5, 2, attention=EQUAL),
    "scores of a half": lambda: draw(2, 5, 3, attention=0 * EQUAL + 0.5),
    "ties of some": lambda: draw(2, 6, 4, attention=grid(2, 6, seed=4, parts=4)),
    "scores of zero and one": lambda: draw(2, 6, 5, attention=grid(2, 6, seed=5, parts=1)),
    # Boxes that touch share nothing yet, but would if they moved: the reference takes the slope from that side.
    "boxes that touch": lambda: draw(3, 6, 25, boxes=square_boxes(3, 6, seed=25)),
    "identical boxes": lambda: draw(2, 5, 6, boxes=same_place(2, 5)),
    "identical proposals": lambda: draw(2, 5, 7, attention=EQUAL, boxes=same_place(2, 5)),
    "boxes without area": lambda: draw(2, 4, 8, boxes=grid(2, 4, 2, seed=8, parts=2).repeat(1, 1, 2)),
    "identical or apart": lambda: draw(2, 6, 9, boxes=separate_boxes(2, 6, seed=9)),
    "steps": lambda: draw(2, 6, 11, attention=grid(2, 6, seed=11, parts=8), weights=steps(11)),
    "steps, identical boxes": lambda: draw(
        2, 6, 12, attention=grid(2, 6, seed=12, parts=8), boxes=same_place(2, 6), weights=steps(12)
    ),
    "untrained, clear": lambda: draw(
        2, 6, 13, attention=grid(2, 6, seed=13, parts=1), boxes=same_place(2, 6), weights=UNTRAINED
    ),
    "a mask": lambda: draw(2, 6, 14, mask=some(2, 6, seed=15)),
    "a mask with nothing left": lambda: draw(2, 4, 16, mask=torch.zeros(2, 4, dtype=torch.bool)),
    "more boxes than a lane, few segments": lambda: draw_away_from_certainty(
        1, 35, seed=17, weights=trained(17, segments=3), mask=some(1, 35, seed=18), max_objects=10
    ),
    "one object at most, one segment": lambda: draw(
        2, 9, 19, boxes=random_boxes(2, 9, seed=19), weights=trained(19, segments=1), max_objects=1
    ),
    "more objects than boxes": lambda: draw(2, 3, 20, boxes=random_boxes(2, 3, seed=20), max_objects=40),
    "two counters with three images each": lambda: draw_away_from_certainty(
        2, 3, 7, seed=21, weights=random_presence_weights(2, 1, seed=21), mask=some(2, 3, 7, seed=22)
    ),
    "images first, then counters": lambda: draw_away_from_certainty(
        3, 1, 5, seed=23, weights=random_presence_weights(2, seed=23)
    ),
    "one image, many counters": lambda: draw_away_from_certainty(
        5, seed=24, weights=random_presence_weights(5, seed=24)
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
    proposals = checked_proposals(inputs[0], inputs[1], mask, weight_leading=weights.slope.shape, logits=False)
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
