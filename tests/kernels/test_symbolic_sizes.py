"""Launchers under a compiler that traces them, as `torch.compile` does on a GPU, with kernels left out."""

import pytest
import sympy
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tallybox.counter import functional as counter
from tallybox.kernels.operators import Inputs
from tallybox.presence import functional as presence
from tallybox.presence.weights import initial_weights

pytest.importorskip("triton", reason="needs triton")


@pytest.mark.parametrize(
    ("functional", "weights"),
    [(counter, [torch.rand(1, 8, 16)]), (presence, initial_weights(heads=1, segments=16))],
    ids=["counter", "presence"],
)
def test_a_traced_call_serves_any_number_of_images(functional, weights):
    def call(attention, boxes, *weights):
        inputs = Inputs(attention, boxes, None, weights, 10, logits=False)
        route = {"backend": "triton", "launch": lambda step, *tensors: None}
        *results, state = functional.FUSED.forward(inputs, save_state=True, **route)
        grads = [results[0], *[None] * len(results[1:])]
        return functional.FUSED.backward(inputs, state, grads, boxes_need_grad=True, **route)

    traced = make_fx(call, tracing_mode="symbolic")(torch.rand(7, 10), torch.rand(7, 10, 4), *weights)
    images, boxes = next(iter(traced.graph.nodes)).meta["val"].shape
    assert not str(images).isdigit(), "compiled for 7 images alone"
    for guard in images.node.shape_env.guards:
        for number in (2, 3, 100, 1000):
            holds = guard.expr.subs({images.node.expr: number, boxes.node.expr: 10})
            assert holds != sympy.false, f"compiled again for {number} images, because of {guard.expr}"
