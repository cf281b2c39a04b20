"""A run's checkpoint: one safetensors file with all tensors that training changes, and a JSON header.

Checkpoints of the published code are read too. They hold `weights` and `vocab` (and settings, of which one is read, a
log and source text); loading runs none of their content. The published model attends to padding and counts it
(`ModelConfig.padding`), and so does a loaded one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from tallybox.counter.published import read_published_weight
from tallybox.errors import InputError
from tallybox.files import error_summary, read_tensors, write_tensors
from tallybox.vqa.config import MODELS, ModelConfig, VqaConfig
from tallybox.vqa.model import DataSizes, VqaModel

KIND = "tallybox.vqa"
VERSION = 1
FILE = "checkpoint.safetensors"
PUBLISHED_SUFFIXES = (".pth", ".pt")
PUBLISHED_PROPOSALS = 100  # of a photo, padding included
COUNTS = ("classifier.from_count.", "count.")  # the prefixes of our names for the counter's weights
# The published name of each layer, and ours.
LAYERS = {
    "text.embedding": "question.embedding",
    "text.lstm": "question.gru",
    "attention.v_conv": "attention.from_features",
    "attention.q_lin": "attention.from_question",
    "attention.x_conv": "attention.to_glimpses",
    "classifier.lin11": "classifier.from_seen",
    "classifier.lin12": "classifier.from_question",
    "classifier.bn": "classifier.norm",
    "classifier.lin2": "classifier.to_answers",
    "classifier.lin_c": "classifier.from_count.0",
    "classifier.bn2": "classifier.from_count.2",
}


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
        return _load_published(folder)
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


def _load_published(path: Path) -> tuple[VqaModel, Checkpoint]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        words = _in_order(content["vocab"]["question"], first=1)
        answers = _in_order(content["vocab"]["answer"], first=0)
        tensors = _our_tensors(content["weights"])
        if _never_counted(tensors):
            tensors = {key: value for key, value in tensors.items() if not key.startswith(COUNTS)}
        # Photos are padded to a fixed number, which the file's settings name: 36 for features of 36 proposals.
        proposals = int(content.get("config", {}).get("output_size", PUBLISHED_PROPOSALS))
        config, sizes = _sizes(tensors, proposals)
        if len(words) != sizes.words or len(answers) < sizes.answers:
            raise ValueError("its vocabulary has another number of words or answers than its weights")
    except Exception as error:  # torch raises all sorts of errors on damaged files
        # torch advises to switch weights_only off, which would run the file's content.
        refused = isinstance(error, UnpicklingError) or "weights_only" in str(error)
        reason = "it is damaged, or holds more than tensors and plain values" if refused else error_summary(error)
        raise InputError(f"{path} is not a checkpoint of the published code: {reason}") from None
    model = model_of(config, sizes, tensors, path).float()
    return model, Checkpoint(VqaConfig(model=config), sizes, words, answers[: sizes.answers], epoch=0, steps=0)


def _our_tensors(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename and reshape the published weights; convolutions of size 1 become linear layers."""
    tensors: dict[str, Tensor] = {}
    for key, value in weights.items():
        layer, _, name = key.removeprefix("module.").rpartition(".")
        if layer in LAYERS:
            tensors[f"{LAYERS[layer]}.{name}"] = value.flatten(1) if value.dim() == 4 else value
        elif not layer.startswith("counter.f."):
            raise ValueError(f"it has a weight {key} that the published model does not have")
    if "classifier.from_count.0.weight" in tensors:
        tensors["count.counter.weight"] = read_published_weight(weights).unsqueeze(0)
    return tensors


def _never_counted(tensors: Mapping[str, Tensor]) -> bool:
    """Return whether a file's counter took no part in its training.

    The published baseline leaves out one line, so its file holds a counter nonetheless: one whose batch normalisation
    has the statistics it began with.
    """
    initial = {"classifier.from_count.2.running_mean": 0, "classifier.from_count.2.running_var": 1}
    return all(name in tensors and bool((tensors[name] == value).all()) for name, value in initial.items())


def _sizes(tensors: Mapping[str, Tensor], proposals: int) -> tuple[ModelConfig, DataSizes]:
    shapes = {name: tuple(value.shape) for name, value in tensors.items()}
    words, embedding = shapes["question.embedding.weight"]
    attention, features = shapes["attention.from_features.weight"]
    answers, classifier = shapes["classifier.to_answers.weight"]
    counts = shapes.get("classifier.from_count.0.weight")
    config = ModelConfig(
        name="baseline" if counts is None else "counter",
        embedding=embedding,
        question=shapes["question.gru.weight_hh_l0"][1],
        attention=attention,
        glimpses=shapes["attention.to_glimpses.weight"][0],
        classifier=classifier,
        padding="published",
        max_objects=ModelConfig.max_objects if counts is None else counts[1] - 1,
    )
    return config, DataSizes(words - 1, answers, features, proposals)


def _in_order(indices: Mapping[str, Any], first: int) -> tuple[str, ...]:
    ordered = sorted(indices, key=indices.__getitem__)
    if [indices[word] for word in ordered] != list(range(first, first + len(ordered))):
        raise ValueError(f"its vocabulary must number its entries from {first} without gaps")
    return tuple(ordered)
