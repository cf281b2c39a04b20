"""Checkpoints of the published code, with its names for the layers of the same model.

The file holds `weights` and `vocab` (and a log, settings and source text, which are not read); loading runs none of its
content. The published model attends to padding; this one masks it, so answers about photos with fewer than the maximum
number of proposals may differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from tallybox.counter.published import read_published_weight
from tallybox.errors import InputError
from tallybox.files import first_line
from tallybox.vqa.checkpoints import Checkpoint, model_of
from tallybox.vqa.configuration import ModelConfig, VqaConfig
from tallybox.vqa.model import DataSizes, VqaModel

PUBLISHED_PROPOSALS = 100
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


def load_published(path: Path) -> tuple[VqaModel, Checkpoint]:
    """Return the model in a file of the published code, in evaluation mode, and its vocabulary."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        weights, vocabulary = content["weights"], content["vocab"]
        words = _in_order(vocabulary["question"], first=1)
        answers = _in_order(vocabulary["answer"], first=0)
        tensors = our_tensors(weights)
        config, sizes = _sizes(tensors)
    except Exception as error:  # torch raises all sorts of errors on damaged files
        # torch advises to switch weights_only off, which would run the file's content.
        refused = isinstance(error, UnpicklingError) or "weights_only" in str(error)
        reason = "it is damaged, or holds more than tensors and plain values" if refused else first_line(error)
        raise InputError(
            f"{path} must be a checkpoint of the published code with weights and vocab, but: {reason}"
        ) from None
    if len(words) != sizes.words or len(answers) < sizes.answers:
        raise InputError(
            f"{path} must have a vocabulary that fits its weights ({sizes.words} words, {sizes.answers} answers), "
            f"but got {len(words)} and {len(answers)}"
        )
    model = model_of(config, sizes, tensors, path)
    return model, Checkpoint(VqaConfig(model=config), sizes, words, answers[: sizes.answers], epoch=0, steps=0)


def our_tensors(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename and reshape the published weights; convolutions of size 1 become linear layers."""
    tensors: dict[str, Tensor] = {}
    for key, value in weights.items():
        layer, _, name = key.removeprefix("module.").rpartition(".")
        if layer in LAYERS:
            tensors[f"{LAYERS[layer]}.{name}"] = value.flatten(1) if value.dim() == 4 else value
        elif not layer.startswith("counter.f."):
            raise ValueError(f"it has a weight {key} that the published model does not have")
    for name in [name for name in tensors if name.endswith(".running_mean")]:
        # Older versions of PyTorch did not count batches; the number is not used.
        tensors.setdefault(name.replace("running_mean", "num_batches_tracked"), torch.tensor(0))
    if "classifier.from_count.0.weight" in tensors:
        tensors["count.counter.weight"] = read_published_weight(weights).unsqueeze(0)
    return tensors


def _sizes(tensors: Mapping[str, Tensor]) -> tuple[ModelConfig, DataSizes]:
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
        **({} if counts is None else {"max_objects": counts[1] - 1}),
    )
    return config, DataSizes(words - 1, answers, features, PUBLISHED_PROPOSALS)


def _in_order(indices: Mapping[str, Any], first: int) -> tuple[str, ...]:
    ordered = sorted(indices, key=lambda word: int(indices[word]))
    if [int(indices[word]) for word in ordered] != list(range(first, first + len(ordered))):
        raise ValueError(f"its vocabulary must number its entries from {first} without gaps")
    return tuple(ordered)
