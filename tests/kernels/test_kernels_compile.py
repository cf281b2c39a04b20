"""Kernels for a GPU where there is none: compiled, for the interpreter passes what the compiler refuses, and traced."""

import os
import subprocess
import sys

import pytest
import sympy
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tallybox.counter import functional as counter
from tallybox.kernels.operators import Inputs
from tallybox.presence import functional as presence
from tallybox.presence.weights import initial_weights

pytest.importorskip("triton", reason="needs triton")


@pytest.mark.slow
def test_every_triton_kernel_compiles_for_an_h200():
    environment = {**os.environ, "TRITON_INTERPRET": ""}
    command = [sys.executable, "-m", "tests.support.compile_kernels"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "pair_gradient_kernel" in done.stdout
    assert "presence_backward_kernel" in done.stdout
    assert "table_backward_kernel" in done.stdout


@pytest.mark.parametrize(
    ("component", "weights"), [(counter.FUSED, [torch.rand(1, 8, 16)]), (presence.FUSED, initial_weights(1, 16))]
)
def test_a_call_that_a_compiler_traces_serves_any_number_of_images(component, weights):
    def call(attention, boxes, *weights):
        given = Inputs(attention, boxes, None, weights, 10, False), True, "triton"
        *results, state = component.forward(*given, launch=lambda *_: None)
        grads = [results[0], *[None] * len(results[1:])]
        return component.backward(given[0], state, grads, *given[1:], launch=lambda *_: None)

    traced = make_fx(call, tracing_mode="symbolic")(torch.rand(7, 10), torch.rand(7, 10, 4), *weights)
    images, boxes = (size.node for size in next(iter(traced.graph.nodes)).meta["val"].shape)
    assert not {str(images), str(boxes)} & {"7", "10"}, "compiled for this size alone"
    for guard in images.shape_env.guards:
        for number in (2, 3, 100, 1000):
            holds = guard.expr.subs({images.expr: number, boxes.expr: 10})
            assert holds != sympy.false, f"compiled again for {number} images, because of {guard.expr}"
