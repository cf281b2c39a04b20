import pytest
import torch

from tallybox import Counter, CountTrace
from tests.support import oracle
from tests.support.problems import build_counter, inputs_of, random_problem


def explain(problem, backend="reference", dtype=torch.float64) -> CountTrace:
    return build_counter(problem, backend, dtype).explain(*inputs_of(problem, backend, dtype))


def test_indices_say_which_proposals_were_kept():
    problem = random_problem(2, proposals=9, max_objects=4, seed=2)
    trace = explain(problem)
    assert torch.equal(trace.attention, problem.attention.gather(-1, trace.indices))
    assert torch.equal(trace.boxes[1], problem.boxes[1, trace.indices[1]])
    assert trace.mask.all()


def test_masked_proposals_have_no_weight_and_no_part():
    trace = explain(random_problem(proposals=6, masked=True, seed=4))
    out = ~trace.mask
    assert out.any()
    assert (trace.attention[out] == 0).all()
    assert (trace.scale[out] == 0).all()
    assert (trace.count_matrix[out] == 0).all()
    assert (trace.count_matrix[:, out] == 0).all()


def test_confidence_is_that_of_the_loop_oracle():
    problem = random_problem(proposals=8, max_objects=6, masked=True, seed=5)
    answer = oracle.answer(
        problem.attention.tolist(),
        problem.boxes.tolist(),
        problem.weight[0].tolist(),
        max_objects=6,
        mask=problem.mask.tolist(),
    )
    assert explain(problem).confidence.item() == pytest.approx(answer.confidence, abs=1e-12)


def test_the_papers_story_of_two_objects_and_a_duplicate():
    boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0], [2.0, 2.0, 3.0, 3.0]])
    trace = Counter(3).explain(torch.tensor([1.0, 1.0, 1.0]), boxes)
    assert trace.relevance.tolist() == [[1, 1, 1]] * 3
    assert trace.distance.tolist() == [[0, 0, 1], [0, 0, 1], [1, 1, 0]]
    assert trace.deduplicated.tolist() == [[0, 0, 1], [0, 0, 1], [1, 1, 0]]
    assert trace.similarity.tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    assert trace.scale.tolist() == [0.5, 0.5, 1]
    assert trace.count_matrix.tolist() == [[0.5, 0, 0.5], [0, 0.5, 0.5], [0.5, 0.5, 1]]
    assert trace.count.item() == pytest.approx(2)
