"""Train and score the models of the toy task, for many settings at once.

Parameters have a leading dimension M, one slice for each setting. Adam works elementwise, so one optimiser trains M
settings as M optimisers would.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from operator import call
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from tallybox.activation import activation_knots
from tallybox.checks import check_values
from tallybox.components import component_name
from tallybox.concurrency import map_in_order, single_threaded_torch
from tallybox.counter.module import Counter
from tallybox.errors import InputError
from tallybox.files import read_tensors, write_tensors
from tallybox.kernels.dispatch import Backend
from tallybox.presence.module import PresenceCounter
from tallybox.presence.weights import PresenceFunctions, PresenceWeights
from tallybox.toy.data import ToyImages, draw_images
from tallybox.toy.models import ComponentModel, CounterModel, PresenceModel, make_model

MODELS = ("counter", "baseline", "presence")


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
    """One point of the paper's figures: the side length l of the boxes and the noise q of the scores."""

    side_length: float
    noise: float

    def __post_init__(self) -> None:
        for name in ("side_length", "noise"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise InputError(f"{name} must be between 0 and 1, not {value:g}.")


@dataclass(frozen=True)
class SettingResult:
    """How well each model learned one setting, and the functions that it learned."""

    side_length: float
    noise: float
    seed: int
    accuracy: dict[str, float]  # by model
    activations: list[list[float]]  # [8, segments + 1], the values of f1 ... f8 at their knots; empty without a counter
    presence: dict[str, Any]  # the fields of `PresenceFunctions`, each [heads, ...]; empty without a presence counter


class ToyTraining:
    """Models for all settings, their optimisers, and their images.

    ``models`` are names: ``counter``, ``baseline``, ``presence``, or ``package.module:Class`` of your own component.
    """

    def __init__(
        self,
        settings: Sequence[Setting],
        seed: int,
        config: ToyConfig,
        *,
        device: torch.device,
        backend: Backend = "auto",
        models: Sequence[str] = MODELS,
    ) -> None:
        self.settings, self.seed, self.config = settings, seed, config
        self.side_length = torch.tensor([setting.side_length for setting in settings], device=device)
        self.noise = torch.tensor([setting.noise for setting in settings], device=device)
        self.generator = torch.Generator(device).manual_seed(seed)
        # Presence counting takes longest and is therefore started first.
        names = sorted(dict.fromkeys(models), key=lambda name: name != "presence")
        sizes = config.boxes, config.segments, config.presence_heads
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # your own components may start at random
            self.models = {name: make_model(name, len(settings), *sizes, backend).to(device) for name in names}
        self.optimisers = {}
        for name, model in self.models.items():
            rate = config.presence_learning_rate if name == "presence" else config.learning_rate
            self.optimisers[name] = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
        if "presence" in names:
            steps = max(config.iterations, 1)
            self.schedule = LambdaLR(self.optimisers["presence"], lambda step: one_cycle(step / steps))

    def draw(self) -> ToyImages:
        """Draw a batch of images of each setting."""
        batch, boxes = self.config.batch, self.config.boxes
        return draw_images(self.side_length, self.noise, images=batch, boxes=boxes, generator=self.generator)

    def learn(self, name: str, images: ToyImages) -> None:
        """Train one model on one batch."""
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

    def run(self, on_progress: Callable[[int, int], None] = lambda done, total: None) -> list[SettingResult]:
        """Train all models and score them on fresh images.

        ``on_progress`` is called with the number of finished training and evaluation steps and their total.
        """
        config, device = self.config, self.side_length.device
        totals = {name: torch.zeros(len(self.settings), device=device) for name in self.models}
        steps = config.iterations + config.evaluation_batches
        run = map_in_order if device.type == "cpu" else map  # a GPU works through its queue in order
        with single_threaded_torch():
            images = self.draw()
            for step in range(steps):
                is_training = step < config.iterations
                work = self.learn if is_training else self.accuracy
                # The next batch is drawn while the models work on this one.
                calls: list[Callable[[], Any]] = [*(partial(work, name, images) for name in totals), self.draw]
                *shares, images = run(call, calls)
                if not is_training:
                    for total, share in zip(totals.values(), shares, strict=True):
                        total += share
                on_progress(step + 1, steps)
        return self._results({name: total / max(config.evaluation_batches, 1) for name, total in totals.items()})

    def _results(self, accuracies: dict[str, Tensor]) -> list[SettingResult]:
        ordered = [name for name in dict.fromkeys((*MODELS, *accuracies)) if name in accuracies]
        shares = {self.title(name): rounded(accuracies[name].tolist(), 5) for name in ordered}
        activations: list[Any] = [[] for _ in self.settings]
        functions: dict[str, Any] = {}
        if "counter" in self.models:
            activations = rounded(self.activations().tolist(), 5)
        if isinstance(presence := self.models.get("presence"), PresenceModel):
            weights = PresenceWeights(*(weight.detach().squeeze(1) for weight in presence.weights))
            functions = {k: rounded(f.tolist(), 3) for k, f in PresenceFunctions.of(weights)._asdict().items()}
        return [
            SettingResult(
                **asdict(setting),
                seed=self.seed,
                accuracy={name: share[i] for name, share in shares.items()},
                activations=activations[i],
                presence={name: function[i] for name, function in functions.items()},
            )
            for i, setting in enumerate(self.settings)
        ]

    def activations(self) -> Tensor:
        """Return the counter's activations at their knots: ``[M, 8, segments + 1]``."""
        return activation_knots(self.models["counter"].get_parameter("activations").detach()).squeeze(1)

    def title(self, name: str) -> str:
        """Return the name of a model in results: that of your own component, if it has one."""
        model = self.models[name]
        return component_name(model.components[0]) if isinstance(model, ComponentModel) else name

    def layers(self, setting: int = 0) -> dict[str, nn.Module]:
        """Return the trained counting layers of one setting, without their readouts, by name."""
        found: dict[str, nn.Module] = {}
        for name, model in self.models.items():
            if isinstance(model, ComponentModel):
                found[self.title(name)] = model.components[setting]
            elif isinstance(model, CounterModel):
                found[name] = new_layer(name, self.config, {"weight": model.activations[setting].detach()})
            elif isinstance(model, PresenceModel):
                state = {k: v[setting, 0].detach() for k, v in model.weights._asdict().items()}
                found[name] = new_layer(name, self.config, state)
        return found


def train_settings(
    settings: Sequence[Setting],
    seed: int = 0,
    config: ToyConfig | None = None,
    *,
    device: torch.device | None = None,
    backend: Backend = "auto",
    models: Sequence[str] = MODELS,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[SettingResult]:
    """Train models for all settings at once, and score them on fresh images; the defaults are the paper's."""
    where = device or torch.device("cpu")
    training = ToyTraining(settings, seed, config or ToyConfig(), device=where, backend=backend, models=models)
    return training.run(on_progress)


def save_layers(path: Path, training: ToyTraining, setting: int = 0) -> None:
    """Write the trained layers of one setting as safetensors, the tensors of each after its name and a dot."""
    layers = training.layers(setting)
    tensors = {f"{name}.{key}": value for name, layer in layers.items() for key, value in layer.state_dict().items()}
    described = {**asdict(training.settings[setting]), "seed": training.seed, "config": asdict(training.config)}
    write_tensors(path, tensors, {"format": "toy layers", **described})


def load_layers(path: Path) -> dict[str, nn.Module]:
    """Return the counter and the presence counter of a file from `save_layers`, those that it has, by name."""
    try:
        header, tensors = read_tensors(path)
        config = ToyConfig(**header["config"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a file of trained toy layers: {error}") from None
    states: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, parameter = key.partition(".")
        states.setdefault(name, {})[parameter] = tensor
    return {name: new_layer(name, config, states[name]) for name in ("counter", "presence") if name in states}


def new_layer(name: str, config: ToyConfig, state: dict[str, Tensor]) -> nn.Module:
    """Return the counter or the presence counter of a training, with these parameters."""
    layer: nn.Module = Counter(config.boxes, segments=config.segments)
    if name == "presence":
        layer = PresenceCounter(config.boxes, heads=config.presence_heads, segments=config.segments)
    layer.load_state_dict(state)
    return layer


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
