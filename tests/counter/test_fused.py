"""The fused backends against the float64 reference, where kernels go wrong: ties, zeros, knots, odd sizes.

Inputs are multiples of powers of two, so that values that lie on a knot do so in every precision.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tallybox.counter.functional import count_and_features, count_features
from tallybox.counter.proposals import prepare_proposals
from tests.support.backends import FUSED, device_of
from tests.support.problems import assert_same_in_scale, grid, square_boxes
from tests.support.tolerances import tolerance


def smooth_weight(seed: int) -> Tensor:
    return torch.rand(8, 16, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.05


def flat_ended_weight(seed: int) -> Tensor:
    """Activations that are 0 on their first segments, so that products have factors of exactly 0."""
    weight = smooth_weight(seed)
    weight[:, :6] = 0
    return weight


CASES = {
    "one box": lambda: (torch.tensor([[0.75]]).double(), square_boxes(1, 1, seed=1), smooth_weight(1), None),
    "equal weights": lambda: (torch.full((2, 5), 0.75).double(), square_boxes(2, 5, seed=2), smooth_weight(2), None),
    "weights on knots, boxes that touch": lambda: (
        grid(3, 6, seed=3),
        square_boxes(3, 6, seed=3),
        smooth_weight(3),
        None,
    ),
    "zero and full weights": lambda: (grid(3, 6, seed=4, parts=1), square_boxes(3, 6, seed=4), smooth_weight(4), None),
    "identical boxes": lambda: (
        grid(2, 5, seed=5),
        torch.tensor([0.0, 0.0, 1.0, 1.0]).double().expand(2, 5, 4),
        smooth_weight(5),
        None,
    ),
    "boxes without area": lambda: (
        grid(2, 4, seed=6),
        grid(2, 4, 2, seed=6, parts=2).repeat(1, 1, 2),
        smooth_weight(6),
        None,
    ),
    "factors of zero": lambda: (grid(3, 6, seed=7), square_boxes(3, 6, seed=7), flat_ended_weight(7), None),
    "untrained, clear": lambda: (
        grid(3, 6, seed=8, parts=1),
        square_boxes(3, 6, seed=8),
        torch.ones(8, 16).double(),
        None,
    ),
    "a mask": lambda: (
        grid(3, 6, seed=9),
        square_boxes(3, 6, seed=9),
        smooth_weight(9),
        grid(3, 6, seed=10, parts=1).bool(),
    ),
    "a mask with nothing left": lambda: (
        grid(2, 4, seed=11),
        square_boxes(2, 4, seed=11),
        smooth_weight(11),
        torch.zeros(2, 4).bool(),
    ),
    "more boxes than a lane": lambda: (
        grid(2, 19, seed=12),
        square_boxes(2, 19, seed=12),
        smooth_weight(12),
        grid(2, 19, seed=13, parts=1).bool(),
    ),
}


def results(backend: str, dtype: torch.dtype, case: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """Compute count, features and the gradient of a fixed mixture of both with respect to each input."""
    device = device_of(backend)
    attention, boxes, weight, mask = case
    inputs = [t.to(device, dtype, copy=True).requires_grad_() for t in (attention, boxes.contiguous(), weight)]
    proposals = prepare_proposals(
        inputs[0], inputs[1], None if mask is None else mask.to(device), max_objects=32, logits=False
    )
    count, features = count_and_features(proposals, inputs[2], max_objects=32, backend=backend)
    mixture = torch.linspace(-1, 1, 33, dtype=dtype, device=device)
    gradients = torch.autograd.grad((features * mixture).sum() + 0.1 * count.sum(), inputs)
    named = zip(("grad_attention", "grad_boxes", "grad_weight"), gradients, strict=True)
    found = {"count": count.detach(), "features": features.detach(), **dict(named)}
    return {name: value.cpu().double() for name, value in found.items()}


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("fused", FUSED)
@pytest.mark.parametrize("case", CASES)
def test_outputs_and_every_gradient_are_the_references(fused, case):
    drawn = CASES[case]()
    ours = results(fused, torch.float32, drawn)
    expected = results("reference", torch.float64, drawn)
    assert_same_in_scale(ours, expected, tolerance(fused, torch.float32))


@pytest.mark.parametrize("fused", FUSED)
def test_the_same_input_gives_the_same_bits(fused):
    case = CASES["weights on knots, boxes that touch"]()
    first, second = (results(fused, torch.float32, case) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("fused", FUSED)
def test_fused_backends_give_no_second_derivative_rather_than_a_wrong_one(fused):
    attention, boxes, weight, _ = CASES["equal weights"]()
    attention = attention.float().to(device_of(fused)).requires_grad_()
    boxes, weight = boxes.float().to(device_of(fused)), weight.float().to(device_of(fused))
    features = count_features(attention, boxes, weight, backend=fused)
    (gradient,) = torch.autograd.grad(features[:, 3].sum(), attention, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        gradient.sum().backward()
