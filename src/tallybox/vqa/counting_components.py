"""What a model may count with. Each takes the glimpses before softmax, the boxes and the mask, and gives features.

Legend: B questions, N proposals, G glimpses.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tallybox.boxes import batched_nms
from tallybox.counter.module import Counter
from tallybox.presence.module import PresenceCounter
from tallybox.vqa.configuration import ModelConfig

NMS_IOU_THRESHOLD = 0.5


class CountComponent(nn.Module):
    """Features of a count from ``glimpses [B, N, G]``, ``boxes [B, N, 4]`` and ``mask [B, N]``."""

    features: int  # how many it gives


class FirstGlimpse(CountComponent):
    """A counting layer that looks at the first glimpse, times ``sharpness``, through a logistic."""

    def __init__(self, counter: Counter | PresenceCounter, features: int, sharpness: float = 1.0) -> None:
        super().__init__()
        self.counter = counter
        self.features = features
        self.sharpness = sharpness

    def log_odds(self, glimpses: Tensor) -> Tensor:
        """Return what the layer counts from, ``[B, N, G]`` to ``[B, N]``."""
        return glimpses[..., 0] * self.sharpness

    def forward(self, glimpses: Tensor, boxes: Tensor, mask: Tensor) -> Tensor:
        """Return the layer's features, ``[B, features]``."""
        features: Tensor = self.counter(self.log_odds(glimpses), boxes, mask)
        return features


class SuppressedCount(CountComponent):
    """How many proposals greedy NMS leaves, one-hot; scores are the mean of the glimpses, none is too low."""

    def __init__(self, most_proposals: int) -> None:
        super().__init__()
        self.features = most_proposals + 1

    def forward(self, glimpses: Tensor, boxes: Tensor, mask: Tensor) -> Tensor:
        """Return the one-hot number, ``[B, most_proposals + 1]``; no gradient leads back."""
        with torch.no_grad():
            left = batched_nms(boxes, glimpses.mean(-1), mask, NMS_IOU_THRESHOLD).sum(-1)
            return nn.functional.one_hot(left.clamp(max=self.features - 1), self.features).to(glimpses.dtype)


def count_component(config: ModelConfig, most_proposals: int) -> CountComponent | None:
    """Return what the named model counts with; the baseline does not count."""
    objects = config.max_objects
    match config.name:
        case "baseline":
            return None
        case "nms":
            return SuppressedCount(most_proposals)
        case "counting":
            return FirstGlimpse(Counter(objects, logits=True), features=objects + 1)
        case "presence":
            counter = PresenceCounter(objects, logits=True)
            return FirstGlimpse(counter, features=objects + 2, sharpness=config.presence_sharpness)
