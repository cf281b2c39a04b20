import pytest
import torch

from tallybox import PresenceCounter, PresenceTrace
from tests.support import presence_oracle as oracle
from tests.support.problems import build_counter, inputs_of, random_problem


def presence_problem(*leading, **settings):
    return random_problem(*leading, layer=PresenceCounter, **settings)


def explain(problem, backend="reference", dtype=torch.float64) -> PresenceTrace:
    return build_counter(problem, backend, dtype).explain(*inputs_of(problem, backend, dtype))


@pytest.mark.parametrize("logits", [False, True])
def test_masked_proposals_have_no_weight_and_no_part(logits):
    trace = explain(presence_problem(proposals=6, masked=True, logits=logits, seed=4))
    out = ~trace.mask
    assert out.any()
    assert (trace.attention[out] == 0).all()
    assert (trace.boxes[out] == 0).all()
    for of_one in (trace.calibrated, trace.presence):
        assert (of_one[:, out] == 0).all()
    for of_pairs in (trace.evidence, trace.suppression):
        assert (of_pairs[:, out] == 0).all()
        assert (of_pairs[:, :, out] == 0).all()


def test_a_masked_proposal_says_nothing_even_to_a_box_without_area_at_the_origin():
    """What is masked is set to 0, which is where that box lies too."""
    problem = presence_problem(proposals=2, seed=12)
    boxes = torch.zeros(2, 4, dtype=torch.float64)
    layer = build_counter(problem, "reference", torch.float64)
    trace = layer.explain(problem.attention, boxes, torch.tensor([True, False]))
    assert (trace.evidence == 0).all()
    assert (trace.suppression == 0).all()
    alone = layer.explain(problem.attention[:1], boxes[:1])
    torch.testing.assert_close(trace.features, alone.features)


def test_no_proposal_stands_for_itself_or_tells_itself_anything():
    trace = explain(presence_problem(2, proposals=6, heads=2, seed=5))
    for of_pairs in (trace.evidence, trace.suppression):
        assert (of_pairs.diagonal(dim1=-2, dim2=-1) == 0).all()


def test_attention_of_logits_is_their_logistic():
    problem = presence_problem(2, proposals=6, logits=True, seed=6)
    torch.testing.assert_close(explain(problem).attention, problem.attention.sigmoid())


def test_presence_follows_from_what_the_trace_shows():
    """p_i = p⁰_i ∏_j (1 - s_ij p_j), twice."""
    trace = explain(presence_problem(2, proposals=6, heads=2, masked=True, seed=7))
    presence = trace.calibrated
    for _ in range(2):
        presence = trace.calibrated * (1 - trace.suppression * presence.unsqueeze(-2)).prod(-1)
    torch.testing.assert_close(presence, trace.presence)
    expected = oracle.distribution_of(trace.presence[0, 0].tolist(), 10)
    torch.testing.assert_close(trace.distribution[0, 0].tolist(), expected)


def test_the_story_of_two_objects_and_a_duplicate():
    boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0], [2.0, 2.0, 3.0, 3.0]])
    trace = PresenceCounter(3).explain(torch.tensor([0.8, 0.9, 0.5]), boxes)
    assert trace.overlap.tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    assert trace.evidence.tolist() == [[[0, 0, 0]] * 3]
    assert trace.suppression.tolist() == [[[0, 1, 0], [0, 0, 0], [0, 0, 0]]]
    assert trace.calibrated[0].tolist() == pytest.approx([0.8, 0.9, 0.5], abs=1e-6)
    assert trace.presence[0].tolist() == pytest.approx([0.08, 0.9, 0.5], abs=1e-6)
    assert trace.count.item() == pytest.approx(1.48, abs=1e-6)
