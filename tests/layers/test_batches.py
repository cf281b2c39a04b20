"""What every counting layer promises of batches, heads, masks and memory."""

from dataclasses import replace

import pytest
import torch

from tests.support.problems import (
    assert_same,
    assert_same_in_scale,
    build_counter,
    gradients_of,
    inputs_of,
    random_problem,
    solve,
)
from tests.support.tolerances import tolerance


def test_gradients_of_a_batch_equal_those_of_the_loop(layer, backend, dtype):
    problem = random_problem(4, proposals=7, max_objects=6, masked=True, seed=5, layer=layer)
    counter = build_counter(problem, backend, dtype)
    attention, boxes, mask = inputs_of(problem, backend, dtype)
    counter(attention, boxes, mask).pow(2).sum().backward()
    looped_counter = build_counter(problem, backend, dtype)
    looped_attention, looped_boxes, _ = inputs_of(problem, backend, dtype)
    for image in range(4):
        looped_counter(looped_attention[image], looped_boxes[image], mask[image]).pow(2).sum().backward()
    assert_same(
        gradients_of(counter, attention, boxes),
        gradients_of(looped_counter, looped_attention, looped_boxes),
        tolerance(backend, dtype, layer),
    )


@pytest.mark.parametrize("proposals", [6, 9], ids=["as many as max_objects", "more than max_objects"])
def test_non_contiguous_equals_contiguous(layer, backend, dtype, proposals):
    problem = random_problem(3, proposals=proposals, max_objects=6, masked=True, seed=7, layer=layer)
    strided = replace(
        problem,
        attention=problem.attention.mT.contiguous().mT,
        boxes=problem.boxes.mT.contiguous().mT,
        mask=problem.mask.repeat_interleave(2, dim=-1)[..., ::2],
    )
    assert not strided.attention.is_contiguous()
    assert not strided.boxes.is_contiguous()
    assert not strided.mask.is_contiguous()
    assert not inputs_of(strided, backend, dtype)[1].is_contiguous()
    assert_same(solve(strided, backend, dtype), solve(problem, backend, dtype), tolerance(backend, dtype, layer))


def test_boxes_shared_by_a_batch_give_what_copies_of_them_give(layer, backend, dtype):
    problem = random_problem(3, proposals=8, max_objects=6, seed=8, layer=layer)
    shared = replace(problem, boxes=problem.boxes[0])
    copied = replace(problem, boxes=problem.boxes[0].expand(3, 8, 4))
    got, expected = solve(shared, backend, dtype), solve(copied, backend, dtype)
    expected["grad_boxes"] = expected["grad_boxes"].sum(0)
    assert_same(got, expected, tolerance(backend, dtype, layer))


@pytest.mark.parametrize("proposals", [0, 4, 12])
def test_an_empty_batch_gives_empty_results_and_zero_weight_gradients(layer, backend, dtype, proposals):
    problem = random_problem(0, proposals=proposals, heads=2, layer=layer)
    counter = build_counter(problem, backend, dtype)
    attention, boxes, _ = inputs_of(problem, backend, dtype)
    features, count = counter(attention, boxes), counter.count(attention, boxes)
    assert features.shape[0] == 0
    assert features.shape[-1] > 0
    assert count.shape == (0, 2)
    (features.sum() + count.sum()).backward()
    assert attention.grad.shape == (0, proposals)
    assert all((parameter.grad == 0).all() for parameter in counter.parameters())


def test_the_same_input_gives_the_same_bits(layer, backend, dtype):
    problem = random_problem(17, proposals=8, heads=2, masked=True, seed=15, layer=layer)
    once, again = (solve(problem, backend, dtype) for _ in range(2))
    assert all(torch.equal(value, again[name]) for name, value in once.items())


@pytest.mark.parametrize("masked", [False, True])
def test_every_backend_and_dtype_agrees_with_the_reference_in_float64(layer, backend, dtype, masked):
    problem = random_problem(5, proposals=9, max_objects=6, heads=2, masked=masked, seed=16, layer=layer)
    expected = solve(problem, "reference", torch.float64)
    assert_same_in_scale(solve(problem, backend, dtype), expected, tolerance(backend, dtype, layer))
