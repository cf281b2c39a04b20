"""Train and score every model of the toy task, for many settings at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from tallybox.activation import activation_knots
from tallybox.checks import check_values
from tallybox.errors import InputError
from tallybox.kernels.dispatch import Backend
from tallybox.kernels.threads import kernel_threads, side_by_side
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


class Learner:
    """One model for all settings, and Adam.

    By torch's function, not its class: that imports what compiles graphs, 2 s of a command that takes 15.
    """

    def __init__(self, model: nn.Module, rate: Callable[[int], float]) -> None:
        self.model = model
        self.rate = rate  # at each step
        self.step = 0
        self.parameters: list[Tensor] = list(model.parameters())
        self.means = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.squares = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.steps = [torch.zeros((), device=parameter.device) for parameter in self.parameters]

    def learn(self, images: ToyImages) -> None:
        """Learn from one batch."""
        gradients = torch.autograd.grad(loss_of(self.model, images), self.parameters)
        with torch.no_grad():
            adam(
                self.parameters,
                list(gradients),
                self.means,
                self.squares,
                [],
                self.steps,
                fused=self.steps[0].device.type in ("cpu", "cuda"),
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=self.rate(self.step),
                weight_decay=0.0,
                eps=1e-8,
                maximize=False,
            )
        self.step += 1

    def right(self, images: ToyImages) -> Tensor:
        """Return the share of right answers on one fresh batch, ``[M]``."""
        with torch.no_grad():
            answer: Tensor = self.model(images.attention, images.boxes).argmax(-1)
        return (answer == images.count).float().mean(-1)


class Training:
    """All models for all settings, and their images."""

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

        def of_paper(step: int) -> float:
            return config.learning_rate

        def of_presence(step: int) -> float:
            return config.presence_learning_rate * one_cycle(step / config.iterations)

        self.learners = {
            name: Learner(model, of_presence if name == "presence" else of_paper) for name, model in self.models.items()
        }

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
        """Let every model learn from one batch."""
        for learner in self.learners.values():
            learner.learn(images)

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
    learners = training.learners
    right = {name: torch.zeros(len(settings), device=device) for name in learners}
    # What is drawn is known to be good.
    at_once = kernel_threads() if device.type == "cpu" else 1  # a GPU works through its queue in order
    with side_by_side(at_once) as run, check_values("never"):
        (images,) = run([training.draw])
        for step in range(config.iterations + config.evaluation_batches):
            learning = step < config.iterations
            # Presence counting takes longest, so it begins first; the next batch is drawn meanwhile.
            work = [partial(one.learn if learning else one.right, images) for one in reversed(learners.values())]
            *shares, images = run([*work, training.draw])
            if not learning:
                for name, share in zip(reversed(learners), shares, strict=True):
                    right[name] += share
            on_step(step + 1)
    accuracy = {name: (share / max(config.evaluation_batches, 1)).cpu() for name, share in right.items()}
    knots = training.activations().cpu()
    presence = {name: f.cpu() for name, f in training.presence()._asdict().items()}
    return [
        SettingResult(
            setting.side_length,
            setting.noise,
            seed,
            {name: round(share[i].item(), 5) for name, share in accuracy.items()},
            rounded(knots[i].tolist(), 5),
            {name: rounded(f[i].tolist(), 3) for name, f in presence.items()},
        )
        for i, setting in enumerate(settings)
    ]


def rounded(values: Any, digits: int) -> Any:
    """Round every number of nested lists."""
    return [rounded(value, digits) for value in values] if isinstance(values, list) else round(values, digits)


def one_cycle(done: float) -> float:
    """Return which part of the peak learning rate is due when this part of the training is done."""
    rise = 0.3
    if done < rise:
        return 0.52 - 0.48 * math.cos(math.pi * done / rise)
    return 0.5 + 0.5 * math.cos(math.pi * min((done - rise) / (1 - rise), 1.0))


def loss_of(model: nn.Module, images: ToyImages) -> Tensor:
    """Cross-entropy, a mean over each setting's images and a sum over settings: they stay independent."""
    scores = model(images.attention, images.boxes)
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), images.count.flatten(), reduction="sum")
    return loss / images.count.shape[1]
