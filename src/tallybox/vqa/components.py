"""The count components of the VQA model: each turns glimpses, boxes and mask into features of a count.

Legend: B questions, N proposals (padded), G glimpses.
"""

import torch
from torch import Tensor, nn

from tallybox.boxes import batched_nms
from tallybox.components import load_component
from tallybox.counter.module import Counter
from tallybox.counter.published import published_features, published_quantities
from tallybox.counter.reference import Quantities
from tallybox.kernels.proposals import Proposals
from tallybox.presence.module import PresenceCounter
from tallybox.vqa.config import ModelConfig


class GlimpseCounter(nn.Module):
    """A counting layer over the first glimpse: its logit times ``sharpness``, through a logistic.

    If ``level`` is "mean", the mean logit of each photo is subtracted first, and a learned bias is added.
    """

    def __init__(
        self, counter: Counter | PresenceCounter, features: int, sharpness: float = 1.0, level: str = "free"
    ) -> None:
        super().__init__()
        self.counter, self.features, self.sharpness, self.level = counter, features, sharpness, level
        if level == "mean":
            self.bias = nn.Parameter(torch.tensor(0.0))

    def log_odds(self, glimpses: Tensor, mask: Tensor) -> Tensor:
        """Return the input of the layer, ``[B, N, G]`` to ``[B, N]``."""
        logit = glimpses[..., 0]
        if self.level == "free":
            return logit * self.sharpness
        logit = logit.float()
        number = mask.sum(1, keepdim=True).clamp(min=1)
        centred = torch.where(mask, logit - torch.where(mask, logit, 0).sum(1, keepdim=True) / number, 0)
        return centred * self.sharpness + self.bias

    def forward(self, glimpses: Tensor, boxes: Tensor, mask: Tensor) -> Tensor:
        """Count from ``glimpses [B, N, G]``, ``boxes [B, N, 4]`` and ``mask [B, N]``: features ``[B, features]``."""
        features: Tensor = self.counter(self.log_odds(glimpses, mask), boxes, mask)
        return features


class PublishedGlimpseCounter(GlimpseCounter):
    """The paper's component over the first glimpse with padding among the proposals, as in the published code."""

    counter: Counter

    def quantities(self, glimpses: Tensor, boxes: Tensor) -> tuple[Proposals, Tensor, Quantities]:
        """Return the component's quantities for ``glimpses [B, N, G]`` and ``boxes [B, N, 4]``, 0 for padding."""
        weight, objects = self.counter.weight[0], self.counter.max_objects
        return published_quantities(glimpses[..., 0] * self.sharpness, boxes, weight, max_objects=objects, logits=True)

    def forward(self, glimpses: Tensor, boxes: Tensor, mask: Tensor) -> Tensor:
        """Count proposals and padding."""
        weight, objects = self.counter.weight[0], self.counter.max_objects
        return published_features(glimpses[..., 0] * self.sharpness, boxes, weight, max_objects=objects, logits=True)


class SuppressedCount(nn.Module):
    """The number of proposals that greedy NMS keeps, one-hot; a proposal's score is the mean of its glimpses."""

    def __init__(self, max_proposals: int, iou_threshold: float = 0.5, score_threshold: float = 0.0) -> None:
        super().__init__()
        self.features = max_proposals + 1
        self.iou_threshold, self.score_threshold = iou_threshold, score_threshold

    def forward(self, glimpses: Tensor, boxes: Tensor, mask: Tensor) -> Tensor:
        """Return the one-hot number, ``[B, max_proposals + 1]``, without a gradient."""
        with torch.no_grad():
            scores = glimpses.mean(-1)
            mask = mask & (scores.sigmoid() >= self.score_threshold)
            kept = batched_nms(boxes, scores, mask, self.iou_threshold).sum(-1)
            return nn.functional.one_hot(kept.clamp(max=self.features - 1), self.features).to(glimpses.dtype)


class CustomCount(nn.Module):
    """Your own component over the first glimpse, see `tallybox.components`."""

    def __init__(self, component: nn.Module, sharpness: float = 1.0) -> None:
        super().__init__()
        self.component, self.sharpness = component, sharpness
        with torch.no_grad():
            empty = torch.zeros(1, 4), torch.zeros(1, 4, 4), torch.ones(1, 4, dtype=torch.bool)
            self.features = int(component(*empty).shape[-1])

    def forward(self, glimpses: Tensor, boxes: Tensor, mask: Tensor) -> Tensor:
        """Return the component's features ``[B, features]`` for scores in [0, 1]."""
        features: Tensor = self.component((glimpses[..., 0] * self.sharpness).sigmoid(), boxes, mask)
        return features


CountComponent = GlimpseCounter | SuppressedCount | CustomCount


def count_component(config: ModelConfig, max_proposals: int) -> CountComponent | None:
    """Return the count component of the named model; the baseline has none."""
    objects, segments = config.max_objects, config.segments
    match config.name:
        case "baseline":
            return None
        case "nms":
            return SuppressedCount(max_proposals, config.nms_iou_threshold, config.nms_score_threshold)
        case "counter":
            layer = GlimpseCounter if config.padding == "masked" else PublishedGlimpseCounter
            counter = Counter(objects, segments=segments, logits=True)
            return layer(counter, objects + 1, config.sharpness, config.level)
        case "presence":
            presence = PresenceCounter(objects, segments=segments, logits=True)
            return GlimpseCounter(presence, objects + 2, config.sharpness, config.level)
        case spec:
            with torch.device("cpu"):
                return CustomCount(load_component(spec)(objects), config.sharpness)
