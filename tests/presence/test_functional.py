import pytest
import torch

from tallybox import PresenceCounter, PresenceWeights, presence_features
from tests.support.backends import device_of
from tests.support.problems import (
    assert_same,
    build_counter,
    inputs_of,
    random_boxes,
    random_generator,
    random_presence_weights,
    random_problem,
)
from tests.support.tolerances import tolerance


def map_weights(change, weights: PresenceWeights) -> PresenceWeights:
    return PresenceWeights(*(change(weight) for weight in weights))


def features(backend, dtype, attention, boxes, weights, **options):
    """Call `presence_features` where the backend wants it and bring the result back."""
    device = device_of(backend)
    mask = options.pop("mask", None)
    got = presence_features(
        attention.to(device, dtype),
        boxes.to(device, dtype),
        map_weights(lambda weight: weight.to(device, dtype), weights),
        mask=None if mask is None else mask.to(device),
        backend=backend,
        **options,
    )
    assert got.dtype == dtype
    return got.to("cpu", torch.float64)


def random_attention(*shape: int, seed: int) -> torch.Tensor:
    return torch.rand(*shape, generator=random_generator(seed), dtype=torch.float64)


@pytest.mark.parametrize("masked", [False, True], ids=["unmasked", "masked"])
@pytest.mark.parametrize("images", [1, 3])
def test_many_counters_in_one_call_equal_a_loop_over_them(backend, dtype, masked, images):
    models, proposals = 3, 7
    attention = random_attention(models, images, proposals, seed=0)
    boxes = random_boxes(models, images, proposals, seed=1)
    weights = random_presence_weights(models, 1, seed=2)
    mask = random_attention(models, images, proposals, seed=3) < 0.6 if masked else None
    got = features(backend, dtype, attention, boxes, weights, max_objects=5, mask=mask)
    assert got.shape == (models, images, 7)
    for model in range(models):
        layer = PresenceCounter(5, backend=backend).to(device_of(backend), dtype)
        layer.load_state_dict({name: value[model] for name, value in weights._asdict().items()})
        for image in range(images):
            given = [attention[model, image], boxes[model, image], None if mask is None else mask[model, image]]
            moved = [
                value
                if value is None
                else value.to(device_of(backend), torch.bool if value.dtype is torch.bool else dtype)
                for value in given
            ]
            expected = layer(*moved).detach().to("cpu", torch.float64)
            torch.testing.assert_close(
                got[model, image], expected, **tolerance(backend, dtype, PresenceCounter)._asdict()
            )


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
def test_leading_dimensions_broadcast(backend, dtype, weight_shape, attention_shape, boxes_shape, mask_shape, leading):
    proposals = 6
    attention = random_attention(*attention_shape, proposals, seed=4)
    boxes = random_boxes(*boxes_shape, proposals, seed=5)
    weights = random_presence_weights(*weight_shape, seed=6)
    mask = None if mask_shape is None else random_attention(*mask_shape, proposals, seed=7) < 0.7
    got = features(backend, dtype, attention, boxes, weights, mask=mask, max_objects=5)
    assert got.shape == (*leading, 7)
    expected = features(
        backend,
        dtype,
        attention.expand(*leading, proposals).contiguous(),
        boxes.expand(*leading, proposals, 4).contiguous(),
        map_weights(
            lambda weight: (
                weight.expand(*leading, *weight.shape[len(weight_shape) :]).contiguous() if leading else weight
            ),
            weights,
        ),
        mask=None if mask is None else mask.expand(*leading, proposals).contiguous(),
        max_objects=5,
    )
    torch.testing.assert_close(got, expected, **tolerance(backend, dtype, PresenceCounter)._asdict())


def test_gradients_of_broadcast_weights_are_sums_over_the_images(backend, dtype):
    device = device_of(backend)
    attention = random_attention(2, 3, 6, seed=8).to(device, dtype)
    boxes = random_boxes(2, 3, 6, seed=9).to(device, dtype)
    shared = map_weights(lambda w: w.to(device, dtype).requires_grad_(), random_presence_weights(2, 1, seed=10))
    own = map_weights(lambda w: w.detach().repeat(1, 3, *[1] * (w.dim() - 2)).requires_grad_(), shared)
    for weights in (shared, own):
        presence_features(attention, boxes, weights, max_objects=5, backend=backend).pow(2).sum().backward()
    assert_same(
        {name: weight.grad for name, weight in shared._asdict().items()},
        {name: weight.grad.sum(1, keepdim=True) for name, weight in own._asdict().items()},
        tolerance(backend, dtype, PresenceCounter),
    )


def test_function_layer_and_trace_are_one_computation(backend, dtype):
    problem = random_problem(2, proposals=7, max_objects=5, masked=True, seed=11, layer=PresenceCounter)
    attention, boxes, mask = inputs_of(problem, backend, dtype)
    layer = build_counter(problem, backend, dtype)
    weights = map_weights(lambda weight: weight[0], layer.weights)
    got = presence_features(attention, boxes, weights, max_objects=5, mask=mask, backend=backend)
    allowed = tolerance(backend, dtype, PresenceCounter)._asdict()
    torch.testing.assert_close(got, layer(attention, boxes, mask), **allowed)
    trace = layer.explain(attention, boxes, mask)
    torch.testing.assert_close(got, trace.features, **allowed)


def test_ten_objects_are_the_default(backend):
    device = device_of(backend)
    attention, boxes = torch.rand(12, device=device), random_boxes(12, seed=13).float().to(device)
    weights = map_weights(lambda weight: weight[0].detach(), PresenceCounter().to(device).weights)
    assert presence_features(attention, boxes, weights, backend=backend).shape == (12,)
    assert PresenceCounter().max_objects == 10


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_comes_back_as_float32_and_double_stays(backend, half):
    device = device_of(backend)
    attention, boxes = torch.full((2,), 0.5, device=device), random_boxes(2, seed=14).float().to(device)
    weights = map_weights(lambda weight: weight[0].detach(), PresenceCounter().to(device).weights)
    got = presence_features(attention.to(half), boxes.to(half), weights, backend=backend)
    assert got.dtype == torch.float32
    if backend != "triton":
        assert presence_features(attention.double(), boxes.double(), weights, backend=backend).dtype == torch.float64


def test_auto_gives_what_the_reference_gives():
    attention, boxes = torch.rand(2, 5), random_boxes(2, 5, seed=1).float()
    weights = map_weights(lambda weight: weight.float(), random_presence_weights(2, seed=2))
    torch.testing.assert_close(
        presence_features(attention, boxes, weights, backend="auto"),
        presence_features(attention, boxes, weights, backend="reference"),
        **tolerance("cpu", torch.float32, PresenceCounter)._asdict(),
    )
