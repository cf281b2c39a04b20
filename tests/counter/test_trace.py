from dataclasses import fields

import pytest
import torch

from tallybox import Counter, CountTrace
from tests.support import oracle
from tests.support.problems import build_counter, inputs_of, random_problem


def explain(problem, backend="reference", dtype=torch.float64) -> CountTrace:
    return build_counter(problem, backend, dtype).explain(*inputs_of(problem, backend, dtype))


@pytest.mark.parametrize("leading", [(), (2,), (2, 3)], ids=str)
@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("proposals", [0, 4, 9])
def test_shapes_are_those_of_the_contract(proposals, heads, leading):
    trace = explain(random_problem(*leading, proposals=proposals, max_objects=6, heads=heads, seed=1))
    n = min(proposals, 6)
    of_head = leading if heads == 1 else (*leading, heads)
    assert {field.name: tuple(getattr(trace, field.name).shape) for field in fields(trace)} == {
        "attention": (*leading, n),
        "boxes": (*leading, n, 4),
        "mask": (*leading, n),
        "indices": (*leading, n),
        "relevance": (*leading, n, n),
        "distance": (*leading, n, n),
        "deduplicated": (*of_head, n, n),
        "similarity": (*of_head, n, n),
        "scale": (*of_head, n),
        "count_matrix": (*of_head, n, n),
        "count": of_head,
        "confidence": of_head,
        "features": (*leading, heads * 7),
    }


def test_indices_say_which_proposals_were_kept():
    problem = random_problem(2, proposals=9, max_objects=4, seed=2)
    trace = explain(problem)
    assert torch.equal(trace.attention, problem.attention.gather(-1, trace.indices))
    assert torch.equal(trace.boxes[1], problem.boxes[1, trace.indices[1]])
    assert trace.mask.all()


def test_indices_are_in_order_when_all_are_kept():
    assert explain(random_problem(2, proposals=3, seed=3)).indices.tolist() == [[0, 1, 2], [0, 1, 2]]


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
    assert trace.distance.tolist() == [[0, 0, 1], [0, 0, 1], [1, 1, 0]]
    assert trace.deduplicated.tolist() == [[0, 0, 1], [0, 0, 1], [1, 1, 0]]
    assert trace.similarity.tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    assert trace.scale.tolist() == [0.5, 0.5, 1]
    assert trace.count_matrix.tolist() == [[0.5, 0, 0.5], [0, 0.5, 0.5], [0.5, 0.5, 1]]
    assert trace.count.item() == pytest.approx(2)
