"""The paper's claims about the count, for any activations unless said otherwise."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.problems import Problem, build_counter, count_of, features_of, inputs_of
from tests.support.strategies import (
    Scene,
    activation_weights,
    box_sets,
    problems,
    scenes,
    single_boxes,
    smooth_weights,
    unit_floats,
)
from tests.support.tolerances import tolerance

MOST_PROPOSALS = 24  # of `scenes`: 6 objects with 4 copies each


def as_problem(scene: Scene, weight: torch.Tensor, max_objects: int = MOST_PROPOSALS) -> Problem:
    return Problem(scene.attention, scene.boxes, weight, max_objects)


@given(scene=scenes(most_copies=1), weight=activation_weights(1, 8, 16))
def test_disjoint_full_weight_boxes_count_exactly(backend, dtype, scene, weight):
    count = count_of(as_problem(scene, weight), backend, dtype)
    assert count.item() == (scene.objects or pytest.approx(1e-10))


@given(scene=scenes(), weight=activation_weights(1, 8, 16))
def test_any_number_of_exact_copies_changes_nothing(backend, dtype, scene, weight):
    count = count_of(as_problem(scene, weight), backend, dtype)
    assert count.item() == pytest.approx(scene.objects, abs=tolerance(backend, dtype).atol)


@given(scene=scenes(), zeros=box_sets(), weight=activation_weights(1, 8, 16), shuffle=st.randoms(use_true_random=False))
def test_zero_weight_boxes_change_nothing_in_the_count(backend, dtype, scene, zeros, weight, shuffle):
    order = list(range(len(scene.boxes) + len(zeros)))
    shuffle.shuffle(order)
    more = Problem(
        torch.cat((scene.attention, torch.zeros(len(zeros), dtype=torch.float64)))[order],
        torch.cat((scene.boxes, zeros))[order],
        weight,
        MOST_PROPOSALS,
    )
    count = count_of(more, backend, dtype)
    assert count.item() == pytest.approx(scene.objects, abs=tolerance(backend, dtype).atol)


@given(boxes=box_sets(), zeros=box_sets(), weight=smooth_weights(1, 8, 16))
def test_zero_weight_boxes_change_nothing_even_among_partly_overlapping_full_weight_boxes(
    backend, dtype, boxes, zeros, weight
):
    ones = torch.ones(len(boxes), dtype=torch.float64)
    without = count_of(Problem(ones, boxes, weight, 16), backend, dtype)
    attention = torch.cat((ones, torch.zeros(len(zeros), dtype=torch.float64)))
    count = count_of(Problem(attention, torch.cat((boxes, zeros)), weight, 16), backend, dtype)
    torch.testing.assert_close(count, without, **tolerance(backend, dtype)._asdict())


@given(problem=problems(minimum=0, maximum=10))
def test_features_sum_to_the_confidence_and_hold_the_count(backend, dtype, problem):
    features, count = features_of(problem, backend, dtype), count_of(problem, backend, dtype)
    trace = build_counter(problem, backend, dtype).explain(*inputs_of(problem, backend, dtype))
    confidence = trace.confidence.detach().to("cpu", torch.float64)
    allowed = tolerance(backend, dtype)._asdict()
    torch.testing.assert_close(features.sum(), confidence, **allowed)
    held = (features * torch.arange(problem.max_objects + 1)).sum()
    torch.testing.assert_close(held, confidence * count, **allowed)


@given(problem=problems(minimum=0, maximum=10))
def test_count_and_confidence_stay_in_range(backend, dtype, problem):
    count, features = count_of(problem, backend, dtype), features_of(problem, backend, dtype)
    slack = tolerance(backend, dtype).atol
    assert 0 <= count <= min(len(problem.attention), problem.max_objects) + slack
    assert (features >= 0).all()
    assert features.sum() <= 1 + slack


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@given(problem=problems(maximum=12))
def test_a_proposal_has_no_distance_from_itself_whatever_its_area(dtype, problem):
    trace = build_counter(problem, "reference", dtype).explain(*inputs_of(problem, "reference", dtype))
    assert (trace.distance.diagonal(dim1=-2, dim2=-1) == 0).all()
    assert (trace.deduplicated.diagonal(dim1=-2, dim2=-1) == 0).all()


def test_a_larger_weight_can_lower_the_count(backend, dtype):
    """The paper says it never does. One object seen twice, the second time at half weight.

    Nothing else overlaps it, so X = 0 and Sim = 1 - |1 - 1/2| = 1/2; s = 1 / (1 + 1/2) = 2/3 for both,
    and |E| = 2/3 (1 + 1/4) = 5/6: the half-believed copy counts for a third of a proposal, but brings
    a quarter of a self-loop only.
    """
    boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0]] * 2, dtype=torch.float64)
    counts = [
        count_of(Problem(torch.tensor([1.0, copy]), boxes, torch.ones(1, 8, 16)), backend, dtype).item()
        for copy in (0.0, 0.5, 1.0)
    ]
    assert counts == pytest.approx([1, (5 / 6) ** 0.5, 1], abs=tolerance(backend, dtype).atol)


@given(weights=st.lists(unit_floats(), min_size=2, max_size=2), box=single_boxes(), weight=activation_weights(1, 8, 16))
def test_a_larger_weight_never_lowers_the_count_of_a_single_proposal(backend, dtype, weights, box, weight):
    boxes = torch.tensor([box], dtype=torch.float64)
    lower, higher = (
        count_of(Problem(torch.tensor([a], dtype=torch.float64), boxes, weight), backend, dtype)
        for a in sorted(weights)
    )
    assert higher >= lower - tolerance(backend, dtype).atol


@given(scene=scenes(), off=st.sets(st.integers(0, MOST_PROPOSALS - 1)), weight=activation_weights(1, 8, 16))
def test_turning_a_proposal_on_never_lowers_the_count_of_a_clear_scene(backend, dtype, scene, off, weight):
    """Weights 0 or 1, boxes disjoint or identical: the count is the number of objects turned on."""
    kept = torch.tensor([i not in off for i in range(len(scene.boxes))], dtype=torch.bool)
    partly_on = as_problem(scene._replace(attention=kept.double()), weight)
    objects = len(scene.owners[kept].unique())
    count = count_of(partly_on, backend, dtype)
    assert count.item() == pytest.approx(objects, abs=tolerance(backend, dtype).atol)
    assert count <= count_of(as_problem(scene, weight), backend, dtype) + tolerance(backend, dtype).atol


@given(boxes=box_sets(), common=st.lists(unit_floats(), min_size=2, max_size=2), weight=activation_weights(1, 8, 16))
def test_raising_one_weight_that_all_proposals_share_never_lowers_the_count(backend, dtype, boxes, common, weight):
    """Equal weights: rows of X differ more, so proposals are less alike, and every edge is heavier."""
    lower, higher = (
        count_of(Problem(torch.full((len(boxes),), a, dtype=torch.float64), boxes, weight, 8), backend, dtype)
        for a in sorted(common)
    )
    assert higher >= lower - tolerance(backend, dtype).atol


@given(problem=problems(), factor=unit_floats())
def test_untrained_a_common_factor_above_one_never_lowers_the_count(backend, dtype, problem, factor):
    """With f4 a straight line, differences between weights and between rows of X grow with the factor."""
    higher = replace(problem, weight=torch.ones(1, 8, 16))
    lower = replace(higher, attention=problem.attention * factor)
    fewer, more = (count_of(p, backend, dtype) for p in (lower, higher))
    assert more >= fewer - tolerance(backend, dtype).atol


@given(problem=problems(), raised=st.integers(0, 7), to=unit_floats())
def test_a_larger_weight_never_lowers_an_edge_before_scaling(problem, raised, to):
    raised %= len(problem.attention)
    higher = problem.attention.clone()
    higher[raised] = max(to, higher[raised].item())
    counter = build_counter(problem, "reference", torch.float64)
    before, after = (counter.explain(a, problem.boxes).deduplicated for a in (problem.attention, higher))
    assert (after >= before - tolerance("reference", torch.float64).atol).all()
