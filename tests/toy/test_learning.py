from functools import cache

import torch
from torch import nn

from tallybox.toy.data import draw_images
from tallybox.toy.models import CounterModel
from tests.support.backends import device_of

STEPS = 200
# An interpreted step takes 8 s: so few show that the first gradients are right, a GPU runs them all.
INTERPRETED_STEPS = 3
# Rounding of single precision, amplified by 200 steps of Adam.
SAME_CURVE = 2e-3


@cache
def loss_curve(backend: str, steps: int) -> list[float]:
    """Train the paper's component on the toy task; return the loss at each step."""
    device = torch.device(device_of(backend))
    generator = torch.Generator().manual_seed(5)
    model = CounterModel(1, 10, 16, backend).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        toy = draw_images(
            torch.tensor([0.4]), torch.tensor([0.1]), images=64 if steps == STEPS else 2, boxes=10, generator=generator
        )
        optimiser.zero_grad()
        scores = model(toy.attention.to(device), toy.boxes.to(device)).flatten(0, 1)
        loss = nn.functional.cross_entropy(scores, toy.count.flatten().to(device))
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def test_every_backend_has_the_reference_s_loss_curve(backend):
    interpreted = backend == "triton" and device_of(backend) == "cpu"
    steps = INTERPRETED_STEPS if interpreted else STEPS
    ours, reference = torch.tensor(loss_curve(backend, steps)), torch.tensor(loss_curve("reference", steps))
    torch.testing.assert_close(ours, reference, rtol=0, atol=SAME_CURVE)
    assert interpreted or ours[-20:].mean() < ours[:20].mean()
