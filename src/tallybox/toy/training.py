"""Train and score every model of the toy task, for many settings at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tallybox.activation import activation_knots
from tallybox.counter.dispatch import Backend
from tallybox.errors import InputError
from tallybox.toy.config import ToyConfig
from tallybox.toy.data import ToyImages, draw_images
from tallybox.toy.models import CounterModel, SumModel


@dataclass(frozen=True)
class Setting:
    """One point of the paper's figures: the side length l of the boxes and the noise q of the weights."""

    side_length: float
    noise: float

    def __post_init__(self) -> None:
        for name in ("side_length", "noise"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise InputError(f"{name} must be in [0, 1], but got {value}")


@dataclass(frozen=True)
class SettingResult:
    """How well each model learned one setting, and the counter's activations."""

    side_length: float
    noise: float
    seed: int
    accuracy: dict[str, float]  # by model
    activations: list[list[float]]  # [8, segments + 1], the values of f1 ... f8 at their knots


def build_models(settings: int, config: ToyConfig, backend: Backend) -> nn.ModuleDict:
    """Return a model of each kind, by the name its results have."""
    return nn.ModuleDict(
        {
            "counter": CounterModel(settings, config.boxes, config.segments, backend),
            "baseline": SumModel(settings, config.boxes),
        }
    )


class Training:
    """All models for all settings, their optimiser and their images."""

    def __init__(
        self,
        settings: Sequence[Setting],
        seed: int,
        config: ToyConfig,
        *,
        device: torch.device,
        backend: Backend = "auto",
    ) -> None:
        self.config = config
        self.side_length = torch.tensor([setting.side_length for setting in settings], device=device)
        self.noise = torch.tensor([setting.noise for setting in settings], device=device)
        self.generator = torch.Generator(device).manual_seed(seed)
        self.models = build_models(len(settings), config, backend).to(device)
        self.optimiser = torch.optim.Adam(
            self.models.parameters(), lr=config.learning_rate, fused=device.type == "cuda"
        )

    def draw(self) -> ToyImages:
        """Draw a batch of images of each setting."""
        return draw_images(
            self.side_length,
            self.noise,
            images=self.config.batch,
            boxes=self.config.boxes,
            generator=self.generator,
        )

    def step(self) -> None:
        """Learn from one batch."""
        images = self.draw()
        self.optimiser.zero_grad()
        total_loss(self.models, images).backward()
        self.optimiser.step()

    def right(self) -> Tensor:
        """Return each model's share of right answers on one fresh batch: ``[models, M]``."""
        images = self.draw()
        with torch.no_grad():
            answers = [model(images.attention, images.boxes).argmax(-1) for model in self.models.values()]
        return torch.stack([(answer == images.count).float().mean(-1) for answer in answers])

    def activations(self) -> Tensor:
        """Return the counter's activations at their knots: ``[M, 8, segments + 1]``."""
        return activation_knots(self.models.get_parameter("counter.activations").detach()).squeeze(1)


def train_settings(
    settings: Sequence[Setting],
    seed: int,
    config: ToyConfig,
    *,
    device: torch.device,
    backend: Backend = "auto",
    on_step: Callable[[int], None] = lambda done: None,
) -> list[SettingResult]:
    """Train all models for all settings at once, score them on fresh images.

    ``on_step`` hears how many of ``config.iterations + config.evaluation_batches`` steps are done.
    """
    training = Training(settings, seed, config, device=device, backend=backend)
    for step in range(config.iterations):
        training.step()
        on_step(step + 1)
    right = torch.zeros(len(training.models), len(settings), device=device)
    for step in range(config.evaluation_batches):
        right += training.right()
        on_step(config.iterations + step + 1)
    accuracy = (right / max(config.evaluation_batches, 1)).cpu()
    knots = training.activations().cpu()
    return [
        SettingResult(
            setting.side_length,
            setting.noise,
            seed,
            {name: round(accuracy[number, i].item(), 5) for number, name in enumerate(training.models)},
            [[round(value, 5) for value in row] for row in knots[i].tolist()],
        )
        for i, setting in enumerate(settings)
    ]


def total_loss(models: nn.ModuleDict, images: ToyImages) -> Tensor:
    """Cross-entropy, a mean over each setting's images and a sum over settings and models: they stay independent."""
    loss = torch.zeros((), device=images.count.device)
    for model in models.values():
        scores = model(images.attention, images.boxes)
        loss = loss + nn.functional.cross_entropy(scores.flatten(0, 1), images.count.flatten(), reduction="sum")
    return loss / images.count.shape[1]
