import pytest
import torch

from tallybox import PresenceCounter
from tests.support.problems import Problem, inputs_of, output_of, random_problem, untrained
from tests.support.tolerances import TOLERANCES

UNTRAINED = untrained(PresenceCounter)


def problem_of(attention, boxes, **settings) -> Problem:
    return Problem(
        torch.tensor(attention, dtype=torch.float64), torch.tensor(boxes, dtype=torch.float64), UNTRAINED, **settings
    )


def random_presence_problem(*leading, **settings) -> Problem:
    return random_problem(*leading, layer=PresenceCounter, **settings)


def test_of_two_overlapping_boxes_the_second_loses_what_it_shares_with_the_first(backend, dtype):
    """IoU 1/2: p₁ = a₁, p₂ = a₂ (1 - a₁ / 2)."""
    problem = problem_of([0.5, 0.75], [[0, 0, 1, 1], [0, 0, 2, 1]], max_objects=2)
    atol = TOLERANCES[backend, dtype].atol
    first, second = 0.75, 0.5 * (1 - 0.75 / 2)
    assert output_of(problem, "presence", backend, dtype).tolist() == [pytest.approx([second, first], abs=atol)]
    none, both = (1 - first) * (1 - second), first * second
    assert output_of(problem, "distribution", backend, dtype).tolist() == [
        pytest.approx([none, 1 - none - both, both], abs=atol)
    ]
    assert output_of(problem, "count", backend, dtype).item() == pytest.approx(first + second, abs=atol)


def test_a_chain_of_three_boxes_worked_out_by_hand(backend, dtype):
    """Scores 0.8 > 0.6 > 0.4; the first overlaps the second by 1/3, the second the third by 1/3.

    Round 1, from the scores: p = (0.8, 0.6 (1 - 0.8/3), 0.4 (1 - 0.6/3)) = (0.8, 0.44, 0.32).
    Round 2: the third is told of the second as it stands after round 1: 0.4 (1 - 0.44/3).
    """
    problem = problem_of([0.4, 0.8, 0.6], [[2, 0, 4, 1], [0, 0, 2, 1], [1, 0, 3, 1]])
    got = output_of(problem, "presence", backend, dtype)[0].tolist()
    assert got == pytest.approx([0.4 * (1 - 0.44 / 3), 0.8, 0.44], abs=TOLERANCES[backend, dtype].atol)


def test_three_boxes_that_all_overlap_multiply_what_each_leaves(backend, dtype):
    """Concentric: IoU 1/2, 1/4 and 1/2; p₂ = 0.5 (1 - 0.8/2) = 0.3 in both rounds, and then p₃ from p₁ and p₂."""
    problem = problem_of([0.8, 0.5, 0.4], [[0, 0, 4, 1], [0, 0, 2, 1], [0, 0, 1, 1]])
    got = output_of(problem, "presence", backend, dtype)[0].tolist()
    expected = [0.8, 0.3, 0.4 * (1 - 0.8 / 4) * (1 - 0.3 / 2)]
    assert got == pytest.approx(expected, abs=TOLERANCES[backend, dtype].atol)


@pytest.mark.parametrize(
    ("boxes", "first"),
    [
        ([[1, 0, 3, 1], [0, 0, 2, 1]], 1),
        ([[0, 1, 1, 3], [0, 0, 1, 2]], 1),
        ([[0, 0, 3, 1], [0, 0, 2, 1]], 1),
        ([[0, 0, 1, 3], [0, 0, 1, 2]], 1),
        ([[0, 1, 2, 2], [1, 0, 3, 2]], 0),
    ],
    ids=["x1", "y1", "x2", "y2", "x1 before y1"],
)
def test_equal_scores_are_ordered_by_corners(backend, boxes, first):
    presence = output_of(problem_of([0.5, 0.5], boxes), "presence", backend, torch.float32)[0]
    assert presence[first].item() == pytest.approx(0.5, abs=1e-6)
    assert presence[1 - first] < 0.5


def test_more_objects_than_max_objects_are_counted_and_end_in_the_last_entry(backend, dtype):
    corner = 2 * torch.arange(8.0, dtype=torch.float64)[:, None].expand(8, 2)
    problem = Problem(torch.ones(8), torch.cat((corner, corner + 1), -1), UNTRAINED, max_objects=5)
    assert output_of(problem, "count", backend, dtype).item() == pytest.approx(8, abs=1e-4)
    distribution = output_of(problem, "distribution", backend, dtype)[0].tolist()
    assert distribution == pytest.approx([0, 0, 0, 0, 0, 1], abs=1e-5)


def test_a_new_layer_has_the_weights_that_the_function_takes():
    layer = PresenceCounter(heads=3, segments=7)
    assert {name: list(value.shape) for name, value in layer.state_dict().items()} == {
        "slope": [3],
        "shift": [3],
        "calibration": [3, 7],
        "evidence": [3, 8, 9],
        "overlap": [3, 8, 9],
        "headroom": [3],
        "order": [3, 7],
        "step": [3],
        "sharpness": [3],
    }
    assert layer.weights._asdict() == dict(layer.named_parameters())


def test_inputs_are_not_changed(backend):
    problem = random_presence_problem(2, proposals=5, masked=True, seed=16)
    attention, boxes, mask = inputs_of(problem, backend, torch.float32)
    before = attention.detach().clone(), boxes.detach().clone(), mask.clone()
    layer = PresenceCounter(3, backend=backend).to(attention.device)
    layer(attention, boxes, mask).sum().backward()
    assert all(torch.equal(value, kept) for value, kept in zip((attention, boxes, mask), before, strict=True))
