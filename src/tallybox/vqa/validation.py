"""Scores of a model while it is trained: after epochs, on questions that it is not trained on."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch

from tallybox.files import write_text
from tallybox.runs import read_results
from tallybox.vqa.checkpoints import Checkpoint
from tallybox.vqa.data.splits import EncodedQuestions, open_pairs, open_questions, open_records
from tallybox.vqa.data.store import PHOTOS, FeatureStore
from tallybox.vqa.model import VqaModel
from tallybox.vqa.prediction import answer, examples_of
from tallybox.vqa.scoring import Scorer

VALIDATION = "validation.jsonl"  # the file of scores in a run's folder


@dataclass(frozen=True)
class ValidationData:
    """Questions to score a model on while it is trained."""

    questions: EncodedQuestions
    store: FeatureStore
    scorer: Scorer
    every: int = 1  # epochs

    @classmethod
    def open(cls, prepared: Path, split: str, every: int = 1) -> "ValidationData":
        """Open a split of a prepared folder."""
        store = FeatureStore.open(prepared / PHOTOS)
        scorer = Scorer(open_records(prepared, split), open_pairs(prepared, split))
        return cls(open_questions(prepared, split, store), store, scorer, every)


class Validator:
    """Scores a model after epochs into a run's ``validation.jsonl``."""

    def __init__(self, data: ValidationData, folder: Path, checkpoint: Checkpoint, device: torch.device) -> None:
        self.data, self.path = data, folder / VALIDATION
        self.examples = examples_of(checkpoint, data.questions, data.store, device)
        self.model = VqaModel(
            checkpoint.config.model, checkpoint.sizes
        )  # a second model: the trained one may be compiled
        # Epochs after the checkpoint are repeated.
        self.lines = [line for line in read_results(self.path) if line["epoch"] <= checkpoint.epoch]

    def validate(self, model: VqaModel, checkpoint: Checkpoint) -> None:
        """Score a model and add a line."""
        self.model.load_state_dict(model.state_dict())
        scores = self.data.scorer.scores(answer(self.model, checkpoint, self.examples))
        self.lines.append({"epoch": checkpoint.epoch, "step": checkpoint.steps, **scores})
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in self.lines))
