"""Both layers against loops written from the equations alone."""

import itertools

import pytest
import torch

from tallybox import Counter, PresenceCounter, PresenceWeights
from tests.support import oracle, presence_oracle
from tests.support.problems import (
    OUTPUTS,
    Problem,
    assert_same,
    assert_same_in_scale,
    output_of,
    random_presence_weights,
    random_problem,
)
from tests.support.tolerances import TOLERANCES, tolerance

ORACLES = {Counter: oracle.answer, PresenceCounter: presence_oracle.answer}


def oracle_results(problem: Problem) -> dict[str, torch.Tensor]:
    """Ask the loop oracle for each image and head in turn."""
    leading = problem.attention.shape[:-1]
    answers = []
    for image in itertools.product(*(range(size) for size in leading)):
        alone = problem.of_image(*image)
        given = alone.attention.tolist(), alone.boxes.tolist()
        mask = None if alone.mask is None else alone.mask.tolist()
        for head in range(problem.heads):
            if isinstance(problem.weight, PresenceWeights):
                weight = {name: value[head].tolist() for name, value in problem.weight._asdict().items()}
            else:
                weight = problem.weight[head].tolist()
            settings = {"max_objects": problem.max_objects, "mask": mask, "logits": problem.logits}
            answers.append(ORACLES[problem.layer](*given, weight, **settings))

    def gather(name: str) -> torch.Tensor:
        values = torch.tensor([getattr(answer, name) for answer in answers], dtype=torch.float64)
        return values.reshape(*leading, problem.heads, *values.shape[1:])

    results = {name: gather(name) for name in OUTPUTS[problem.layer]}
    if problem.heads == 1:
        results["count"] = results["count"].squeeze(-1)
    return results | {"forward": gather("features").flatten(-2)}


def assert_like_oracle(problem: Problem, backend: str, dtype: torch.dtype) -> None:
    expected = oracle_results(problem)
    got = {name: output_of(problem, name, backend, dtype) for name in expected}
    features, of_oracle = {"forward": got.pop("forward")}, {"forward": expected.pop("forward")}
    assert_same(got, expected, TOLERANCES[backend, dtype])
    assert_same_in_scale(features, of_oracle, tolerance(backend, dtype, problem.layer))


@pytest.mark.parametrize("logits", [False, True], ids=["weights", "logits"])
@pytest.mark.parametrize("masked", [False, True], ids=["unmasked", "masked"])
@pytest.mark.parametrize("proposals", [1, 5, 6, 9], ids=["one", "below", "at", "above"])
def test_any_number_of_proposals(layer, backend, dtype, proposals, masked, logits):
    settings = {"max_objects": 6, "heads": 2, "masked": masked, "logits": logits, "seed": proposals}
    assert_like_oracle(random_problem(3, proposals=proposals, layer=layer, **settings), backend, dtype)


@pytest.mark.parametrize("leading", [(), (4,), (2, 3), (2, 1, 2)], ids=str)
@pytest.mark.parametrize("heads", [1, 3])
def test_leading_dimensions_and_heads(layer, backend, dtype, leading, heads):
    problem = random_problem(*leading, proposals=7, max_objects=5, heads=heads, seed=1, layer=layer)
    assert_like_oracle(problem, backend, dtype)


@pytest.mark.parametrize("segments", [1, 2, 7, 32])
def test_any_number_of_segments(layer, backend, dtype, segments):
    problem = random_problem(2, proposals=6, max_objects=6, segments=segments, seed=2, layer=layer)
    assert_like_oracle(problem, backend, dtype)


@pytest.mark.parametrize("max_objects", [1, 3, 30])
def test_any_max_objects(layer, backend, dtype, max_objects):
    problem = random_problem(2, proposals=12, max_objects=max_objects, seed=3, layer=layer)
    assert_like_oracle(problem, backend, dtype)


@pytest.mark.parametrize("size", [10, 20, 36])
def test_the_sizes_of_the_papers_tasks(backend, dtype, size):
    assert_like_oracle(random_problem(2, proposals=size, max_objects=min(size, 20), seed=3), backend, dtype)


def test_scores_and_boxes_at_the_limits_of_presence_counting(backend, dtype):
    """Scores of 0, 1 and equal ones; boxes that are identical, touch, lie apart and have no area."""
    boxes = [[0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 1, 1], [1, 0, 2, 1], [1, 0, 2, 1], [3, 3, 3, 3], [3, 3, 3, 3]]
    scores = torch.tensor([1.0, 0.0, 1.0, 0.5, 0.5, 0.5, 0.25], dtype=torch.float64)
    problem = Problem(scores, torch.tensor(boxes, dtype=torch.float64), random_presence_weights(2, seed=4))
    assert_like_oracle(problem, backend, dtype)
