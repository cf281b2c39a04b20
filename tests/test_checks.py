"""What a user reads when an input is wrong: what was expected, what came, what to do."""

import re
from functools import partial

import pytest
import torch

from tallybox import Counter, PresenceWeights, TallyboxError, count_features, presence_features
from tallybox.errors import InputError, InputTypeError
from tallybox.presence.weights import initial_weights
from tests.support.problems import random_boxes

NAN, INF = float("nan"), float("inf")


def call_layer(attention, boxes, mask=None, *, logits=False, layer=Counter):
    return layer(3, logits=logits)(attention, boxes, mask)


def call_count(attention, boxes, mask=None, *, logits=False, layer=Counter):
    return layer(3, logits=logits, heads=2).count(attention, boxes, mask)


def call_explain(attention, boxes, mask=None, *, logits=False, layer=Counter):
    return layer(3, logits=logits).explain(attention, boxes, mask)


def call_function(attention, boxes, mask=None, *, logits=False, layer=Counter):
    if layer is Counter:
        return count_features(attention, boxes, torch.ones(8, 16), max_objects=3, mask=mask, logits=logits)
    return presence_features(attention, boxes, good_presence_weights(), max_objects=3, mask=mask, logits=logits)


@pytest.fixture(params=[call_layer, call_count, call_explain, call_function])
def call(request, layer):
    """Every way into a component: a user reads the same line from each."""
    return partial(request.param, layer=layer)


def good_presence_weights(*leading: int) -> PresenceWeights:
    weights = initial_weights(heads=1, segments=16)
    return PresenceWeights(*(weight[0].expand((*leading, *weight.shape[1:])) for weight in weights))


def good_attention(*shape: int) -> torch.Tensor:
    return torch.full(shape, 0.5)


def good_boxes(*shape: int) -> torch.Tensor:
    return random_boxes(*shape, seed=0).float()


WRONG_SHAPES = {
    "single number": (
        good_attention(),
        good_boxes(1),
        None,
        "attention must have shape [..., N], but got a single number; add a dimension",
    ),
    "boxes of three numbers": (
        good_attention(2, 5),
        good_boxes(2, 5)[..., :3],
        None,
        "boxes must have shape [..., N, 4], but got [2, 5, 3]",
    ),
    "one box": (good_attention(4), good_boxes(4)[0], None, "boxes must have shape [..., N, 4], but got [4]"),
    "boxes transposed": (
        good_attention(2, 5),
        good_boxes(2, 5).mT,
        None,
        "boxes must have shape [..., N, 4], but got [2, 4, 5]; transpose it (tallybox.compat takes [B, 4, N])",
    ),
    "numbers differ": (
        good_attention(2, 5),
        good_boxes(2, 6),
        None,
        "boxes must have one box for each of the 5 weights of attention [2, 5], but got [2, 6, 4]",
    ),
    "batches differ": (
        good_attention(2, 5),
        good_boxes(3, 5),
        None,
        "leading dimensions of attention, boxes, weight and mask must broadcast, but got [2], [3]",
    ),
    "mask too short": (
        good_attention(2, 5),
        good_boxes(2, 5),
        torch.ones(2, 4, dtype=torch.bool),
        "mask must have shape [..., 5] like attention [2, 5], but got [2, 4]",
    ),
    "mask a single number": (
        good_attention(5),
        good_boxes(5),
        torch.tensor(True),
        "mask must have shape [..., 5] like attention [5], but got []",
    ),
    "mask of another batch": (
        good_attention(2, 5),
        good_boxes(2, 5),
        torch.ones(3, 5, dtype=torch.bool),
        "leading dimensions of attention, boxes, weight and mask must broadcast, but got [2], [2]",
    ),
}


@pytest.mark.parametrize("name", WRONG_SHAPES)
def test_wrong_shapes_say_what_was_expected_and_what_came(call, name):
    attention, boxes, mask, message = WRONG_SHAPES[name]
    with pytest.raises(InputError, match=re.escape(message)):
        call(attention, boxes, mask)


WRONG_TYPES = {
    "attention a list": (
        [0.5, 0.5],
        good_boxes(2),
        None,
        "attention must be a torch tensor, but got list; wrap it in torch.as_tensor",
    ),
    "boxes an array": (
        good_attention(2),
        good_boxes(2).numpy(),
        None,
        "boxes must be a torch tensor, but got ndarray; wrap it in torch.as_tensor",
    ),
    "attention of integers": (
        torch.ones(2, dtype=torch.long),
        good_boxes(2),
        None,
        "attention must be a floating point tensor, but got torch.int64; call .float() on it",
    ),
    "boxes of integers": (
        good_attention(2),
        good_boxes(2).int(),
        None,
        "boxes must be a floating point tensor, but got torch.int32; call .float() on it",
    ),
    "mask of numbers": (
        good_attention(2),
        good_boxes(2),
        torch.ones(2),
        "mask must be a bool tensor, True for a real proposal, but got torch.float32; call .bool()",
    ),
    "mask a list": (
        good_attention(2),
        good_boxes(2),
        [True, False],
        "mask must be a bool tensor, True for a real proposal, but got list",
    ),
}


@pytest.mark.parametrize("name", WRONG_TYPES)
def test_wrong_types_say_what_to_call(call, name):
    attention, boxes, mask, message = WRONG_TYPES[name]
    with pytest.raises(InputTypeError, match=re.escape(message)):
        call(attention, boxes, mask)


@pytest.mark.parametrize("value", [NAN, INF, -INF, 1.5, -0.2, 1.00001])
def test_attention_outside_the_unit_interval_hints_at_logits(call, value):
    attention = good_attention(2, 4)
    attention[1, 2] = value
    expected = f"attention must be in [0, 1], but got {attention[1, 2].item()} at index [1, 2]; pass logits=True"
    with pytest.raises(InputError, match=re.escape(expected)):
        call(attention, good_boxes(2, 4))


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_logits_that_are_not_finite_hint_at_the_mask(call, value):
    attention = torch.tensor([3.0, value, -2.0])
    expected = f"attention must be finite, but got {value} at index [1]; use mask to leave proposals out"
    with pytest.raises(InputError, match=re.escape(expected)):
        call(attention, good_boxes(3), logits=True)


def test_any_finite_logits_are_fine(call):
    assert call(torch.tensor([-1e30, 0.0, 1e30]), good_boxes(3), logits=True) is not None


@pytest.mark.parametrize("value", [1 + 5e-7, -5e-7])
def test_a_rounding_error_beyond_the_unit_interval_is_no_mistake(layer, value):
    features = call_layer(torch.tensor([value, 0.5], dtype=torch.float64), good_boxes(2).double(), layer=layer)
    assert features.isfinite().all()


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_corners_that_are_not_finite_hint_at_the_mask(call, value):
    boxes = good_boxes(2, 3)
    boxes[1, 0, 3] = value
    pattern = r"boxes must be finite, but got \[.*(nan|inf).*\] at index \[1, 0\]; use mask to leave proposals out"
    with pytest.raises(InputError, match=pattern):
        call(good_attention(2, 3), boxes)


@pytest.mark.parametrize(
    "box",
    [[0.5, 0.5, 0.25, 0.75], [0.5, 0.5, 0.75, 0.25], [100.0, 80.0, 50.0, 40.0]],
    ids=["x2 below x1", "y2 below y1", "left, top, width, height"],
)
def test_corners_out_of_order_hint_at_the_format(call, box):
    boxes = good_boxes(3)
    boxes[1] = torch.tensor(box)
    expected = (
        f"boxes must be corners x1 y1 x2 y2 with x1 <= x2 and y1 <= y2, but got {box} at index [1]; "
        "if they are left, top, width, height, convert them with tallybox.box_xywh_to_xyxy"
    )
    with pytest.raises(InputError, match=re.escape(expected)):
        call(good_attention(3), boxes)


def test_bad_values_in_masked_places_are_no_mistake(call):
    attention = torch.tensor([[0.5, NAN, 7.0], [0.5, 0.5, INF]])
    boxes = good_boxes(2, 3)
    boxes[0, 1:] = NAN
    boxes[1, 2] = torch.tensor([3.0, 3.0, 1.0, 1.0])
    assert call(attention, boxes, torch.tensor([[True, False, False], [True, True, False]])) is not None


def test_a_bad_value_is_found_beside_a_mask(call):
    attention = torch.tensor([0.5, NAN, 7.0])
    with pytest.raises(InputError, match=re.escape("attention must be in [0, 1], but got 7.0 at index [2]")):
        call(attention, good_boxes(3), torch.tensor([True, False, True]))


def test_a_bad_box_is_found_where_only_the_mask_has_a_batch(call):
    boxes = good_boxes(3)
    boxes[2] = NAN
    mask = torch.tensor([[True, True, False], [True, True, True]])
    with pytest.raises(InputError, match=r"boxes must be finite, but got \[nan, nan, nan, nan\] at index \[1, 2\]"):
        call(good_attention(3), boxes, mask)


@pytest.mark.parametrize("shape", [(7, 16), (16,), (8, 0), (2, 16, 8)], ids=str)
def test_weight_of_another_shape_is_an_error(shape):
    expected = f"weight must have shape [..., 8, segments], one row for each activation, but got {list(shape)}"
    with pytest.raises(InputError, match=re.escape(expected)):
        count_features(good_attention(3), good_boxes(3), torch.ones(shape))


def test_weight_that_does_not_broadcast_is_an_error():
    with pytest.raises(InputError, match=re.escape("must broadcast, but got [2], [2], [3]")):
        count_features(good_attention(2, 4), good_boxes(2, 4), torch.ones(3, 8, 16))


def test_weight_of_integers_is_an_error():
    with pytest.raises(InputTypeError, match=r"weight must be a floating point tensor, but got torch\.int64"):
        count_features(good_attention(3), good_boxes(3), torch.ones(8, 16, dtype=torch.long))


WRONG_WEIGHTS = {
    "another number of segments": ({"order": torch.ones(8)}, "weights.order must have shape [16], but got [8]"),
    "a table without its last column": (
        {"overlap": torch.ones(8, 8)},
        "weights.overlap must have shape [8, 9], but got [8, 8]",
    ),
    "evidence of several counters": (
        {"evidence": torch.ones(3, 8, 9)},
        "weights.evidence must have shape [8, 9], but got [3, 8, 9]",
    ),
    "a slope of several counters": (
        {"slope": torch.ones(3)},
        "weights.shift must have shape [3], but got []",
    ),
    "whole numbers": (
        {"step": torch.ones((), dtype=torch.long)},
        "weights.step must be a floating point tensor, but got torch.int64; call .float() on it",
    ),
    "a plain number": (
        {"headroom": 0.0},
        "weights.headroom must be a torch tensor, but got float; wrap it in torch.as_tensor",
    ),
}


@pytest.mark.parametrize("name", WRONG_WEIGHTS)
def test_wrong_weights_of_presence_counting_are_named(name):
    changed, message = WRONG_WEIGHTS[name]
    with pytest.raises(InputError, match=re.escape(message)):
        presence_features(good_attention(3), good_boxes(3), good_presence_weights()._replace(**changed))


def test_weights_of_presence_counting_on_another_device_are_an_error():
    weights = PresenceWeights(*(weight.to("meta") for weight in good_presence_weights()))
    with pytest.raises(InputError, match=r"weights\.slope must be on cpu like attention, but got meta"):
        presence_features(good_attention(3), good_boxes(3), weights)


@pytest.mark.parametrize("shape", [(0,), ()], ids=str)
def test_functions_of_presence_counting_need_at_least_one_segment(shape):
    weights = good_presence_weights()._replace(calibration=torch.ones(shape), order=torch.ones(shape))
    with pytest.raises(InputError, match=re.escape("weights.calibration must have shape [segments]")):
        presence_features(good_attention(3), good_boxes(3), weights)


@pytest.mark.parametrize("name", ["slope", "calibration"])
def test_weights_of_presence_counting_that_are_no_tensors_are_named(name):
    weights = good_presence_weights()._replace(**{name: 1.0})
    with pytest.raises(InputTypeError, match=rf"weights\.{name} must be a torch tensor, but got float"):
        presence_features(good_attention(3), good_boxes(3), weights)


def test_weights_of_presence_counting_that_do_not_broadcast_are_an_error():
    with pytest.raises(InputError, match=re.escape("must broadcast, but got [2], [2], [3]")):
        presence_features(good_attention(2, 4), good_boxes(2, 4), good_presence_weights(3))


@pytest.mark.parametrize("value", [0, -1])
def test_presence_counting_needs_at_least_one_object(value):
    with pytest.raises(InputError, match=f"max_objects must be at least 1, but got {value}"):
        presence_features(good_attention(2), good_boxes(2), good_presence_weights(), max_objects=value)


@pytest.mark.parametrize("name", ["boxes", "mask"])
def test_inputs_on_different_devices_are_an_error(layer, name):
    inputs = {"boxes": good_boxes(3), "mask": torch.ones(3, dtype=torch.bool)}
    inputs[name] = inputs[name].to("meta")
    with pytest.raises(InputError, match=f"{name} must be on cpu like attention, but got meta"):
        call_layer(good_attention(3), **inputs, layer=layer)


@pytest.mark.parametrize("name", ["max_objects", "heads", "segments"])
def test_sizes_of_a_counter_must_be_whole_numbers_of_at_least_one(layer, name):
    with pytest.raises(InputError, match=f"{name} must be at least 1, but got 0"):
        layer(**{name: 0})
    for value in (2.0, "3", True, None):
        with pytest.raises(InputTypeError, match=re.escape(f"{name} must be a whole number, but got {value!r}")):
            layer(**{name: value})


@pytest.mark.parametrize("family", [TallyboxError, ValueError])
def test_every_bad_input_is_caught_as_ours_and_as_a_value_error(family):
    with pytest.raises(family, match="attention must be in"):
        call_layer(torch.tensor([2.0]), good_boxes(1))
    with pytest.raises(family, match="attention must be a floating point tensor"):
        call_layer(torch.ones(1, dtype=torch.long), good_boxes(1))
    with pytest.raises(family, match="boxes must have shape"):
        call_layer(good_attention(1), torch.ones(1, 3))


def test_a_wrong_type_is_also_a_type_error():
    with pytest.raises(TypeError, match="attention must be a torch tensor"):
        call_layer([1.0], good_boxes(1))
