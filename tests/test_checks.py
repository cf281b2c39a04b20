"""Wrong inputs raise our errors and name the argument, from every way into a component."""

from functools import partial

import pytest
import torch

from tallybox import Counter, PresenceWeights, count_features, presence_features
from tallybox.errors import InputError, InputTypeError
from tallybox.presence.weights import initial_weights
from tests.support.problems import random_boxes

NAN, INF = float("nan"), float("inf")


def call_layer(attention, boxes, mask=None, *, logits=False, layer=Counter):
    return layer(3, logits=logits)(attention, boxes, mask)


def call_explain(attention, boxes, mask=None, *, logits=False, layer=Counter):
    return layer(3, logits=logits, heads=2).explain(attention, boxes, mask)


def call_function(attention, boxes, mask=None, *, logits=False, layer=Counter):
    if layer is Counter:
        return count_features(attention, boxes, torch.ones(8, 16), max_objects=3, mask=mask, logits=logits)
    return presence_features(attention, boxes, presence_weights(), max_objects=3, mask=mask, logits=logits)


@pytest.fixture(params=[call_layer, call_explain, call_function])
def call(request, layer):
    return partial(request.param, layer=layer)


def presence_weights(*leading: int) -> PresenceWeights:
    weights = initial_weights(heads=1, segments=16)
    return PresenceWeights(*(weight[0].expand((*leading, *weight.shape[1:])) for weight in weights))


def attention_of(*shape: int) -> torch.Tensor:
    return torch.full(shape, 0.5)


def boxes_of(*shape: int) -> torch.Tensor:
    return random_boxes(*shape, seed=0).float()


def mask_of(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.bool)


@pytest.mark.parametrize(
    ("attention", "boxes", "mask", "noun"),
    [
        pytest.param(attention_of(), boxes_of(1), None, "attention", id="single number"),
        pytest.param(attention_of(2, 5), boxes_of(2, 5)[..., :3], None, r"boxes .*2, 5, 3", id="three numbers a box"),
        pytest.param(attention_of(2, 5), boxes_of(2, 5).mT, None, "boxes .*transpose", id="boxes transposed"),
        pytest.param(attention_of(2, 5), boxes_of(2, 6), None, "boxes", id="numbers differ"),
        pytest.param(attention_of(2, 5), boxes_of(3, 5), None, r"leading .*\[2\], \[3\]", id="batches differ"),
        pytest.param(attention_of(5), boxes_of(5), torch.tensor(True), "mask", id="mask a single number"),
        pytest.param(attention_of(2, 5), boxes_of(2, 5), mask_of(3, 5), "leading", id="mask of another batch"),
    ],
)
def test_wrong_shapes_are_named(call, attention, boxes, mask, noun):
    with pytest.raises(InputError, match=noun):
        call(attention, boxes, mask)


@pytest.mark.parametrize(
    ("attention", "boxes", "mask", "noun"),
    [
        pytest.param([0.5, 0.5], boxes_of(2), None, "attention .*list", id="attention a list"),
        pytest.param(torch.ones(2, dtype=torch.long), boxes_of(2), None, "attention .*int64", id="integers"),
        pytest.param(attention_of(2), boxes_of(2).cfloat(), None, "boxes .*complex", id="complex boxes"),
        pytest.param(attention_of(2), boxes_of(2), torch.ones(2), "mask .*float32", id="mask of numbers"),
    ],
)
def test_wrong_types_are_named(call, attention, boxes, mask, noun):
    with pytest.raises(InputTypeError, match=noun):
        call(attention, boxes, mask)


@pytest.mark.parametrize("value", [NAN, INF, -INF, 1.5, -0.2, 1.00001])
def test_attention_outside_the_unit_interval_hints_at_logits(call, value):
    attention = attention_of(2, 4)
    attention[1, 2] = value
    with pytest.raises(InputError, match=r"attention .*\[1, 2\].*logits"):
        call(attention, boxes_of(2, 4))


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_logits_and_corners_that_are_not_finite_hint_at_the_mask(call, value):
    with pytest.raises(InputError, match=r"attention .*\[1\].*mask"):
        call(torch.tensor([3.0, value, -2.0]), boxes_of(3), logits=True)
    boxes = boxes_of(2, 3)
    boxes[1, 0, 3] = value
    with pytest.raises(InputError, match=r"boxes .*\[1, 0\].*mask"):
        call(attention_of(2, 3), boxes)


def test_any_finite_logits_are_fine(call):
    assert call(torch.tensor([-1e30, 0.0, 1e30]), boxes_of(3), logits=True) is not None


@pytest.mark.parametrize("value", [1 + 5e-7, -5e-7])
def test_a_rounding_error_beyond_the_unit_interval_is_no_mistake(layer, value):
    features = call_layer(torch.tensor([value, 0.5], dtype=torch.float64), boxes_of(2).double(), layer=layer)
    assert features.isfinite().all()


@pytest.mark.parametrize(
    "box",
    [[0.5, 0.5, 0.25, 0.75], [0.5, 0.5, 0.75, 0.25], [100.0, 80.0, 50.0, 40.0]],
    ids=["x2 below x1", "y2 below y1", "left, top, width, height"],
)
def test_corners_out_of_order_hint_at_the_format(call, box):
    boxes = boxes_of(3)
    boxes[1] = torch.tensor(box)
    with pytest.raises(InputError, match=r"boxes .*\[1\].*box_xywh_to_xyxy"):
        call(attention_of(3), boxes)


@pytest.mark.parametrize("scale", [1e18, 1e30])
def test_boxes_whose_areas_float32_cannot_hold_are_refused(call, scale):
    with pytest.raises(InputError, match=r"boxes .*wide"):
        call(attention_of(3), boxes_of(3) * scale)
    call(attention_of(3), boxes_of(3) * scale, mask_of(3) & False)


def test_bad_values_in_masked_places_are_no_mistake(call):
    attention = torch.tensor([[0.5, NAN, 7.0], [0.5, 0.5, INF]])
    boxes = boxes_of(2, 3)
    boxes[0, 1:] = NAN
    boxes[1, 2] = torch.tensor([3.0, 3.0, 1.0, 1.0])
    assert call(attention, boxes, torch.tensor([[True, False, False], [True, True, False]])) is not None


def test_a_bad_value_is_found_beside_a_mask(call):
    with pytest.raises(InputError, match=r"attention .*7\.0 .*\[2\]"):
        call(torch.tensor([0.5, NAN, 7.0]), boxes_of(3), torch.tensor([True, False, True]))
    boxes = boxes_of(3)
    boxes[2] = NAN
    with pytest.raises(InputError, match=r"boxes .*\[1, 2\]"):
        call(attention_of(3), boxes, torch.tensor([[True, True, False], [True, True, True]]))


@pytest.mark.parametrize(
    "weight",
    [torch.ones(7, 16), torch.ones(16), torch.ones(8, 0), torch.ones(2, 16, 8), torch.ones(8, 16, dtype=torch.long)],
    ids=lambda weight: f"{weight.dtype} {tuple(weight.shape)}",
)
def test_wrong_weights_of_the_counter_are_named(weight):
    with pytest.raises(InputError, match="weight"):
        count_features(attention_of(3), boxes_of(3), weight)


@pytest.mark.parametrize(
    ("changed", "noun"),
    [
        pytest.param({"overlap": torch.ones(8, 8)}, r"weights\.overlap", id="a table without its last column"),
        pytest.param({"evidence": torch.ones(3, 8, 9)}, r"weights\.evidence", id="evidence of several counters"),
        pytest.param({"slope": torch.ones(3)}, r"weights\.shift", id="a slope of several counters"),
        pytest.param({"headroom": 0.0}, r"weights\.headroom", id="a plain number"),
        pytest.param({"slope": torch.ones((), device="meta")}, r"weights\.slope .*meta", id="another device"),
        pytest.param({"calibration": torch.ones(0), "order": torch.ones(0)}, r"weights\.calibration", id="no segment"),
    ],
)
def test_wrong_weights_of_presence_counting_are_named(changed, noun):
    with pytest.raises(InputError, match=noun):
        presence_features(attention_of(3), boxes_of(3), presence_weights()._replace(**changed))


def test_weights_that_do_not_broadcast_are_an_error():
    with pytest.raises(InputError, match=r"\[2\], \[2\], \[3\]"):
        count_features(attention_of(2, 4), boxes_of(2, 4), torch.ones(3, 8, 16))
    with pytest.raises(InputError, match=r"\[2\], \[2\], \[3\]"):
        presence_features(attention_of(2, 4), boxes_of(2, 4), presence_weights(3))


@pytest.mark.parametrize("name", ["boxes", "mask"])
def test_inputs_on_different_devices_are_an_error(layer, name):
    inputs = {"boxes": boxes_of(3), "mask": mask_of(3)}
    inputs[name] = inputs[name].to("meta")
    with pytest.raises(InputError, match=f"{name} .*meta"):
        call_layer(attention_of(3), **inputs, layer=layer)


@pytest.mark.parametrize("name", ["max_objects", "heads", "segments"])
def test_sizes_of_a_counter_are_whole_numbers_of_at_least_one(layer, name):
    with pytest.raises(InputError, match=name):
        layer(**{name: 0})
    for value in (2.0, "3", True, None):
        with pytest.raises(InputTypeError, match=name):
            layer(**{name: value})
