"""Scores of a model while it is trained: after epochs, on questions that it is not trained on."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from tallybox.files import write_text
from tallybox.runs import read_results
from tallybox.vqa.batches import ResidentExamples, StreamedExamples
from tallybox.vqa.checkpoints import Checkpoint, model_of
from tallybox.vqa.data.splits import EncodedQuestions
from tallybox.vqa.data.store import FeatureStore
from tallybox.vqa.model import VqaModel
from tallybox.vqa.prediction import answer, examples_of
from tallybox.vqa.scoring import Scorer

VALIDATION = "validation.jsonl"  # the file of scores in a run's folder


@dataclass(frozen=True)
class Validator:
    """Scores a model after epochs of `train` into its folder's ``validation.jsonl``."""

    folder: Path
    checkpoint: Checkpoint  # of which the epoch and the steps are not used
    questions: EncodedQuestions
    store: FeatureStore
    scorer: Scorer
    device: torch.device
    every: int = 1  # epochs; the last is scored in any case

    @cached_property
    def examples(self) -> ResidentExamples | StreamedExamples:
        """The questions; in the memory of a GPU, those that a model is trained on come first."""
        return examples_of(self.checkpoint, self.questions, self.store, self.device)

    def __call__(self, epoch: int, model: VqaModel) -> None:
        """Score the model after an epoch and add a line."""
        if epoch % self.every and epoch < self.checkpoint.config.training.epochs:
            return
        copy = model_of(model.config, model.sizes, model.state_dict(), self.folder)  # the trained one may be compiled
        scores = self.scorer.scores(answer(copy, self.checkpoint, self.examples))
        step = read_results(self.folder / "results.jsonl")[-1]["step"]
        # Epochs after a checkpoint are repeated.
        lines = [line for line in read_results(self.folder / VALIDATION) if line["epoch"] < epoch]
        lines.append({"epoch": epoch, "step": step, **scores})
        write_text(self.folder / VALIDATION, "".join(json.dumps(line) + "\n" for line in lines))
