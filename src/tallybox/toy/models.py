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


class ToyModel(nn.Module):
    """A component, then a linear layer for each setting from its features to the scores of each count.

    The layer starts as the identity, with several heads as the mean of their features. Features beyond the counts start
    with weight 0.
    """

    def __init__(self, settings: int, boxes: int, *, heads: int = 1, features: int | None = None) -> None:
        super().__init__()
        self.boxes = boxes
        of_head = torch.eye(features or boxes + 1, boxes + 1) / heads
        self.readout_weight = nn.Parameter(of_head.repeat(heads, 1).repeat(settings, 1, 1))
        self.readout_bias = nn.Parameter(torch.zeros(settings, 1, boxes + 1))

    def features(self, attention: Tensor, boxes: Tensor) -> Tensor:
        """Return the features of ``attention [M, B, N]`` and ``boxes [M, B, N, 4]``, ``[M, B, heads * features]``."""
        raise NotImplementedError

    def forward(self, attention: Tensor, boxes: Tensor) -> Tensor:
        """Return scores of each count, ``[M, B, boxes + 1]``."""
        return self.readout(self.features(attention, boxes))

    def readout(self, features: Tensor) -> Tensor:
        """``[M, B, heads * features]`` to ``[M, B, boxes + 1]``."""
        return torch.baddbmm(self.readout_bias, features, self.readout_weight)


class CounterModel(ToyModel):
    """The counter."""

    def __init__(self, settings: int, boxes: int, segments: int, backend: Backend = "auto") -> None:
        super().__init__(settings, boxes)
        self.backend: Backend = backend
        self.activations = nn.Parameter(torch.ones(settings, 1, 8, segments))

    def features(self, attention: Tensor, boxes: Tensor) -> Tensor:
        """Return the counter's features."""
        return count_features(attention, boxes, self.activations, max_objects=self.boxes, backend=self.backend)


class SumModel(ToyModel):
    """The paper's baseline: the sum of the scores, one-hot as in equation 8."""

    def features(self, attention: Tensor, boxes: Tensor) -> Tensor:
        """Return the sum, one-hot; the boxes are not used."""
        return count_one_hot(attention.sum(-1, keepdim=True).clamp(max=self.boxes), self.boxes)


class PresenceModel(ToyModel):
    """Presence counting."""

    def __init__(self, settings: int, boxes: int, segments: int, heads: int, backend: Backend = "auto") -> None:
        super().__init__(settings, boxes, heads=heads, features=boxes + 2)
        self.backend: Backend = backend
        for name, weight in initial_weights(heads, segments)._asdict().items():
            repeated = weight.repeat(settings, 1, *(1 for _ in weight.shape))  # [M, 1, heads, ...]
            self.register_parameter(name, nn.Parameter(repeated))

    @property
    def weights(self) -> PresenceWeights:
        """The parameters of the presence counter, each ``[M, 1, heads, ...]``."""
        return PresenceWeights(*(self.get_parameter(name) for name in PresenceWeights._fields))

    def features(self, attention: Tensor, boxes: Tensor) -> Tensor:
        """Return the features of all heads."""
        proposals = attention.unsqueeze(-2), boxes.unsqueeze(-3)
        features = presence_features(*proposals, self.weights, max_objects=self.boxes, backend=self.backend)
        return features.flatten(-2)  # of [M, B, heads, boxes + 2]


class ComponentModel(ToyModel):
    """Your own component; each setting has an instance."""

    def __init__(self, settings: int, boxes: int, component: Callable[[int], nn.Module]) -> None:
        instances = [component(boxes) for _ in range(settings)]
        with torch.no_grad():
            empty = torch.zeros(1, boxes), torch.zeros(1, boxes, 4), torch.ones(1, boxes, dtype=torch.bool)
            super().__init__(settings, boxes, features=instances[0](*empty).shape[-1])
        self.components = nn.ModuleList(instances)

    def features(self, attention: Tensor, boxes: Tensor) -> Tensor:
        """Return the features of each setting's instance."""
        masks = torch.ones_like(attention, dtype=torch.bool)
        inputs = zip(self.components, attention, boxes, masks, strict=True)
        return torch.stack([component(*of_setting) for component, *of_setting in inputs])


def make_model(name: str, settings: int, boxes: int, segments: int, heads: int, backend: Backend) -> ToyModel:
    """Return a model by its name: counter, baseline, presence, or ``package.module:Class`` of your own component."""
    match name:
        case "counter":
            return CounterModel(settings, boxes, segments, backend)
        case "presence":
            return PresenceModel(settings, boxes, segments, heads, backend)
        case "baseline":
            return SumModel(settings, boxes)
        case spec:
            return ComponentModel(settings, boxes, load_component(spec))
