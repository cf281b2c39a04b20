"""NaN that nobody looked for shows in the result wherever it shows in the reference's."""

import pytest
import torch

from tallybox import Counter, check_values
from tests.support.backends import FUSED, device_of
from tests.support.problems import square_boxes

# Triton's interpreter takes maxima in numpy, which warns of NaN.
pytestmark = [
    pytest.mark.filterwarnings("ignore:All-NaN slice"),
    pytest.mark.filterwarnings("ignore:invalid value"),
]

ROLES = [f"f{k}" for k in range(1, 9)]


def results(backend, attention, boxes, weight):
    """Compute count, features, and whether any gradient holds NaN."""
    device = device_of(backend)
    counter = Counter(4, segments=weight.shape[-1], backend=backend).to(device)
    with torch.no_grad():
        counter.weight.copy_(weight)
    attention, boxes = (t.to(device).requires_grad_() for t in (attention, boxes))
    with check_values("never"):
        count, features = counter.count(attention, boxes), counter(attention, boxes)
        gradients = torch.autograd.grad(features.sum(), (attention, boxes, counter.weight))
    return count.isnan().cpu(), features.isnan().cpu(), [gradient.isnan().any().item() for gradient in gradients]


def assert_as_the_reference(fused, attention, boxes, weight):
    got, expected = (results(backend, attention, boxes, weight) for backend in (fused, "reference"))
    assert torch.equal(got[0], expected[0])
    assert torch.equal(got[1], expected[1])
    assert any(got[2])
    assert any(expected[2])


@pytest.mark.parametrize("fused", FUSED)
@pytest.mark.parametrize("segments", [1, 16])
@pytest.mark.parametrize("proposals", [1, 4])
@pytest.mark.parametrize("role", range(8), ids=ROLES)
def test_an_activation_that_holds_nan_shows_as_in_the_reference(fused, role, proposals, segments):
    weight = torch.rand(8, segments) + 0.5
    weight[role, segments // 2] = torch.nan
    attention, boxes = torch.full((2, proposals), 0.75), square_boxes(2, proposals, seed=1).float()
    assert_as_the_reference(fused, attention, boxes, weight)


@pytest.mark.parametrize("fused", FUSED)
@pytest.mark.parametrize("corner", [None, 0, 1, 2, 3], ids=["attention", "x1", "y1", "x2", "y2"])
def test_a_proposal_that_holds_nan_shows_in_its_image_only(fused, corner):
    attention, boxes = torch.full((2, 4), 0.75), square_boxes(2, 4, seed=1).float()
    if corner is None:
        attention[1, 2] = torch.nan
    else:
        boxes[1, 2, corner] = torch.nan
    assert_as_the_reference(fused, attention, boxes, torch.rand(8, 16) + 0.5)
    count, features, _ = results(fused, attention, boxes, torch.rand(8, 16) + 0.5)
    assert count.tolist() == [False, True]
    assert features.all(-1).tolist() == [False, True]
