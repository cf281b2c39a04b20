from importlib import import_module

import pytest
import torch

from tallybox import Counter, PresenceCounter
from tests.support.problems import random_boxes

pytest.importorskip("numba")


@pytest.mark.parametrize(("counting_layer", "component"), [(Counter, "counter"), (PresenceCounter, "presence")])
def test_state_is_saved_only_where_a_backward_pass_may_follow(monkeypatch, counting_layer, component):
    launch = import_module(f"tallybox.{component}.cpu.launch")
    forward, saved = launch.forward, []

    def forward_noting_what_is_saved(inputs, results, state):
        saved.append(state.numel())
        forward(inputs, results, state)

    monkeypatch.setattr(launch, "forward", forward_noting_what_is_saved)
    model = counting_layer(max_objects=5, backend="cpu")
    attention, boxes = torch.linspace(0, 1, 15).view(3, 5), random_boxes(3, 5, seed=1).float()
    with_gradients = model(attention, boxes)
    with torch.no_grad():
        without = model(attention, boxes)
    frozen = model.requires_grad_(False)(attention, boxes)
    for_attention = model(attention.requires_grad_(), boxes)
    assert saved[0] > 0
    assert saved == [saved[0], 0, 0, saved[0]]
    assert all(torch.equal(with_gradients, other) for other in (without, frozen, for_attention))
