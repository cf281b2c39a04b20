"""Counters whose attention is normalised within a photo, for `counter.centred` and `counter.relative` of vqa_human.py.

Each takes ``scores [B, N]`` in [0, 1], ``boxes [B, N, 4]`` and ``mask [B, N]``, see `tallybox.components`.
"""

import torch
from torch import Tensor

from tallybox import Counter


class CentredCounter(Counter):
    """The counter over log-odds whose mean in each photo is 0: half of the regions stand out, however sure it is."""

    def __init__(self, max_objects: int) -> None:
        super().__init__(max_objects, logits=True)

    def forward(self, attention: Tensor, boxes: Tensor, mask: Tensor | None = None) -> Tensor:
        """Count from scores in [0, 1]."""
        assert mask is not None
        log_odds = attention.float().logit(eps=1e-6)
        mean = (log_odds * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)
        return super().forward(log_odds - mean, boxes, mask)


class RelativeCounter(Counter):
    """The counter over the softmax of attention, as a share of its largest value: the best region has attention 1."""

    def forward(self, attention: Tensor, boxes: Tensor, mask: Tensor | None = None) -> Tensor:
        """Count from scores in [0, 1]."""
        assert mask is not None
        log_odds = attention.float().logit(eps=1e-6).masked_fill(~mask, torch.finfo(torch.float32).min)
        return super().forward((log_odds - log_odds.amax(1, keepdim=True)).exp(), boxes, mask)
