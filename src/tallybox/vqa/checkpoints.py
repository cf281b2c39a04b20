"""A run's checkpoint: one safetensors file with all tensors that training changes, and a JSON header."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tallybox.errors import InputError
from tallybox.files import read_tensors, write_tensors
from tallybox.vqa.config import MODELS, ModelConfig, VqaConfig
from tallybox.vqa.model import DataSizes, VqaModel
from tallybox.vqa.published import PUBLISHED_SUFFIXES, read_published

KIND = "tallybox.vqa"
VERSION = 1
FILE = "checkpoint.safetensors"


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
    split: str = ""  # of the questions it was trained on; empty if it is not known


def write_checkpoint(folder: Path, checkpoint: Checkpoint, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Write a checkpoint atomically: after a crash, either this one or the earlier one is complete."""
    write_tensors(folder / FILE, dict(tensors), {"kind": KIND, "version": VERSION, **asdict(checkpoint)})


def read_checkpoint(folder: Path, *, prefix: str = "") -> tuple[Checkpoint, dict[str, Tensor]]:
    """Read a run's checkpoint and its tensors whose names begin with a prefix, under names without it."""
    path = folder / FILE if folder.is_dir() else folder
    if not path.is_file():
        raise InputError(f"{folder} has no {FILE}; is it a folder of tallybox vqa train?")
    try:
        header, tensors = read_tensors(path)
        kind, version = header.pop("kind"), header.pop("version")
        if (kind, version) != (KIND, VERSION):
            raise ValueError(f"it holds {kind} {version}, not {KIND} {VERSION}")
        config, sizes = VqaConfig.from_dict(_renamed(header.pop("config"))), DataSizes(**header.pop("sizes"))
        words, answers = (tuple(header.pop(name)) for name in ("words", "answers"))
        checkpoint = Checkpoint(config, sizes, words, answers, **header)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is not a checkpoint of tallybox vqa train: {error}") from None
    return checkpoint, {name.removeprefix(prefix): tensors[name] for name in tensors if name.startswith(prefix)}


def _renamed(config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of a checkpoint in today's names: until 0.2, each component had a factor of its own."""
    model = dict(config["model"])
    factors = {name: model.pop(f"{name}_sharpness", 1.0) for name in ("counter", "presence")}
    own = factors["presence" if model["name"] == "presence" else "counter"]
    return config | {"model": {"sharpness": own} | model}


def load_model(folder: Path, component: str | None = None) -> tuple[VqaModel, Checkpoint]:
    """Return the model of a run, or of a file of the published code, in evaluation mode.

    If the run uses a component of your own, name it: a file alone does not decide which code is run.
    """
    if folder.suffix in PUBLISHED_SUFFIXES:
        config, sizes, words, answers, tensors = read_published(folder)
        checkpoint = Checkpoint(VqaConfig(model=config), sizes, words, answers, epoch=0, steps=0)
        return model_of(config, sizes, tensors, folder).float(), checkpoint
    checkpoint, tensors = read_checkpoint(folder, prefix="model.")
    name = checkpoint.config.model.name
    if name not in MODELS and component != name:
        raise InputError(f"{folder} uses the component {name}; pass --model {name} to run its code")
    return model_of(checkpoint.config.model, checkpoint.sizes, tensors, folder).float(), checkpoint


def model_of(config: ModelConfig, sizes: DataSizes, tensors: Mapping[str, Tensor], source: Path) -> VqaModel:
    """Return a model with these parameters in evaluation mode; ``source`` is the file they come from."""
    try:
        with torch.device("meta"):  # whatever sizes a file names, no memory is allocated for them
            model = VqaModel(config, sizes)
        model.load_state_dict(dict(tensors), assign=True)
    except (OverflowError, RuntimeError, TypeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"{source} does not hold the parameters of a {config.name} model: {reason}") from None
    return model.eval()
