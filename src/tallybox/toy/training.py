"""Train and score every model of the toy task, for many settings at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tallybox.activation import activation_knots
from tallybox.checks import check_values
from tallybox.counter.cpu.threads import small_operations
from tallybox.counter.dispatch import Backend
from tallybox.errors import InputError
from tallybox.presence.weights import PresenceFunctions
from tallybox.toy.config import ToyConfig
from tallybox.toy.data import ToyImages, draw_images
from tallybox.toy.models import CounterModel, PresenceModel, SumModel


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
    """How well each model learned one setting, and the functions that it learned."""

    side_length: float
    noise: float
    seed: int
    accuracy: dict[str, float]  # by model
    activations: list[list[float]]  # [8, segments + 1], the values of f1 ... f8 at their knots
    presence: dict[str, Any]  # the fields of `PresenceFunctions`, each [heads, ...]


def build_models(settings: int, config: ToyConfig, backend: Backend) -> nn.ModuleDict:
    """Return a model of each kind, by the name its results have."""
    return nn.ModuleDict(
        {
            "counter": CounterModel(settings, config.boxes, config.segments, backend),
            "baseline": SumModel(settings, config.boxes),
            "presence": PresenceModel(settings, config.boxes, config.segments, config.presence_heads, backend),
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
        presence = list(self.models["presence"].parameters())
        paper = [*self.models["counter"].parameters(), *self.models["baseline"].parameters()]
        groups: list[dict[str, Any]] = [{"params": paper}, {"params": presence, "lr": config.presence_learning_rate}]
        self.optimiser = torch.optim.Adam(groups, lr=config.learning_rate, fused=device.type in ("cpu", "cuda"))
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimiser, [lambda step: 1.0, lambda step: one_cycle(step / config.iterations)]
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

    def learn(self, images: ToyImages) -> None:
        """Learn from one batch."""
        self.optimiser.zero_grad()
        total_loss(self.models, images).backward()
        self.optimiser.step()
        self.schedule.step()

    def right(self, images: ToyImages) -> Tensor:
        """Return each model's share of right answers on one fresh batch: ``[models, M]``."""
        with torch.no_grad():
            answers = [model(images.attention, images.boxes).argmax(-1) for model in self.models.values()]
        return torch.stack([(answer == images.count).float().mean(-1) for answer in answers])

    def presence(self) -> PresenceFunctions:
        """Return the presence counter's functions, each ``[M, heads, ...]``."""
        model = self.models["presence"]
        assert isinstance(model, PresenceModel)
        with torch.no_grad():
            return PresenceFunctions(*(f.squeeze(1) for f in PresenceFunctions.of(model.weights)))

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
    right = torch.zeros(len(training.models), len(settings), device=device)
    batches = drawn_ahead(training, config.iterations + config.evaluation_batches)
    with small_operations(), check_values("never"):  # what is drawn is known to be good
        for step, images in enumerate(batches):
            if step < config.iterations:
                training.learn(images)
            else:
                right += training.right(images)
            on_step(step + 1)
    accuracy = (right / max(config.evaluation_batches, 1)).cpu()
    knots = training.activations().cpu()
    presence = {name: f.cpu() for name, f in training.presence()._asdict().items()}
    return [
        SettingResult(
            setting.side_length,
            setting.noise,
            seed,
            {name: round(accuracy[number, i].item(), 5) for number, name in enumerate(training.models)},
            rounded(knots[i].tolist(), 5),
            {name: rounded(f[i].tolist(), 3) for name, f in presence.items()},
        )
        for i, setting in enumerate(settings)
    ]


def drawn_ahead(training: Training, batches: int) -> Iterator[ToyImages]:
    """Yield fresh batches, on a CPU each drawn while the one before is learned from."""
    if training.side_length.device.type != "cpu":  # a GPU works through its queue in order
        for _ in range(batches):
            yield training.draw()
        return
    with ThreadPoolExecutor(max_workers=1) as drawing:
        waiting = drawing.submit(training.draw)
        for left in range(batches - 1, -1, -1):
            images = waiting.result()
            if left:
                waiting = drawing.submit(training.draw)
            yield images


def rounded(values: Any, digits: int) -> Any:
    """Round every number of nested lists."""
    return [rounded(value, digits) for value in values] if isinstance(values, list) else round(values, digits)


def one_cycle(done: float) -> float:
    """Return which part of the peak learning rate is due when this part of the training is done."""
    rise = 0.3
    if done < rise:
        return 0.52 - 0.48 * math.cos(math.pi * done / rise)
    return 0.5 + 0.5 * math.cos(math.pi * min((done - rise) / (1 - rise), 1.0))


def total_loss(models: nn.ModuleDict, images: ToyImages) -> Tensor:
    """Cross-entropy, a mean over each setting's images and a sum over settings and models: they stay independent."""
    loss = torch.zeros((), device=images.count.device)
    for model in models.values():
        scores = model(images.attention, images.boxes)
        loss = loss + nn.functional.cross_entropy(scores.flatten(0, 1), images.count.flatten(), reduction="sum")
    return loss / images.count.shape[1]
