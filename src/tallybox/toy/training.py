"""Train and score every model of the toy task, for many settings at once.

Parameters have a leading dimension M, one slice for each setting. Adam works elementwise, so one optimiser for a model
trains its M settings as M optimisers would.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from tallybox.activation import activation_knots
from tallybox.checks import check_values
from tallybox.concurrency import kernel_threads, run_concurrently
from tallybox.errors import InputError
from tallybox.kernels.dispatch import Backend
from tallybox.presence.weights import PresenceFunctions
from tallybox.toy.data import ToyImages, draw_images
from tallybox.toy.models import CounterModel, PresenceModel, SumModel


@dataclass(frozen=True)
class ToyConfig:
    """The constants of the toy task as the paper runs it (section 5.1), and of training presence counting on it."""

    boxes: int = 10  # boxes in an image, and so the largest count
    batch: int = 1024
    iterations: int = 1000
    learning_rate: float = 0.01  # of Adam, for the paper's models
    evaluation_batches: int = 200
    segments: int = 16  # of each activation
    presence_heads: int = 1  # 324 parameters with the readout; a third head gains 0.004 and takes twice the time
    presence_learning_rate: float = 0.03  # the peak of `one_cycle`


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


class ToyTraining:
    """All models for all settings, their optimisers, and their images."""

    def __init__(
        self,
        settings: Sequence[Setting],
        seed: int,
        config: ToyConfig,
        *,
        device: torch.device,
        backend: Backend = "auto",
    ) -> None:
        number, boxes, segments = len(settings), config.boxes, config.segments
        self.config = config
        self.side_length = torch.tensor([setting.side_length for setting in settings], device=device)
        self.noise = torch.tensor([setting.noise for setting in settings], device=device)
        self.generator = torch.Generator(device).manual_seed(seed)
        self.counter = CounterModel(number, boxes, segments, backend)
        self.presence = PresenceModel(number, boxes, segments, config.presence_heads, backend)
        # By the name that results have. Presence counting takes longest and is therefore started first.
        self.models = {"presence": self.presence, "counter": self.counter, "baseline": SumModel(number, boxes)}
        self.optimisers = {}
        for name, model in self.models.items():
            rate = config.presence_learning_rate if name == "presence" else config.learning_rate
            self.optimisers[name] = torch.optim.Adam(model.to(device).parameters(), lr=rate, fused=True)
        self.schedule = LambdaLR(self.optimisers["presence"], lambda step: one_cycle(step / max(config.iterations, 1)))

    def draw(self) -> ToyImages:
        """Draw a batch of images of each setting."""
        batch, boxes = self.config.batch, self.config.boxes
        return draw_images(self.side_length, self.noise, images=batch, boxes=boxes, generator=self.generator)

    def learn(self, name: str, images: ToyImages) -> None:
        """Let one model learn from one batch."""
        optimiser = self.optimisers[name]
        with check_values("never"):  # drawn images are valid
            loss_of(self.models[name], images).backward()
        optimiser.step()
        optimiser.zero_grad()
        if name == "presence":
            self.schedule.step()

    def accuracy(self, name: str, images: ToyImages) -> Tensor:
        """Return the share of right answers of one model on one batch, ``[M]``."""
        with torch.no_grad(), check_values("never"):
            answer: Tensor = self.models[name](images.attention, images.boxes).argmax(-1)
        return (answer == images.count).float().mean(-1)

    def presence_functions(self) -> PresenceFunctions:
        """Return the presence counter's functions, each ``[M, heads, ...]``."""
        with torch.no_grad():
            return PresenceFunctions(*(f.squeeze(1) for f in PresenceFunctions.of(self.presence.weights)))

    def activations(self) -> Tensor:
        """Return the counter's activations at their knots: ``[M, 8, segments + 1]``."""
        return activation_knots(self.counter.activations.detach()).squeeze(1)


def train_settings(
    settings: Sequence[Setting],
    seed: int,
    config: ToyConfig,
    *,
    device: torch.device,
    backend: Backend = "auto",
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[SettingResult]:
    """Train all models for all settings at once, and score them on fresh images.

    ``on_progress`` is called with how many of all training and evaluation steps are done.
    """
    training = ToyTraining(settings, seed, config, device=device, backend=backend)
    totals = {name: torch.zeros(len(settings), device=device) for name in training.models}
    steps = config.iterations + config.evaluation_batches
    at_once = kernel_threads() if device.type == "cpu" else 1  # a GPU works through its queue in order
    with run_concurrently(at_once) as run:
        (images,) = run([training.draw])
        for step in range(steps):
            is_training = step < config.iterations
            work = training.learn if is_training else training.accuracy
            # The next batch is drawn while the models work on this one.
            *shares, images = run([*(partial(work, name, images) for name in totals), training.draw])
            if not is_training:
                for total, share in zip(totals.values(), shares, strict=True):
                    total += share
            on_progress(step + 1, steps)
    accuracy = {name: (total / max(config.evaluation_batches, 1)).tolist() for name, total in totals.items()}
    activations = training.activations().tolist()
    presence = {name: f.tolist() for name, f in training.presence_functions()._asdict().items()}
    return [
        SettingResult(
            setting.side_length,
            setting.noise,
            seed,
            {name: round(accuracy[name][i], 5) for name in ("counter", "baseline", "presence")},
            rounded(activations[i], 5),
            {name: rounded(f[i], 3) for name, f in presence.items()},
        )
        for i, setting in enumerate(settings)
    ]


def rounded(values: Any, digits: int) -> Any:
    """Round every number of nested lists."""
    return [rounded(value, digits) for value in values] if isinstance(values, list) else round(values, digits)


def one_cycle(done: float) -> float:
    """Return the learning rate relative to its peak after this share of the training.

    It rises from 1/25 to 1 along a cosine in the first 30 %, then falls to 0.
    """
    rise = 0.3
    if done < rise:
        return 0.52 - 0.48 * math.cos(math.pi * done / rise)
    return 0.5 + 0.5 * math.cos(math.pi * min((done - rise) / (1 - rise), 1.0))


def loss_of(model: nn.Module, images: ToyImages) -> Tensor:
    """Cross-entropy, a mean over each setting's images and a sum over settings: they stay independent."""
    scores = model(images.attention, images.boxes)
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), images.count.flatten(), reduction="sum")
    return loss / images.count.shape[1]
