"""What a model learns from: a split of a prepared folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tallybox.errors import InputError
from tallybox.vqa.batches import PhotoStore, photo_sizes
from tallybox.vqa.model import DataSizes
from tallybox.vqa.prepared import Questions
from tallybox.vqa.preparing import PHOTOS, VOCABULARY
from tallybox.vqa.splits import open_questions
from tallybox.vqa.store import FeatureStore
from tallybox.vqa.vocabulary import Vocabulary


@dataclass(frozen=True)
class TrainingData:
    """What a model learns from, and the words that its numbers stand for."""

    questions: Questions
    store: PhotoStore
    words: tuple[str, ...]
    answers: tuple[str, ...]

    @property
    def sizes(self) -> DataSizes:
        """What a model's layers have to fit."""
        most = int(photo_sizes(self.store).max(initial=1))
        return DataSizes(len(self.words), len(self.answers), self.store.features.shape[1], most)


def answerable(questions: Questions) -> Questions:
    """Leave out questions that nobody gave an answer of the vocabulary to: there is nothing in them to learn."""
    if questions.answers is None:
        raise InputError("questions must have answers to learn from, but these have none; is it a test split?")
    is_known = questions.answers >= 0  # [Q, 10]
    return questions.at(np.flatnonzero(is_known.any(1)))


def open_training_data(prepared: Path, split: str) -> TrainingData:
    """Open a split of a folder that `tallybox vqa prepare` wrote."""
    vocabulary = Vocabulary.load(prepared / VOCABULARY)
    store = FeatureStore.open(prepared / PHOTOS)
    return TrainingData(open_questions(prepared, split), store, vocabulary.words, vocabulary.answers)
