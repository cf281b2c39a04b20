"""The toy task's models, each trained for many settings at once: parameters have a leading dimension M."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tallybox.counter.dispatch import Backend
from tallybox.counter.functional import count_features
from tallybox.counter.reference import count_one_hot


class Readout(nn.Module):
    """A linear layer from features to classes for each setting, started from the identity."""

    def __init__(self, settings: int, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(classes).repeat(settings, 1, 1))
        self.bias = nn.Parameter(torch.zeros(settings, 1, classes))

    def forward(self, features: Tensor) -> Tensor:
        """``[M, B, classes]`` to ``[M, B, classes]``."""
        return torch.baddbmm(self.bias, features, self.weight)


class CounterModel(nn.Module):
    """The counting component, then a linear layer."""

    def __init__(self, settings: int, boxes: int, segments: int, backend: Backend = "auto") -> None:
        super().__init__()
        self.boxes = boxes
        self.backend: Backend = backend
        self.activations = nn.Parameter(torch.ones(settings, 1, 8, segments))
        self.readout = Readout(settings, boxes + 1)

    def forward(self, attention: Tensor, boxes: Tensor) -> Tensor:
        """Return scores of each count, ``[M, B, boxes + 1]``."""
        features = count_features(attention, boxes, self.activations, max_objects=self.boxes, backend=self.backend)
        scores: Tensor = self.readout(features)
        return scores


class SumModel(nn.Module):
    """The paper's baseline: the sum of the weights, made one-hot as in equation 8, then a linear layer."""

    def __init__(self, settings: int, boxes: int) -> None:
        super().__init__()
        self.boxes = boxes
        self.readout = Readout(settings, boxes + 1)

    def forward(self, attention: Tensor, boxes: Tensor) -> Tensor:
        """Return scores of each count, ``[M, B, boxes + 1]``; the boxes are not looked at."""
        total = attention.sum(-1, keepdim=True).clamp(max=self.boxes)
        scores: Tensor = self.readout(count_one_hot(total, self.boxes))
        return scores
