"""What presence counting promises untrained, and what it becomes at the ends of its functions."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tallybox import PresenceCounter, PresenceWeights
from tests.support.backends import is_interpreted
from tests.support.oracle import iou
from tests.support.problems import (
    OUTPUTS,
    Problem,
    assert_same,
    count_of,
    output_of,
    random_boxes,
    random_generator,
    random_problem,
    untrained,
)
from tests.support.strategies import box_sets, presence_weights, problems, unit_floats
from tests.support.tolerances import LIMITS, ONE_PERCENT, SUM_OF_PROBABILITIES, TOLERANCES, tolerance

UNTRAINED = untrained(PresenceCounter)


def apart(number: int) -> torch.Tensor:
    """Disjoint boxes ``[number, 4]``."""
    corner = 2 * torch.arange(number, dtype=torch.float64)[:, None].expand(number, 2)
    return torch.cat((corner, corner + 1), -1)


@given(weight=st.floats(1e-4, 1))
def test_ten_disjoint_boxes_count_ten_times_their_weight(backend, dtype, weight):
    problem = Problem(torch.full((10,), weight, dtype=torch.float64), apart(10), UNTRAINED)
    assert count_of(problem, backend, dtype).item() == pytest.approx(10 * weight, rel=ONE_PERCENT.rtol)


@given(weights=st.lists(st.floats(1e-4, 1), min_size=1, max_size=10))
def test_disjoint_boxes_count_the_sum_of_their_weights(backend, weights):
    problem = Problem(torch.tensor(weights, dtype=torch.float64), apart(len(weights)), UNTRAINED)
    assert count_of(problem, backend, torch.float32).item() == pytest.approx(sum(weights), rel=ONE_PERCENT.rtol)


@pytest.mark.parametrize("copies", [2, 3, 10, 100, 1000])
def test_exact_duplicates_at_full_weight_count_once(backend, dtype, copies):
    copies = min(copies, 100) if is_interpreted(backend) else copies
    problem = Problem(torch.ones(copies), apart(1).expand(copies, 4), UNTRAINED)
    assert count_of(problem, backend, dtype).item() == pytest.approx(1, rel=ONE_PERCENT.rtol)
    presence = output_of(problem, "presence", backend, dtype)
    assert presence.max().item() == pytest.approx(1, rel=ONE_PERCENT.rtol)


@given(copies=st.lists(st.integers(1, 30), max_size=6), shuffle=st.randoms(use_true_random=False))
def test_clusters_of_duplicates_count_as_many_as_there_are(backend, copies, shuffle):
    owners = [owner for owner, number in enumerate(copies) for _ in range(number)]
    shuffle.shuffle(owners)
    boxes = apart(len(copies))[torch.tensor(owners, dtype=torch.long)]
    problem = Problem(torch.ones(len(owners), dtype=torch.float64), boxes, UNTRAINED)
    count = count_of(problem, backend, torch.float32).item()
    assert count == pytest.approx(len(copies), rel=ONE_PERCENT.rtol, abs=LIMITS.atol)


@pytest.mark.parametrize("score", [0.25, 0.5, 0.9])
def test_of_two_duplicates_with_equal_scores_one_stays_and_the_other_keeps_what_the_first_lacks(backend, dtype, score):
    problem = Problem(torch.full((2,), score, dtype=torch.float64), apart(1).expand(2, 4), UNTRAINED)
    presence = output_of(problem, "presence", backend, dtype).sort().values[0].tolist()
    assert presence == pytest.approx([score * (1 - score), score], abs=TOLERANCES[backend, dtype].atol)


few_scores = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
few_boxes = st.sampled_from(
    [[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 1.0], [1.0, 0.0, 2.0, 2.0], [0.0, 1.0, 2.0, 2.0], [4.0, 4.0, 4.0, 4.0]]
)


@given(
    proposals=st.lists(st.tuples(few_scores, few_boxes), min_size=1, max_size=10),
    weight=presence_weights(2),
    shuffle=st.randoms(use_true_random=False),
)
def test_order_does_not_matter_among_ties_in_score_and_identical_boxes(backend, dtype, proposals, weight, shuffle):
    order = list(range(len(proposals)))
    shuffle.shuffle(order)
    problem = Problem(
        torch.tensor([score for score, _ in proposals], dtype=torch.float64),
        torch.tensor([box for _, box in proposals], dtype=torch.float64),
        weight,
    )
    shuffled = replace(problem, attention=problem.attention[order], boxes=problem.boxes[order])
    names = ["forward", "distribution", "count"]
    assert_same(
        {name: output_of(shuffled, name, backend, dtype) for name in names},
        {name: output_of(problem, name, backend, dtype) for name in names},
        tolerance(backend, dtype, PresenceCounter),
    )


@pytest.mark.parametrize("trained", [False, True], ids=["untrained", "trained"])
def test_probabilities_of_a_thousand_proposals_sum_to_one_in_float32(backend, trained):
    proposals = 100 if is_interpreted(backend) else 1000
    problem = random_problem(proposals=proposals, seed=1, layer=PresenceCounter)
    sparse = replace(problem, boxes=30 * problem.boxes, weight=problem.weight if trained else UNTRAINED)
    for dense_or_sparse in (problem, sparse):
        distribution = output_of(dense_or_sparse, "distribution", backend, torch.float32)
        assert (distribution >= 0).all()
        assert distribution.sum().item() == pytest.approx(1, abs=SUM_OF_PROBABILITIES.atol)


@given(problem=problems(minimum=0, maximum=10, layer=PresenceCounter))
def test_presences_and_probabilities_stay_in_range_and_the_count_is_their_sum(backend, dtype, problem):
    results = {name: output_of(problem, name, backend, dtype) for name in OUTPUTS[PresenceCounter]}
    slack = TOLERANCES[backend, dtype].atol
    assert (results["presence"] >= 0).all()
    assert (results["presence"] <= 1).all()
    assert (results["distribution"] >= 0).all()
    assert results["distribution"].sum().item() == pytest.approx(1, abs=slack)
    assert results["count"].item() == pytest.approx(results["presence"].sum().item(), abs=slack)


@given(problem=problems(maximum=10, layer=PresenceCounter), more=box_sets(maximum=3))
def test_untrained_proposals_of_weight_zero_change_nothing(backend, problem, more):
    problem = replace(problem, weight=UNTRAINED)
    zeros = torch.zeros(len(more), dtype=torch.float64)
    longer = replace(problem, attention=torch.cat((problem.attention, zeros)), boxes=torch.cat((problem.boxes, more)))
    got = output_of(longer, "presence", backend, torch.float32)[:, : len(problem.attention)]
    assert_same(
        {"presence": got, "count": count_of(longer, backend, torch.float32)},
        {
            "presence": output_of(problem, "presence", backend, torch.float32),
            "count": count_of(problem, backend, torch.float32),
        },
        LIMITS,
    )


@given(
    boxes=st.lists(few_boxes, min_size=2, max_size=2),
    scores=st.lists(unit_floats(), min_size=2, max_size=2),
    weight=presence_weights(1),
)
def test_a_proposal_alone_is_at_least_as_present_as_beside_another_that_says_nothing(backend, boxes, scores, weight):
    silent = weight._replace(evidence=torch.zeros_like(weight.evidence))
    problem = Problem(torch.tensor(scores, dtype=torch.float64), torch.tensor(boxes, dtype=torch.float64), silent)
    alone = replace(problem, attention=problem.attention[:1], boxes=problem.boxes[:1])
    beside = output_of(problem, "presence", backend, torch.float32)[0, 0]
    assert (
        beside <= output_of(alone, "presence", backend, torch.float32)[0, 0] + TOLERANCES[backend, torch.float32].atol
    )


def step_weights(score_segment: int, overlap_cell: int) -> PresenceWeights:
    """φ rises within one of 16 segments, η within one of 8 cells, and the order is hard."""
    calibration = torch.zeros(1, 16, dtype=torch.float64)
    calibration[0, score_segment] = 1
    overlap = torch.zeros(1, 8, 9, dtype=torch.float64)
    overlap[0, overlap_cell, 0] = 1
    return UNTRAINED._replace(calibration=calibration, overlap=overlap)


def greedy_nms(proposals: list[tuple[float, list[float]]], least_score: float, most_overlap: float) -> int:
    kept: list[list[float]] = []
    for score, box in sorted(proposals, reverse=True):
        if score >= least_score and all(iou(box, other) < most_overlap for other in kept):
            kept.append(box)
    return len(kept)


@given(
    clusters=st.lists(
        st.tuples(
            st.lists(st.sampled_from([0.05, 0.1, 0.2, 0.8, 0.9, 0.95]), min_size=1, max_size=4, unique=True),
            st.sampled_from([0.0, 0.2, 0.6, 1.0]),
        ),
        max_size=5,
    ),
    shuffle=st.randoms(use_true_random=False),
)
def test_step_functions_give_greedy_non_maximum_suppression_with_a_score_threshold(backend, dtype, clusters, shuffle):
    """One suppressor at a time: the others of a cluster overlap its highest score by the same and not each other.

    φ steps between scores of 0.44 and 0.5, η between overlaps of 3/8 and 1/2.
    """
    proposals = []
    for place, (scores, shared) in enumerate(clusters):
        left = 10.0 * place
        best, *others = sorted(scores, reverse=True)
        proposals.append((best, [left, 0.0, left + 4, 1.0]))
        width = 4 * shared / max(len(others), 1)
        for k, score in enumerate(others):
            start, top = (left + k * width, 0.0) if shared else (left, 5.0 + k)
            proposals.append((score, [start, top, start + (width or 1), top + 1]))
    shuffle.shuffle(proposals)
    problem = Problem(
        torch.tensor([score for score, _ in proposals], dtype=torch.float64),
        torch.tensor([box for _, box in proposals], dtype=torch.float64).reshape(-1, 4),
        step_weights(score_segment=7, overlap_cell=3),
    )
    expected = greedy_nms(proposals, least_score=0.5, most_overlap=0.5)
    assert count_of(problem, backend, dtype).item() == pytest.approx(expected, abs=TOLERANCES[backend, dtype].atol)


@given(problem=problems(maximum=10, layer=PresenceCounter))
def test_without_suppression_the_count_is_the_sum_of_scores(backend, dtype, problem):
    weights = UNTRAINED._replace(headroom=torch.full((1,), 1e30, dtype=torch.float64))
    got = count_of(replace(problem, weight=weights), backend, dtype).item()
    assert got == pytest.approx(problem.attention.sum().item(), abs=LIMITS.atol)


@given(
    scores=st.lists(st.floats(0.01, 0.99), min_size=2, max_size=2),
    overlaps=st.lists(unit_floats(), min_size=2, max_size=2),
    weight=presence_weights(1),
)
def test_more_overlap_stands_for_more_and_a_higher_score_is_stood_for_less(scores, overlaps, weight):
    """η rises with the overlap and falls with the score of the one stood for."""
    low_overlap, high_overlap = sorted(overlaps)
    low_score, high_score = sorted(scores)

    def stands_for(score: float, overlap: float) -> float:
        boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, overlap]], dtype=torch.float64)
        layer = PresenceCounter(2, backend="reference").double()
        layer.load_state_dict(weight._replace(order=torch.zeros_like(weight.order))._asdict())
        attention = torch.tensor([0.995, score], dtype=torch.float64)
        return layer.explain(attention, boxes).suppression[0, 1, 0].item()

    assert stands_for(low_score, low_overlap) <= stands_for(low_score, high_overlap) + 1e-12
    assert stands_for(high_score, high_overlap) <= stands_for(low_score, high_overlap) + 1e-12


def test_many_overlapping_proposals_agree_with_the_reference_in_float64(backend):
    problem = Problem(
        torch.rand(100, generator=random_generator(2), dtype=torch.float64), random_boxes(100, seed=3), UNTRAINED
    )
    got = count_of(problem, backend, torch.float32)
    expected = count_of(problem, "reference", torch.float64)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
