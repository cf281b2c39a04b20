"""Checkpoints of the published code, with its names for the layers of the same model.

The file holds `weights` and `vocab` (and settings, of which one is read, a log and source text); loading runs none of
its content. The published model attends to padding and counts it (`ModelConfig.padding`), and so does a loaded one.
"""

from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from tallybox.counter.published import read_published_weight
from tallybox.errors import InputError
from tallybox.files import error_summary
from tallybox.vqa.config import ModelConfig
from tallybox.vqa.model import DataSizes

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

Words = tuple[str, ...]


def read_published(path: Path) -> tuple[ModelConfig, DataSizes, Words, Words, dict[str, Tensor]]:
    """Return configuration, sizes, words, answers and parameters of a file, all as ours."""
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
    return config, sizes, words, answers[: sizes.answers], tensors


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
