"""Scores of a model while it is trained: after epochs, on questions that it is not trained on."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tallybox.files import write_text
from tallybox.runs import read_results
from tallybox.vqa.batches import load_examples
from tallybox.vqa.checkpoints import BEST, Checkpoint, write_checkpoint
from tallybox.vqa.data.questions import QuestionRecord
from tallybox.vqa.data.splits import EncodedQuestions, open_pairs, open_questions, open_records
from tallybox.vqa.data.store import PHOTOS, FeatureStore
from tallybox.vqa.model import VqaModel
from tallybox.vqa.prediction import answer
from tallybox.vqa.scoring import all_scores
from tallybox.vqa.steps import compute_dtype

VALIDATION = "validation.jsonl"  # the file of scores in a run's folder
BEST_BY = "all"


@dataclass(frozen=True)
class ValidationData:
    """Questions to score a model on while it is trained."""

    questions: EncodedQuestions
    records: list[QuestionRecord]
    pairs: NDArray[np.int64]
    store: FeatureStore
    every: int = 1  # epochs


def open_validation_data(prepared: Path, split: str, every: int = 1) -> ValidationData:
    """Open a split of a prepared folder."""
    store = FeatureStore.open(prepared / PHOTOS)
    questions = open_questions(prepared, split, store)
    return ValidationData(questions, open_records(prepared, split), open_pairs(prepared, split), store, every)


class Validator:
    """Scores a model after epochs into a run's ``validation.jsonl`` and keeps its best parameters."""

    def __init__(self, data: ValidationData, folder: Path, checkpoint: Checkpoint, device: torch.device) -> None:
        self.data, self.folder = data, folder
        config = checkpoint.config
        dtype = compute_dtype(config.training.precision, device)
        self.examples = load_examples(data.questions, data.store, device, dtype, config.model.feature_length)
        self.model = VqaModel(config.model, checkpoint.sizes)  # a second model: the trained one may be compiled
        # Epochs after the checkpoint are repeated.
        self.lines = [line for line in read_results(folder / VALIDATION) if line["epoch"] <= checkpoint.epoch]

    def validate(self, model: VqaModel, checkpoint: Checkpoint) -> None:
        """Score a model, add a line, and write the parameters if they are better than all before."""
        self.model.load_state_dict(model.state_dict())
        scores = all_scores(answer(self.model, checkpoint, self.examples), self.data.records, self.data.pairs)
        if all(scores[BEST_BY] > line[BEST_BY] for line in self.lines):
            tensors = ((f"model.{name}", value) for name, value in model.state_dict().items())
            write_checkpoint(self.folder, checkpoint, tensors, BEST)
        self.lines.append({"epoch": checkpoint.epoch, "step": checkpoint.steps, **scores})
        write_text(self.folder / VALIDATION, "".join(json.dumps(line) + "\n" for line in self.lines))
