"""Answers to the questions of a split, and the file that the test server takes them in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from tallybox.errors import InputError
from tallybox.files import write_text
from tallybox.vqa.batches import PhotoStore, place_examples
from tallybox.vqa.checkpoints import Checkpoint
from tallybox.vqa.learning import computing_dtype, computing_in
from tallybox.vqa.model import VqaModel
from tallybox.vqa.prepared import Questions

QUESTIONS_AT_ONCE = 512


def predict(
    model: VqaModel,
    checkpoint: Checkpoint,
    questions: Questions,
    store: PhotoStore,
    *,
    device: torch.device,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[int, str]:
    """Return a model's most probable answer to each question, by question id."""
    if store.features.shape[1] != checkpoint.sizes.features:
        raise InputError(
            f"photos must have {checkpoint.sizes.features} features as those that the model learned from, "
            f"but got {store.features.shape[1]}"
        )
    dtype = computing_dtype(checkpoint.config.training.precision, device)
    examples = place_examples(questions, store, device, dtype, checkpoint.config.model.feature_length)
    model = model.to(device, torch.float64 if dtype == torch.float64 else torch.float32).eval()
    places: list[int] = []
    with torch.inference_mode(), computing_in(dtype, device):
        for labelled in examples.batches(_in_order(len(questions))):
            places += model(labelled.batch).argmax(-1).tolist()
            on_progress(len(places), len(questions))
    return {int(key): checkpoint.answers[place] for key, place in zip(questions.question_ids, places, strict=True)}


def write_results(predictions: dict[int, str], path: Path) -> None:
    """Write the results file of the test server: a JSON array of question ids with answers."""
    results = [{"question_id": question_id, "answer": answer} for question_id, answer in predictions.items()]
    write_text(path, json.dumps(results) + "\n")


def _in_order(questions: int) -> Iterator[np.typing.NDArray[np.int64]]:
    for first in range(0, questions, QUESTIONS_AT_ONCE):
        yield np.arange(first, min(first + QUESTIONS_AT_ONCE, questions))
