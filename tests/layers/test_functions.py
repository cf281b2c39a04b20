"""`count_features` and `presence_features`: the functions under the layers, for one counter or many."""

import pytest
import torch

from tallybox import Counter, InputError, PresenceWeights, count_features, presence_features
from tests.support.backends import device_of
from tests.support.problems import (
    assert_same,
    build_counter,
    inputs_of,
    random_boxes,
    random_generator,
    random_presence_weights,
    random_problem,
    random_weight,
)
from tests.support.tolerances import tolerance


def weights_of(layer, *leading: int, seed: int):
    """Random weights ``[*leading, ...]``, by name."""
    if layer is Counter:
        return {"weight": random_weight(*leading, 8, 16, seed=seed)}
    return random_presence_weights(*leading, seed=seed)._asdict()


def call(layer, attention, boxes, weights, **options):
    if layer is Counter:
        return count_features(attention, boxes, weights["weight"], **options)
    return presence_features(attention, boxes, PresenceWeights(**weights), **options)


def features(layer, backend, dtype, attention, boxes, weights, *, mask=None, **options):
    """Call the function on the backend's device and bring the result back."""
    device = device_of(backend)
    weights = {name: weight.to(device, dtype) for name, weight in weights.items()}
    mask = None if mask is None else mask.to(device)
    got = call(
        layer, attention.to(device, dtype), boxes.to(device, dtype), weights, mask=mask, backend=backend, **options
    )
    assert got.dtype == dtype
    return got.to("cpu", torch.float64)


def random_attention(*shape: int, seed: int) -> torch.Tensor:
    return torch.rand(*shape, generator=random_generator(seed), dtype=torch.float64)


@pytest.mark.parametrize(("proposals", "masked"), [(4, False), (5, True), (8, True), (8, False)])
def test_many_counters_in_one_call_equal_a_loop_over_them(layer, backend, dtype, proposals, masked):
    attention, boxes = random_attention(3, 2, proposals, seed=0), random_boxes(3, 2, proposals, seed=1)
    weights = weights_of(layer, 3, 1, seed=2)
    mask = random_attention(3, 2, proposals, seed=3) < 0.6 if masked else None
    together = features(layer, backend, dtype, attention, boxes, weights, max_objects=5, mask=mask)
    for counter, image in ((counter, image) for counter in range(3) for image in range(2)):
        own = {name: weight[counter, 0] for name, weight in weights.items()}
        own_mask = None if mask is None else mask[counter, image]
        given = attention[counter, image], boxes[counter, image], own
        alone = features(layer, "reference", torch.float64, *given, mask=own_mask, max_objects=5)
        allowed = tolerance(backend, dtype, layer)._asdict()
        torch.testing.assert_close(together[counter, image], alone, **allowed)


@pytest.mark.parametrize(
    ("weight_shape", "attention_shape", "boxes_shape", "mask_shape", "leading"),
    [
        ((), (), (), None, ()),
        ((4,), (), (), None, (4,)),
        ((), (3,), (), None, (3,)),
        ((), (), (3,), None, (3,)),
        ((), (), (), (3,), (3,)),
        ((4, 1), (3,), (3,), (3,), (4, 3)),
        ((4, 1), (4, 3), (1, 3), (3,), (4, 3)),
        ((2, 1, 1), (4, 1), (3,), (1, 3), (2, 4, 3)),
        ((3,), (2, 3), (2, 3), None, (2, 3)),
    ],
    ids=str,
)
@pytest.mark.parametrize("proposals", [5, 7], ids=["all kept", "some kept"])
def test_leading_dimensions_broadcast(
    layer, backend, dtype, proposals, weight_shape, attention_shape, boxes_shape, mask_shape, leading
):
    attention = random_attention(*attention_shape, proposals, seed=4)
    boxes = random_boxes(*boxes_shape, proposals, seed=5)
    weights = weights_of(layer, *weight_shape, seed=6)
    mask = None if mask_shape is None else random_attention(*mask_shape, proposals, seed=7) < 0.7
    got = features(layer, backend, dtype, attention, boxes, weights, mask=mask, max_objects=5)
    assert got.shape[:-1] == leading
    expanded = {
        name: weight.expand(*leading, *weight.shape[len(weight_shape) :]).contiguous() if leading else weight
        for name, weight in weights.items()
    }
    expected = features(
        layer,
        backend,
        dtype,
        attention.expand(*leading, proposals).contiguous(),
        boxes.expand(*leading, proposals, 4).contiguous(),
        expanded,
        mask=None if mask is None else mask.expand(*leading, proposals).contiguous(),
        max_objects=5,
    )
    torch.testing.assert_close(got, expected, **tolerance(backend, dtype, layer)._asdict())


def test_gradients_of_broadcast_weights_are_sums_over_the_images(layer, backend, dtype):
    device = device_of(backend)
    attention = random_attention(2, 3, 6, seed=8).to(device, dtype)
    boxes = random_boxes(2, 3, 6, seed=9).to(device, dtype)
    drawn = weights_of(layer, 2, 1, seed=10)
    shared = {name: weight.to(device, dtype).requires_grad_() for name, weight in drawn.items()}
    own = {name: w.detach().repeat(1, 3, *[1] * (w.dim() - 2)).requires_grad_() for name, w in shared.items()}
    for weights in (shared, own):
        call(layer, attention, boxes, weights, max_objects=5, backend=backend).pow(2).sum().backward()
    assert_same(
        {name: weight.grad for name, weight in shared.items()},
        {name: weight.grad.sum(1, keepdim=True) for name, weight in own.items()},
        tolerance(backend, dtype, layer),
    )


def test_function_layer_and_trace_are_one_computation(layer, backend, dtype):
    problem = random_problem(2, proposals=7, max_objects=5, masked=True, seed=11, layer=layer)
    attention, boxes, mask = inputs_of(problem, backend, dtype)
    counter = build_counter(problem, backend, dtype)
    weights = {name: weight[0] for name, weight in counter.named_parameters()}
    got = call(layer, attention, boxes, weights, max_objects=5, mask=mask, backend=backend)
    allowed = tolerance(backend, dtype, layer)._asdict()
    torch.testing.assert_close(got, counter(attention, boxes, mask), **allowed)
    torch.testing.assert_close(got, counter.explain(attention, boxes, mask).features, **allowed)


def test_ten_objects_are_the_default_and_no_objects_are_refused(layer):
    given = torch.rand(12, dtype=torch.float64), random_boxes(12, seed=13), weights_of(layer, seed=1)
    assert layer().max_objects == 10
    assert torch.equal(call(layer, *given), call(layer, *given, max_objects=10))
    for wrong in (0, -1, True, 1.0):
        with pytest.raises(InputError, match="max_objects"):
            call(layer, *given, max_objects=wrong)
