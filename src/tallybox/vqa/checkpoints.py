"""A run's checkpoint: one safetensors file with all tensors that training changes, and a JSON header."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from tallybox.errors import InputError
from tallybox.files import read_tensors, write_tensors
from tallybox.vqa.configuration import ModelConfig, VqaConfig
from tallybox.vqa.model import DataSizes, VqaModel, count_component

KIND = "tallybox.vqa"
VERSION = 1
FILE = "checkpoint.safetensors"  # the last
BEST = "best.safetensors"  # the weights that were best on the validation questions
MAX_LAYER_SIZE = 10_000_000  # limits the memory that a damaged file can make us allocate


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run without its tensors."""

    config: VqaConfig
    sizes: DataSizes
    words: tuple[str, ...]  # of questions, in order of index, from 1
    answers: tuple[str, ...]  # in order of index, from 0
    epoch: int  # completed epochs
    steps: int  # completed steps
    temperature: float = 1.0  # divides the logits before they become probabilities


def write_checkpoint(
    folder: Path, checkpoint: Checkpoint, tensors: Iterable[tuple[str, Tensor]], name: str = FILE
) -> None:
    """Write a checkpoint atomically: after a crash, either this one or the earlier one is complete."""
    write_tensors(folder / name, dict(tensors), {"kind": KIND, "version": VERSION, **asdict(checkpoint)})


def read_checkpoint(folder: Path, *, prefix: str = "") -> tuple[Checkpoint, dict[str, Tensor]]:
    """Read a run's checkpoint and its tensors whose names begin with a prefix, under names without it."""
    path = folder / FILE if folder.is_dir() else folder
    if not path.is_file():
        raise InputError(f"{folder} must be a folder that tallybox vqa train wrote, but it has no {FILE}")
    try:
        header, tensors = read_tensors(path)
        checkpoint = _checkpoint(header)
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise InputError(f"{path} must be a checkpoint of tallybox vqa train, but: {reason}") from None
    return checkpoint, {
        name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)
    }


def load_model(folder: Path) -> tuple[VqaModel, Checkpoint]:
    """Return a run's model in evaluation mode."""
    checkpoint, tensors = read_checkpoint(folder, prefix="model.")
    return model_of(checkpoint.config.model, checkpoint.sizes, tensors, folder), checkpoint


def model_of(config: ModelConfig, sizes: DataSizes, tensors: Mapping[str, Tensor], source: Path) -> VqaModel:
    """Return a model with given weights in evaluation mode; ``source`` is the file they come from."""
    wrong = f"{source} must hold the weights of a {config.name} model"
    if not all(0 <= size <= MAX_LAYER_SIZE for size in asdict(sizes).values()):
        raise InputError(f"{wrong}, but its sizes are {asdict(sizes)}")
    numbers, needed = sum(value.numel() for value in tensors.values()), _count_weights(config, sizes)
    if numbers < needed:  # checked before the layers are allocated
        raise InputError(f"{wrong} of its sizes, {needed} numbers and more, but it holds {numbers}")
    model = VqaModel(config, sizes)
    try:
        model.load_state_dict(dict(tensors))
    except RuntimeError as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines()[1:3])
        raise InputError(f"{wrong}, but: {reason}") from None
    damaged = [name for name, value in model.state_dict().items() if not value.isfinite().all()]
    if damaged:
        raise InputError(f"{source} must hold finite weights, but {damaged[0]} has others")
    return model.eval()


def _count_weights(config: ModelConfig, sizes: DataSizes) -> int:
    """Return how many numbers the matrices of a model have."""
    component = count_component(config, sizes.proposals)
    count_features = 0 if component is None else component.features
    encoder = (sizes.words + 1) * config.embedding + 3 * config.question * (config.embedding + config.question)
    attention = config.attention * (sizes.features + config.question + config.glimpses)
    inputs = config.glimpses * sizes.features + config.question + count_features
    return encoder + attention + config.classifier * (inputs + sizes.answers)


def _checkpoint(header: dict[str, Any]) -> Checkpoint:
    if header["kind"] != KIND:
        raise ValueError(f"it holds a {header['kind']!r}")
    if header["version"] != VERSION:
        raise ValueError(f"it is of version {header['version']!r}, and this tallybox reads version {VERSION}")
    sizes = DataSizes(**{name: int(value) for name, value in header["sizes"].items()})
    words, answers = (tuple(str(text) for text in header[name]) for name in ("words", "answers"))
    if len(words) != sizes.words or len(answers) != sizes.answers:
        raise ValueError("its vocabulary does not fit its sizes")
    config = VqaConfig.from_dict(header["config"])
    temperature = float(header.get("temperature", 1.0))
    if not 0 < temperature < math.inf:
        raise ValueError(f"its temperature is {temperature}")
    return Checkpoint(config, sizes, words, answers, int(header["epoch"]), int(header["steps"]), temperature)
