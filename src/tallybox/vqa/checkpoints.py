"""A run's checkpoint: one safetensors file with everything that learning changes, and a JSON header."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from tallybox.errors import InputError, TallyboxError
from tallybox.vqa.configuration import ModelConfig, VqaConfig
from tallybox.vqa.counting_components import count_component
from tallybox.vqa.model import DataSizes, VqaModel

KIND = "tallybox.vqa"
VERSION = 1
FILE = "checkpoint.safetensors"
LARGEST_SIZE = 10_000_000  # of a layer: a file must not make us allocate what it likes


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stands, without its tensors."""

    config: VqaConfig
    sizes: DataSizes
    words: tuple[str, ...]  # of questions, in order of index, from 1
    answers: tuple[str, ...]  # in order of index, from 0
    epoch: int  # how many are done
    steps: int  # likewise
    temperature: float = 1.0  # that logits are divided by before they become probabilities


def write_checkpoint(folder: Path, checkpoint: Checkpoint, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Write a checkpoint so that after a crash this one or the earlier one is there whole."""
    header = {
        "kind": KIND,
        "version": VERSION,
        "config": checkpoint.config.to_dict(),
        "sizes": asdict(checkpoint.sizes),
        "words": checkpoint.words,
        "answers": checkpoint.answers,
        "epoch": checkpoint.epoch,
        "steps": checkpoint.steps,
        "temperature": checkpoint.temperature,
    }
    content = {name: value.detach().contiguous() for name, value in tensors}
    path = folder / FILE
    unfinished = path.with_name(path.name + ".unfinished")
    _safetensors().save_file(content, unfinished, {"tallybox": json.dumps(header)})
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    unfinished.replace(path)


def read_checkpoint(folder: Path, *, prefix: str = "", device: str = "cpu") -> tuple[Checkpoint, dict[str, Tensor]]:
    """Read a run's checkpoint and those of its tensors whose names begin with a prefix, which is left out."""
    _safetensors()
    from safetensors import SafetensorError, safe_open

    path = folder / FILE if folder.is_dir() else folder
    if not path.is_file():
        raise InputError(f"{folder} must be a folder that tallybox vqa train wrote, but it has no {FILE}")
    try:
        with safe_open(path, framework="pt", device=device) as file:
            header = json.loads((file.metadata() or {})["tallybox"])
            checkpoint = _checkpoint(header)
            names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118 - it is a file, not a dict
            tensors = {name.removeprefix(prefix): file.get_tensor(name) for name in names}
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} must be a checkpoint of tallybox vqa train, but: {error}") from None
    return checkpoint, tensors


def load_model(folder: Path) -> tuple[VqaModel, Checkpoint]:
    """Return a run's model, ready to answer."""
    checkpoint, tensors = read_checkpoint(folder, prefix="model.")
    return model_of(checkpoint.config.model, checkpoint.sizes, tensors, folder), checkpoint


def model_of(config: ModelConfig, sizes: DataSizes, tensors: Mapping[str, Tensor], named: Path) -> VqaModel:
    """Return a model with given weights, ready to answer; ``named`` is where they come from."""
    wrong = f"{named} must hold the weights of a {config.name} model"
    held, claimed = sum(value.numel() for value in tensors.values()), _weights(config, sizes)
    if held < claimed:  # before layers take the memory that a file asks for
        raise InputError(f"{wrong} of its sizes, {claimed} numbers and more, but it holds {held}")
    model = VqaModel(config, sizes)
    try:
        model.load_state_dict(dict(tensors))
    except RuntimeError as error:
        raise InputError(f"{wrong}, but: {_one_line(error)}") from None
    damaged = [name for name, value in model.state_dict().items() if not value.isfinite().all()]
    if damaged:
        raise InputError(f"{named} must hold finite weights, but {damaged[0]} has others")
    return model.eval()


def _weights(config: ModelConfig, sizes: DataSizes) -> int:
    """Return how many numbers the matrices of a model have."""
    component = count_component(config, sizes.proposals)
    counted = 0 if component is None else component.features
    encoder = (sizes.words + 1) * config.embedding + 3 * config.question * (config.embedding + config.question)
    attention = config.attention * (sizes.features + config.question + config.glimpses)
    classifier = config.classifier * (config.glimpses * sizes.features + config.question + counted + sizes.answers)
    return encoder + attention + classifier


def _checkpoint(header: dict[str, Any]) -> Checkpoint:
    if header["kind"] != KIND:
        raise ValueError(f"it holds a {header['kind']!r}")
    if header["version"] != VERSION:
        raise ValueError(f"it is of version {header['version']!r}, and this tallybox reads version {VERSION}")
    sizes = DataSizes(**{name: int(value) for name, value in header["sizes"].items()})
    words, answers = (tuple(str(text) for text in header[name]) for name in ("words", "answers"))
    if len(words) != sizes.words or len(answers) != sizes.answers or max(asdict(sizes).values()) > LARGEST_SIZE:
        raise ValueError("its vocabulary does not fit its sizes")
    config = VqaConfig.from_dict(header["config"])
    temperature = float(header.get("temperature", 1.0))
    if not 0 < temperature < math.inf:
        raise ValueError(f"its temperature is {temperature}")
    return Checkpoint(config, sizes, words, answers, int(header["epoch"]), int(header["steps"]), temperature)


def _one_line(error: Exception) -> str:
    return "; ".join(line.strip() for line in str(error).splitlines()[1:3])


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ModuleNotFoundError:
        raise TallyboxError(
            "a checkpoint needs the package safetensors, which is not installed; pip install 'tallybox[vqa]'"
        ) from None
    return safetensors.torch
