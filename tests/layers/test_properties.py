"""What holds for every counting layer, any proposals and any weights."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tallybox import Counter, PresenceCounter
from tests.support.problems import (
    Problem,
    assert_same,
    build_counter,
    count_of,
    features_of,
    inputs_of,
    solve,
    untrained,
)
from tests.support.strategies import box_sets, problems, scenes
from tests.support.tolerances import LIMITS, tolerance

junk = st.sampled_from([torch.nan, torch.inf, -torch.inf, -5.0, 0.0, 0.5, 1.0, 1e30])

# What an explanation says of a whole image.
TRACED = {Counter: ["count", "confidence"], PresenceCounter: ["count", "distribution"]}


@given(
    data=st.data(),
    masked=st.lists(st.tuples(junk, st.lists(junk, min_size=4, max_size=4)), min_size=1, max_size=6),
    shuffle=st.randoms(use_true_random=False),
    logits=st.booleans(),
)
def test_masked_proposals_change_nothing_at_all(layer, backend, dtype, data, masked, shuffle, logits):
    problem = data.draw(problems(maximum=6, max_objects=5, distinct_attention=True, layer=layer))
    if logits:
        problem = replace(problem, attention=8 * problem.attention - 4, logits=True)
    number = len(problem.attention)
    order = list(range(number + len(masked)))
    shuffle.shuffle(order)
    real = torch.tensor(order) < number
    padded = replace(
        problem,
        attention=torch.cat((problem.attention, torch.tensor([a for a, _ in masked], dtype=torch.float64)))[order],
        boxes=torch.cat((problem.boxes, torch.tensor([box for _, box in masked], dtype=torch.float64)))[order],
        mask=real,
    )
    back = torch.tensor(order)[real].argsort()
    expected, got = solve(problem, backend, dtype), solve(padded, backend, dtype)
    for name in ("grad_attention", "grad_boxes"):
        assert (got[name][~real] == 0).all(), name
        got[name] = got[name][real][back]
    if "presence" in got:
        assert (got["presence"][..., ~real] == 0).all()
        got["presence"] = got["presence"][..., real][..., back]
    assert_same(got, expected, tolerance(backend, dtype, layer))

    same, traced = (build_counter(p, backend, dtype).explain(*inputs_of(p, backend, dtype)) for p in (padded, problem))
    assert_same(
        {name: getattr(same, name) for name in TRACED[layer]},
        {name: getattr(traced, name) for name in TRACED[layer]},
        tolerance(backend, dtype, layer),
    )


@given(data=st.data(), shuffle=st.randoms(use_true_random=False))
def test_order_does_not_matter(layer, backend, dtype, data, shuffle):
    problem = data.draw(problems(maximum=12, max_objects=6, distinct_attention=True, layer=layer))
    order = list(range(len(problem.attention)))
    shuffle.shuffle(order)
    shuffled = replace(problem, attention=problem.attention[order], boxes=problem.boxes[order])
    got, expected = features_of(shuffled, backend, dtype), features_of(problem, backend, dtype)
    torch.testing.assert_close(got, expected, **tolerance(backend, dtype, layer)._asdict())


@given(data=st.data(), shift=st.tuples(st.integers(-50, 50), st.integers(-50, 50)), power=st.integers(-20, 20))
def test_origin_and_unit_of_the_boxes_do_not_matter(layer, backend, dtype, data, shift, power):
    problem = data.draw(problems(layer=layer))
    moved = (problem.boxes + torch.tensor(shift * 2, dtype=torch.float64)) * 2.0**power
    got = features_of(replace(problem, boxes=moved), backend, dtype)
    expected = features_of(problem, backend, dtype)
    torch.testing.assert_close(got, expected, **tolerance(backend, dtype, layer)._asdict())


@given(data=st.data(), unit=st.sampled_from([1e-6, 1 / 640, 0.7, 480.0, 1e5]))
def test_pixels_and_fractions_give_the_same_features(layer, backend, dtype, data, unit):
    problem = data.draw(problems(layer=layer))
    got = features_of(replace(problem, boxes=problem.boxes * unit), backend, dtype)
    expected = features_of(problem, backend, dtype)
    torch.testing.assert_close(got, expected, **tolerance(backend, dtype, layer)._asdict())


@given(scene=scenes(), off=box_sets(), shuffle=st.randoms(use_true_random=False))
def test_weights_of_zero_and_one_over_identical_or_disjoint_boxes_give_the_true_count(
    layer, backend, dtype, scene, off, shuffle
):
    """The limits in which both layers agree, untrained; boxes at weight 0 may lie anywhere."""
    order = list(range(len(scene.boxes) + len(off)))
    shuffle.shuffle(order)
    problem = Problem(
        torch.cat((scene.attention, torch.zeros(len(off), dtype=torch.float64)))[order],
        torch.cat((scene.boxes, off))[order],
        untrained(layer),
        max_objects=32,
    )
    count = count_of(problem, backend, dtype)
    assert count.item() == pytest.approx(scene.objects, abs=LIMITS.atol)
