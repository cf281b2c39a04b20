"""NaN that nobody looked for shows in the result wherever it shows in the reference's."""

import pytest
import torch

from tallybox import PresenceCounter, PresenceWeights, check_values
from tests.support.backends import FUSED, device_of
from tests.support.problems import random_boxes, random_presence_weights

OUTPUTS = ("forward", "presence", "distribution")
APART = torch.tensor([[0.0, 0.0, 1.0, 1.0], [2.0, 2.0, 3.0, 3.0], [4.0, 4.0, 5.0, 5.0], [6.0, 6.0, 7.0, 7.0]])
BOXES = {"overlapping": random_boxes(2, 4, seed=1).float(), "apart": APART.expand(2, 4, 4)}


def results(backend, attention, boxes, weights):
    """Return where each output is NaN, and whether any gradient holds NaN."""
    device = device_of(backend)
    layer = PresenceCounter(3, backend=backend).to(device)
    with torch.no_grad():
        for name, weight in weights._asdict().items():
            getattr(layer, name).copy_(weight)
    attention, boxes = (tensor.to(device).requires_grad_() for tensor in (attention, boxes.clone()))
    with check_values("never"):
        outputs = {name: getattr(layer, name)(attention, boxes) for name in OUTPUTS}
        gradients = torch.autograd.grad(outputs["forward"].sum(), (attention, boxes, *layer.parameters()))
    shown = {name: output.isnan().cpu() for name, output in outputs.items()}
    return shown, any(gradient.isnan().any() for gradient in gradients)


def assert_as_the_reference(fused, attention, boxes, weights):
    (got, in_gradients), (expected, _) = (
        results(backend, attention, boxes, weights) for backend in (fused, "reference")
    )
    assert all(torch.equal(got[name], expected[name]) for name in OUTPUTS)
    assert any(expected[name].any() for name in OUTPUTS)
    assert in_gradients


@pytest.mark.parametrize("fused", FUSED)
@pytest.mark.parametrize("boxes", BOXES)
@pytest.mark.parametrize("name", PresenceWeights._fields)
def test_a_weight_that_is_nan_shows_as_in_the_reference(fused, boxes, name):
    weights = random_presence_weights(1, seed=1)
    if name == "evidence":
        weights.evidence[:, 0] = torch.nan  # of all scores
    else:
        getattr(weights, name).view(-1)[-1] = torch.nan
    assert_as_the_reference(fused, torch.linspace(0.2, 0.9, 8).reshape(2, 4), BOXES[boxes], weights)


@pytest.mark.parametrize("fused", FUSED)
@pytest.mark.parametrize("corner", [None, 0, 1, 2, 3], ids=["attention", "x1", "y1", "x2", "y2"])
def test_a_proposal_that_holds_nan_shows_in_its_image_only(fused, corner):
    attention, boxes = torch.linspace(0.2, 0.9, 8).reshape(2, 4), BOXES["overlapping"].clone()
    if corner is None:
        attention[1, 2] = torch.nan
    else:
        boxes[1, 2, corner] = torch.nan
    weights = random_presence_weights(1, seed=1)
    assert_as_the_reference(fused, attention, boxes, weights)
    shown, _ = results(fused, attention, boxes, weights)
    assert shown["forward"].any(-1).tolist() == [False, True]
