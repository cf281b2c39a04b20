"""What every counting layer promises of batches, heads, masks and memory."""

from dataclasses import replace

import pytest
import torch

from tests.support.problems import (
    OUTPUTS,
    assert_same,
    assert_same_in_scale,
    build_counter,
    gradients_of,
    inputs_of,
    output_of,
    random_problem,
    solve,
)
from tests.support.tolerances import tolerance


def outputs_of(problem, backend, dtype):
    return {name: output_of(problem, name, backend, dtype) for name in (*OUTPUTS[problem.layer], "forward")}


@pytest.mark.parametrize("masked", [False, True])
def test_batch_equals_loop(layer, backend, dtype, masked):
    problem = random_problem(5, proposals=8, max_objects=6, heads=2, masked=masked, seed=4, layer=layer)
    together = outputs_of(problem, backend, dtype)
    for image in range(5):
        got = outputs_of(problem.of_image(image), backend, dtype)
        expected = {name: value[image] for name, value in together.items()}
        assert_same(got, expected, tolerance(backend, dtype, layer))


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


def test_heads_are_independent_counters_over_the_same_proposals(layer, backend, dtype):
    problem = random_problem(2, proposals=7, max_objects=5, heads=3, seed=6, layer=layer)
    together = output_of(problem, "forward", backend, dtype).unflatten(-1, (3, -1))
    counts = output_of(problem, "count", backend, dtype)
    for head in range(3):
        alone = problem.of_head(head)
        got = {name: output_of(alone, name, backend, dtype) for name in ("forward", "count")}
        expected = {"forward": together[:, head], "count": counts[:, head]}
        assert_same(got, expected, tolerance(backend, dtype, layer))


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


def test_a_mask_can_have_leading_dimensions_that_the_proposals_lack(layer, backend, dtype):
    problem = random_problem(proposals=7, max_objects=5, seed=9, layer=layer)
    mask = torch.tensor([[True] * 7, [False] * 3 + [True] * 4, [False] * 7])
    together = outputs_of(replace(problem, mask=mask), backend, dtype)
    for row in range(3):
        got = {name: value[row] for name, value in together.items()}
        expected = outputs_of(replace(problem, mask=mask[row]), backend, dtype)
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


def test_masking_all_proposals_of_one_image_leaves_the_others_alone(layer, backend, dtype):
    problem = random_problem(3, proposals=6, seed=10, layer=layer)
    mask = torch.ones(3, 6, dtype=torch.bool)
    mask[1] = False
    got, expected = solve(replace(problem, mask=mask), backend, dtype), solve(problem, backend, dtype)
    of_images = [*OUTPUTS[layer], "features", "grad_attention", "grad_boxes"]
    assert_same(
        {name: got[name][[0, 2]] for name in of_images},
        {name: expected[name][[0, 2]] for name in of_images},
        tolerance(backend, dtype, layer),
    )
    assert (got["grad_attention"][1] == 0).all()
    assert (got["grad_boxes"][1] == 0).all()


def test_results_do_not_depend_on_what_uninitialised_memory_holds(layer, backend, dtype):
    problem = random_problem(3, proposals=12, masked=True, seed=14, layer=layer)
    expected = solve(problem, backend, dtype)
    torch.use_deterministic_algorithms(True)  # fills what torch.empty returns with NaN
    try:
        got = solve(problem, backend, dtype)
    finally:
        torch.use_deterministic_algorithms(False)
    assert_same(got, expected, tolerance(backend, dtype, layer))


def test_the_same_input_gives_the_same_bits(layer, backend, dtype):
    problem = random_problem(17, proposals=8, heads=2, masked=True, seed=15, layer=layer)
    once, again = (solve(problem, backend, dtype) for _ in range(2))
    assert all(torch.equal(value, again[name]) for name, value in once.items())


@pytest.mark.parametrize("masked", [False, True])
def test_every_backend_and_dtype_agrees_with_the_reference_in_float64(layer, backend, dtype, masked):
    problem = random_problem(5, proposals=9, max_objects=6, heads=2, masked=masked, seed=16, layer=layer)
    expected = solve(problem, "reference", torch.float64)
    assert_same_in_scale(solve(problem, backend, dtype), expected, tolerance(backend, dtype, layer))


def test_repr_states_every_setting(layer):
    shown = repr(layer(3, heads=2, segments=8, logits=True, backend="reference"))
    assert shown == f"{layer.__name__}(max_objects=3, heads=2, segments=8, logits=True, backend='reference')"
