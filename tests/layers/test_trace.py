"""Traces of both layers: every quantity of one call."""

import json
from dataclasses import fields

import pytest
import torch

from tallybox import Counter
from tests.support.problems import OUTPUTS, build_counter, inputs_of, random_boxes, random_problem
from tests.support.tolerances import tolerance

OF_HEADS = {
    Counter: ["deduplicated", "similarity", "scale", "count_matrix", "count", "confidence"],
    "other": ["evidence", "calibrated", "suppression", "presence", "distribution"],
}


def explain(problem):
    counter = build_counter(problem, "reference", torch.float64)
    return counter.explain(*inputs_of(problem, "reference", torch.float64))


@pytest.mark.parametrize("leading", [(), (2,), (2, 3)], ids=str)
@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("proposals", [0, 1, 4, 9])
def test_shapes_are_those_of_the_contract(layer, proposals, heads, leading):
    trace = explain(random_problem(*leading, proposals=proposals, max_objects=6, heads=heads, seed=1, layer=layer))
    of_counter = layer is Counter
    several = leading if heads == 1 else (*leading, heads)
    n, of_head = (min(proposals, 6), several) if of_counter else (proposals, (*leading, heads))
    expected = {"attention": (*leading, n), "boxes": (*leading, n, 4), "mask": (*leading, n), "count": several}
    expected |= dict.fromkeys(("relevance", "distance", "overlap"), (*leading, n, n))
    expected |= dict.fromkeys(
        ("deduplicated", "similarity", "count_matrix", "evidence", "suppression"), (*of_head, n, n)
    )
    expected |= dict.fromkeys(("scale", "calibrated", "presence"), (*of_head, n))
    expected |= {"indices": (*leading, n), "confidence": of_head, "distribution": (*of_head, 7)}
    expected["features"] = (*leading, heads * (7 if of_counter else 8))
    for field in fields(trace):
        assert getattr(trace, field.name).shape == expected[field.name], field.name


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("heads", [1, 3])
def test_a_trace_agrees_with_every_output(layer, backend, dtype, heads, masked):
    problem = random_problem(2, proposals=9, max_objects=6, heads=heads, masked=masked, seed=0, layer=layer)
    counter, inputs = build_counter(problem, backend, dtype), inputs_of(problem, backend, dtype)
    trace = counter.explain(*inputs)
    allowed = tolerance(backend, dtype, layer)._asdict()
    for name in OUTPUTS[layer]:
        torch.testing.assert_close(getattr(counter, name)(*inputs), getattr(trace, name), **allowed)
    torch.testing.assert_close(counter(*inputs), trace.features, **allowed)


def test_heads_of_a_trace_are_those_of_single_counters(layer):
    problem = random_problem(2, proposals=6, heads=3, seed=6, layer=layer)
    together = explain(problem)
    for head in range(3):
        alone = explain(problem.of_head(head))
        for name in OF_HEADS.get(layer, OF_HEADS["other"]):
            single = getattr(alone, name)
            expected = single if layer is Counter else single[:, 0]
            torch.testing.assert_close(getattr(together, name)[:, head], expected)


def test_a_trace_has_leading_dimensions_that_only_the_mask_has(layer):
    mask = torch.tensor([[True, True, False], [True, False, False]])
    trace = layer(5).explain(torch.rand(3), random_boxes(3, seed=7).float(), mask)
    assert all(getattr(trace, field.name).shape[0] == 2 for field in fields(trace))


def test_to_dict_is_ready_for_json(layer):
    trace = explain(random_problem(2, proposals=4, heads=2, masked=True, seed=8, layer=layer))
    loaded = json.loads(json.dumps(trace.to_dict(), allow_nan=False))
    assert list(loaded) == [field.name for field in fields(trace)]
    for name, value in loaded.items():
        assert torch.equal(torch.tensor(value, dtype=getattr(trace, name).dtype), getattr(trace, name).detach())


def test_gradients_flow_through_a_trace(layer):
    problem = random_problem(proposals=5, seed=9, layer=layer)
    counter = build_counter(problem, "reference", torch.float64)
    attention, boxes, _ = inputs_of(problem, "reference", torch.float64)
    trace = counter.explain(attention, boxes)
    (trace.count_matrix if layer is Counter else trace.suppression).sum().backward()
    assert attention.grad.abs().sum() > 0
    assert boxes.grad.abs().sum() > 0
