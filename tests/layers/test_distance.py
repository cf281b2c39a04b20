"""Layers over any pairwise dissimilarity instead of boxes."""

import pytest
import torch

from tallybox import Counter, InputError, PresenceWeights, box_iou, count_features, presence_features
from tallybox.errors import BackendError
from tests.support.backends import FUSED
from tests.support.problems import OUTPUTS, build_counter, cotangent, inputs_of, random_problem
from tests.support.tolerances import tolerance

CASES = pytest.mark.parametrize(("proposals", "masked", "heads"), [(6, False, 1), (9, True, 2)])


@CASES
def test_one_minus_the_iou_gives_the_results_and_gradients_of_the_boxes(layer, proposals, masked, heads):
    problem = random_problem(3, proposals=proposals, max_objects=6, heads=heads, masked=masked, seed=1, layer=layer)
    counter = build_counter(problem, "reference", torch.float64)
    results = []
    for given in ("boxes", "distance"):
        attention, boxes, mask = inputs_of(problem, "reference", torch.float64)
        pairwise = {"boxes": boxes} if given == "boxes" else {"distance": 1 - box_iou(boxes, boxes)}
        outputs = {
            name: getattr(counter, name)(attention, mask=mask, **pairwise) for name in (*OUTPUTS[layer], "forward")
        }
        counter.zero_grad()
        torch.autograd.backward(list(outputs.values()), [cotangent(value) for value in outputs.values()])
        gradients = [attention.grad, boxes.grad, *(parameter.grad for parameter in counter.parameters())]
        results.append([*outputs.values(), *gradients])
    torch.testing.assert_close(*results, **tolerance("reference", torch.float64, layer)._asdict())


def test_the_trace_and_the_functions_take_distances(layer):
    problem = random_problem(2, proposals=6, max_objects=6, seed=2, layer=layer)
    counter = build_counter(problem, "reference", torch.float64)
    distance = 1 - box_iou(problem.boxes, problem.boxes)
    trace = counter.explain(problem.attention, distance=distance)
    assert trace.boxes is None
    assert trace.to_dict()["boxes"] is None
    torch.testing.assert_close(trace.features, counter(problem.attention, problem.boxes))
    if layer is Counter:
        got = count_features(problem.attention, None, counter.weight, max_objects=6, distance=distance)
    else:
        weights = PresenceWeights(*(weight[0] for weight in counter.weights))
        got = presence_features(problem.attention, None, weights, max_objects=6, distance=distance)
    torch.testing.assert_close(got, trace.features)


def test_masked_and_own_distances_may_hold_anything(layer):
    attention, mask = torch.rand(4), torch.tensor([True, True, True, False])
    distance = torch.rand(4, 4)
    junk = distance.clone().fill_diagonal_(0.7)
    junk[3], junk[:, 3] = torch.nan, 5.0
    torch.testing.assert_close(
        layer()(attention, mask=mask, distance=junk), layer()(attention[:3], distance=distance[:3, :3])
    )


def test_wrong_distances_are_refused(layer):
    counter, attention, boxes = layer(), torch.rand(2, 4), torch.rand(2, 4, 4).sort(-1).values
    with pytest.raises(InputError, match="boxes or distance"):
        counter(attention)
    with pytest.raises(InputError, match="exclude"):
        counter(attention, boxes, distance=torch.zeros(2, 4, 4))
    with pytest.raises(InputError, match=r"distance .*4, 4"):
        counter(attention, distance=torch.zeros(2, 4, 3))
    with pytest.raises(InputError, match=r"distance .*1\.5"):
        counter(attention, distance=torch.full((2, 4, 4), 1.5))
    with pytest.raises(TypeError, match="distance"):
        counter(attention, distance=torch.zeros(2, 4, 4, dtype=torch.int))


@pytest.mark.parametrize("fused", FUSED)
def test_a_fused_backend_refuses_distances(layer, fused):
    with pytest.raises(BackendError, match="distance"):
        layer(backend=fused)(torch.rand(4), distance=torch.rand(4, 4))
