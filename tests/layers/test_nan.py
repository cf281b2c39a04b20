"""NaN that nobody looked for shows in the result wherever it shows in the reference's."""

import pytest
import torch

from tallybox import Counter, PresenceWeights, check_values
from tests.support.backends import FUSED
from tests.support.problems import (
    OUTPUTS,
    Problem,
    build_counter,
    inputs_of,
    random_boxes,
    random_presence_weights,
    random_weight,
    square_boxes,
)

# Triton's interpreter takes maxima in numpy, which warns of NaN.
pytestmark = [
    pytest.mark.filterwarnings("ignore:All-NaN slice"),
    pytest.mark.filterwarnings("ignore:invalid value"),
]

APART = torch.tensor([[0.0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 5, 5], [6, 6, 7, 7]], dtype=torch.float64).expand(2, 4, 4)
BOXES = {"overlapping": random_boxes(2, 4, seed=1), "apart": APART}
SCORES = torch.linspace(0.2, 0.9, 8, dtype=torch.float64).reshape(2, 4)


def nan_of(problem: Problem, backend: str) -> tuple[dict[str, torch.Tensor], bool]:
    """Return where each output is NaN, and whether any gradient holds NaN."""
    counter = build_counter(problem, backend, torch.float32)
    attention, boxes, _ = inputs_of(problem, backend, torch.float32)
    with check_values("never"):
        outputs = {name: getattr(counter, name)(attention, boxes) for name in (*OUTPUTS[problem.layer], "forward")}
        gradients = torch.autograd.grad(outputs["forward"].sum(), (attention, boxes, *counter.parameters()))
    shown = {name: output.isnan().cpu() for name, output in outputs.items()}
    return shown, any(gradient.isnan().any().item() for gradient in gradients)


def assert_as_the_reference(problem: Problem, fused: str) -> dict[str, torch.Tensor]:
    (got, in_gradients), (expected, in_references) = (nan_of(problem, backend) for backend in (fused, "reference"))
    assert all(torch.equal(got[name], expected[name]) for name in expected)
    assert in_gradients
    assert in_references
    return got


@pytest.mark.parametrize("fused", FUSED)
@pytest.mark.parametrize("segments", [1, 16])
@pytest.mark.parametrize("proposals", [1, 4])
@pytest.mark.parametrize("role", range(8), ids=[f"f{k}" for k in range(1, 9)])
def test_an_activation_that_holds_nan_shows_as_in_the_reference(fused, role, proposals, segments):
    weight = random_weight(1, 8, segments, seed=1).abs() + 0.1
    weight[0, role, segments // 2] = torch.nan
    scores = torch.full((2, proposals), 0.75, dtype=torch.float64)
    assert_as_the_reference(Problem(scores, square_boxes(2, proposals, seed=1), weight, max_objects=4), fused)


@pytest.mark.parametrize("fused", FUSED)
@pytest.mark.parametrize("boxes", BOXES)
@pytest.mark.parametrize("name", PresenceWeights._fields)
def test_a_weight_of_presence_counting_that_is_nan_shows_as_in_the_reference(fused, boxes, name):
    weights = random_presence_weights(1, seed=1)
    if name == "evidence":
        weights.evidence[:, 0] = torch.nan  # of all scores
    else:
        getattr(weights, name).view(-1)[-1] = torch.nan
    shown = assert_as_the_reference(Problem(SCORES, BOXES[boxes], weights, max_objects=3), fused)
    assert any(output.any() for output in shown.values())


@pytest.mark.parametrize("fused", FUSED)
@pytest.mark.parametrize("corner", [None, 0, 1, 2, 3], ids=["attention", "x1", "y1", "x2", "y2"])
def test_a_proposal_that_holds_nan_shows_in_its_image_only(layer, fused, corner):
    attention, boxes = SCORES.clone(), BOXES["overlapping"].clone()
    if corner is None:
        attention[1, 2] = torch.nan
    else:
        boxes[1, 2, corner] = torch.nan
    weight = random_weight(1, 8, 16, seed=1) if layer is Counter else random_presence_weights(1, seed=1)
    shown = assert_as_the_reference(Problem(attention, boxes, weight, max_objects=4), fused)
    assert shown["forward"].any(-1).tolist() == [False, True]
    if layer is Counter:
        assert shown["count"].tolist() == [False, True]
        assert shown["forward"].all(-1).tolist() == [False, True]
