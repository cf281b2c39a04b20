"""The toy task's models. Each is trained for M settings at once: parameters have a leading dimension M."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tallybox.components import load_component
from tallybox.counter.functional import count_features
from tallybox.counter.reference import count_one_hot
from tallybox.kernels.dispatch import Backend
from tallybox.presence.functional import presence_features
from tallybox.presence.weights import PresenceWeights, initial_weights


class Readout(nn.Module):
    """A linear layer from features to classes for each setting.

    It starts as the identity, with several heads as the mean of their features. Features beyond the classes start with
    weight 0.
    """

    def __init__(self, settings: int, classes: int, *, heads: int = 1, features: int | None = None) -> None:
        super().__init__()
        of_head = torch.eye(features or classes, classes) / heads
        self.weight = nn.Parameter(of_head.repeat(heads, 1).repeat(settings, 1, 1))
        self.bias = nn.Parameter(torch.zeros(settings, 1, classes))

    def forward(self, features: Tensor) -> Tensor:
        """``[M, B, heads * features]`` to ``[M, B, classes]``."""
        return torch.baddbmm(self.bias, features, self.weight)


class CounterModel(nn.Module):
    """The counter, then a linear layer."""

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
    """The paper's baseline: the sum of the scores, one-hot as in equation 8, then a linear layer."""

    def __init__(self, settings: int, boxes: int) -> None:
        super().__init__()
        self.boxes = boxes
        self.readout = Readout(settings, boxes + 1)

    def forward(self, attention: Tensor, boxes: Tensor) -> Tensor:
        """Return scores of each count, ``[M, B, boxes + 1]``; the boxes are not used."""
        total = attention.sum(-1, keepdim=True).clamp(max=self.boxes)
        scores: Tensor = self.readout(count_one_hot(total, self.boxes))
        return scores


class PresenceModel(nn.Module):
    """Presence counting, then a linear layer."""

    def __init__(self, settings: int, boxes: int, segments: int, heads: int, backend: Backend = "auto") -> None:
        super().__init__()
        self.boxes = boxes
        self.backend: Backend = backend
        for name, weight in initial_weights(heads, segments)._asdict().items():
            repeated = weight.repeat(settings, 1, *(1 for _ in weight.shape))  # [M, 1, heads, ...]
            self.register_parameter(name, nn.Parameter(repeated))
        self.readout = Readout(settings, boxes + 1, heads=heads, features=boxes + 2)

    @property
    def weights(self) -> PresenceWeights:
        """The parameters of the presence counter, each ``[M, 1, heads, ...]``."""
        return PresenceWeights(*(self.get_parameter(name) for name in PresenceWeights._fields))

    def forward(self, attention: Tensor, boxes: Tensor) -> Tensor:
        """Return scores of each count, ``[M, B, boxes + 1]``."""
        features = presence_features(
            attention.unsqueeze(-2), boxes.unsqueeze(-3), self.weights, max_objects=self.boxes, backend=self.backend
        )  # [M, B, heads, boxes + 2]
        scores: Tensor = self.readout(features.flatten(-2))
        return scores


class ComponentModel(nn.Module):
    """Your own component, then a linear layer; each setting has an instance."""

    def __init__(self, settings: int, boxes: int, component: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.components = nn.ModuleList(component(boxes) for _ in range(settings))
        with torch.no_grad():
            features = self._features(0, torch.zeros(1, boxes), torch.zeros(1, boxes, 4)).shape[-1]
        self.readout = Readout(settings, boxes + 1, features=features)

    def _features(self, setting: int, scores: Tensor, boxes: Tensor) -> Tensor:
        features: Tensor = self.components[setting](scores, boxes, torch.ones_like(scores, dtype=torch.bool))
        return features

    def forward(self, attention: Tensor, boxes: Tensor) -> Tensor:
        """Return scores of each count, ``[M, B, boxes + 1]``."""
        features = [
            self._features(setting, *inputs) for setting, inputs in enumerate(zip(attention, boxes, strict=True))
        ]
        scores: Tensor = self.readout(torch.stack(features))
        return scores


def make_model(name: str, settings: int, boxes: int, segments: int, heads: int, backend: Backend) -> nn.Module:
    """Return a model by its name: counter, baseline, presence, or ``package.module:Class`` of your own component."""
    if name == "counter":
        return CounterModel(settings, boxes, segments, backend)
    if name == "presence":
        return PresenceModel(settings, boxes, segments, heads, backend)
    if name == "baseline":
        return SumModel(settings, boxes)
    return ComponentModel(settings, boxes, load_component(name))
