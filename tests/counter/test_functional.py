import pytest
import torch

from tallybox import Counter, count_features
from tallybox.errors import InputError, InputTypeError
from tests.support import oracle
from tests.support.backends import device_of
from tests.support.problems import (
    build_counter,
    inputs_of,
    random_boxes,
    random_generator,
    random_problem,
    random_weight,
)
from tests.support.tolerances import tolerance


def features(backend, dtype, attention, boxes, weight, **options):
    """Call `count_features` where the backend wants it and bring the result back."""
    device = device_of(backend)
    mask = options.pop("mask", None)
    got = count_features(
        attention.to(device, dtype),
        boxes.to(device, dtype),
        weight.to(device, dtype),
        mask=None if mask is None else mask.to(device),
        backend=backend,
        **options,
    )
    assert got.dtype == dtype
    return got.to("cpu", torch.float64)


def random_attention(*shape: int, seed: int) -> torch.Tensor:
    return torch.rand(*shape, generator=random_generator(seed), dtype=torch.float64)


@pytest.mark.parametrize("proposals", [4, 5, 8], ids=["below", "at", "above"])
@pytest.mark.parametrize("masked", [False, True], ids=["unmasked", "masked"])
def test_many_counters_in_one_call_are_those_of_the_loop_oracle(backend, dtype, proposals, masked):
    models, images = 3, 2
    attention = random_attention(models, images, proposals, seed=0)
    boxes = random_boxes(models, images, proposals, seed=1)
    weight = random_weight(models, 1, 8, 16, seed=2)
    mask = random_attention(models, images, proposals, seed=3) < 0.6 if masked else None
    got = features(backend, dtype, attention, boxes, weight, max_objects=5, mask=mask)
    assert got.shape == (models, images, 6)
    for model in range(models):
        for image in range(images):
            answer = oracle.answer(
                attention[model, image].tolist(),
                boxes[model, image].tolist(),
                weight[model, 0].tolist(),
                max_objects=5,
                mask=None if mask is None else mask[model, image].tolist(),
            )
            expected = torch.tensor(answer.features, dtype=torch.float64)
            torch.testing.assert_close(got[model, image], expected, **tolerance(backend, dtype)._asdict())


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
    ],
    ids=str,
)
@pytest.mark.parametrize("proposals", [5, 7], ids=["all kept", "some kept"])
def test_leading_dimensions_broadcast(
    backend, dtype, proposals, weight_shape, attention_shape, boxes_shape, mask_shape, leading
):
    attention = random_attention(*attention_shape, proposals, seed=4)
    boxes = random_boxes(*boxes_shape, proposals, seed=5)
    weight = random_weight(*weight_shape, 8, 16, seed=6)
    mask = None if mask_shape is None else random_attention(*mask_shape, proposals, seed=7) < 0.7
    got = features(backend, dtype, attention, boxes, weight, mask=mask, max_objects=5)
    assert got.shape == (*leading, 6)
    expected = features(
        backend,
        dtype,
        attention.expand(*leading, proposals).contiguous(),
        boxes.expand(*leading, proposals, 4).contiguous(),
        weight.expand(*leading, 8, 16).contiguous(),
        mask=None if mask is None else mask.expand(*leading, proposals).contiguous(),
        max_objects=5,
    )
    torch.testing.assert_close(got, expected, **tolerance(backend, dtype)._asdict())


def test_gradients_of_a_broadcast_weight_are_sums_over_the_images(backend, dtype):
    device = device_of(backend)
    attention = random_attention(2, 3, 6, seed=8).to(device, dtype)
    boxes = random_boxes(2, 3, 6, seed=9).to(device, dtype)
    shared = random_weight(2, 1, 8, 16, seed=10).to(device, dtype).requires_grad_()
    own = shared.detach().repeat(1, 3, 1, 1).requires_grad_()
    for weight in (shared, own):
        count_features(attention, boxes, weight, max_objects=5, backend=backend).pow(2).sum().backward()
    torch.testing.assert_close(shared.grad, own.grad.sum(1, keepdim=True), **tolerance(backend, dtype)._asdict())


def test_function_and_layer_are_one_computation(backend, dtype):
    problem = random_problem(2, proposals=7, max_objects=5, masked=True, seed=11)
    attention, boxes, mask = inputs_of(problem, backend, dtype)
    counter = build_counter(problem, backend, dtype)
    got = count_features(attention, boxes, counter.weight[0], max_objects=5, mask=mask, backend=backend)
    torch.testing.assert_close(got, counter(attention, boxes, mask), **tolerance(backend, dtype)._asdict())


def test_logits_give_what_their_logistic_gives(backend, dtype):
    problem = random_problem(2, proposals=7, max_objects=5, logits=True, seed=12)
    weight = problem.weight[0]
    got = features(backend, dtype, problem.attention, problem.boxes, weight, max_objects=5, logits=True)
    expected = features(backend, dtype, problem.attention.sigmoid(), problem.boxes, weight, max_objects=5)
    torch.testing.assert_close(got, expected, **tolerance(backend, dtype)._asdict())


def test_ten_objects_are_the_default(backend):
    device = device_of(backend)
    attention, boxes = torch.rand(12, device=device), random_boxes(12, seed=13).float().to(device)
    weight = torch.ones(8, 16, device=device)
    got = count_features(attention, boxes, weight, backend=backend)
    assert got.shape == (11,)
    torch.testing.assert_close(got, count_features(attention, boxes, weight, max_objects=10, backend=backend))
    assert Counter().max_objects == 10


def test_what_equals_a_number_is_still_not_one():
    given = (torch.ones(1), torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.ones(8, 16))
    count_features(*given, max_objects=1)
    for wrong in (True, 1.0):
        with pytest.raises(InputTypeError, match="max_objects must be a whole number"):
            count_features(*given, max_objects=wrong)
    with pytest.raises(InputError, match="at least 1"):
        count_features(*given, max_objects=0)
