"""Put a counting layer into a model and train it end to end, from counts alone.

    python examples/layer_in_a_model/train.py --seeds 8

Each image has 12 proposals with a feature vector each. Some show the object in question, and some of those show the
same one. The model is told only how many objects there are, and learns where to look from that. Three models differ
only in how they turn attention into a count. A few seconds for each model and seed on a CPU.
"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn.functional import nll_loss

import tallybox

PROPOSALS, FEATURES, MAX_OBJECTS = 12, 16, 6


def make_images(number: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return features ``[B, N, F]``, boxes ``[B, N, 4]`` and how many objects are shown ``[B]``.

    Proposal i is at place i or, if it is a copy, close to the one before it. The first number of a feature vector
    tells, under noise, whether a proposal shows the object.
    """
    shows = torch.rand(number, PROPOSALS, generator=generator) < 0.4
    is_copy = torch.rand(number, PROPOSALS, generator=generator) < 0.4
    is_copy[:, 0] = False
    places = torch.arange(PROPOSALS).expand(number, -1).clone()
    for i in range(1, PROPOSALS):
        places[:, i] = torch.where(is_copy[:, i], places[:, i - 1], places[:, i])
        shows[:, i] = torch.where(is_copy[:, i], shows[:, i - 1], shows[:, i])
    jitter = 0.08 * torch.randn(number, PROPOSALS, 4, generator=generator)
    boxes = torch.tensor([0.0, 0.0, 1.0, 1.0]) + 1.5 * places.unsqueeze(-1) * torch.tensor([1.0, 0.0, 1.0, 0.0])
    features = torch.randn(number, PROPOSALS, FEATURES, generator=generator)
    features[..., 0] = 4.0 * shows - 2.0 + 0.7 * features[..., 0]
    return features, boxes + jitter, (shows & ~is_copy).sum(-1).clamp(max=MAX_OBJECTS)


class CountingModel(nn.Module):
    """Attention over the proposals, then a count: log-probabilities of 0 … MAX_OBJECTS, ``[B, MAX_OBJECTS + 1]``."""

    def __init__(self, layer: str) -> None:
        super().__init__()
        self.attention = nn.Linear(FEATURES, 1)
        self.layer = layer
        if layer == "presence":  # its first outputs are log-probabilities already: no head
            self.count = tallybox.PresenceCounter(MAX_OBJECTS, logits=True)
        elif layer == "counter":
            self.count = tallybox.Counter(PROPOSALS, logits=True)  # it keeps that many proposals: all of them
            self.head = nn.Linear(PROPOSALS + 1, MAX_OBJECTS + 1)
            nn.init.eye_(self.head.weight)  # feature k stands for k objects
        else:
            self.head = nn.Linear(1, MAX_OBJECTS + 1)

    def forward(self, features: Tensor, boxes: Tensor) -> Tensor:
        """Return log-probabilities of each count."""
        logits = self.attention(features).squeeze(-1)  # [B, N]
        if self.layer == "presence":
            return self.count(logits, boxes)[..., :-1]
        if self.layer == "counter":
            return self.head(self.count(logits, boxes)).log_softmax(-1)
        return self.head(logits.sigmoid().sum(-1, keepdim=True)).log_softmax(-1)


def train(layer: str, *, learning_rate: float, steps: int, seed: int = 0) -> float:
    """Train one model and return its accuracy on 4,000 new images."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = CountingModel(layer)
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, learning_rate, total_steps=steps)  # begins low: warm-up
    for _ in range(steps):
        features, boxes, count = make_images(64, generator)
        loss = nll_loss(model(features, boxes), count)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        features, boxes, count = make_images(4000, torch.Generator().manual_seed(seed + 1000))
        return float((model(features, boxes).argmax(-1) == count).float().mean())


def main() -> None:
    """Train the three models and print their accuracies, seed by seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learning-rate", type=float, default=0.025)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    for layer, described in (
        ("sum", "sum of the attention"),
        ("counter", "tallybox.Counter"),
        ("presence", "tallybox.PresenceCounter"),
    ):
        print(f"{described:26}", end="", flush=True)
        for seed in range(given.seeds):
            accuracy = train(layer, learning_rate=given.learning_rate, steps=given.steps, seed=seed)
            print(f" {accuracy:.3f}", end="", flush=True)
        print()


if __name__ == "__main__":
    main()
