"""From a prepared folder to batches on a device: proposals that are already in its memory, or that are read ahead.

Legend: B questions, N proposals (padded), F features, P proposals of all photos, I photos.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tallybox.concurrency import map_in_order
from tallybox.errors import InputError
from tallybox.vqa.data.splits import UNKNOWN_RELEVANCE, EncodedQuestions, open_questions
from tallybox.vqa.data.store import PHOTOS, FeatureStore
from tallybox.vqa.data.vocabulary import VOCABULARY, Vocabulary
from tallybox.vqa.model import Batch, DataSizes, scale_features

Rows = NDArray[np.int64]

# A thread copies a batch of the paper's size in about 5 ms, a GPU's step takes 2: several read side by side.
READERS = min(8, os.cpu_count() or 1)
PHOTOS_PER_CHUNK = 2048  # copied to the device together: 0.8 GB of the paper's features
SPARE_GPU_BYTES = 8 * 2**30  # for the model and the activations of a step
HOST_BYTES = 4 * 2**30  # that photos may fill of the computer's memory


@dataclass(frozen=True)
class TrainingData:
    """The questions and photos that a model is trained on, and the vocabulary of their indices."""

    questions: EncodedQuestions
    store: FeatureStore
    words: tuple[str, ...]
    answers: tuple[str, ...]

    @property
    def sizes(self) -> DataSizes:
        """The sizes that a model's layers must have."""
        max_proposals = int(self.store.num_boxes.max(initial=1))
        return DataSizes(len(self.words), len(self.answers), self.store.width, max_proposals)


def open_training_data(prepared: Path, split: str) -> TrainingData:
    """Open a split of a prepared folder."""
    vocabulary, store = Vocabulary.load(prepared / VOCABULARY), FeatureStore.open(prepared / PHOTOS)
    return TrainingData(open_questions(prepared, split, store), store, vocabulary.words, vocabulary.answers)


def answerable(questions: EncodedQuestions) -> EncodedQuestions:
    """Return the questions that have at least one answer in the vocabulary; a model cannot learn from the rest."""
    if questions.answers is None:
        raise InputError("These questions have no answers to train on; a test split has none.")
    return questions.at(np.flatnonzero((questions.answers >= 0).any(1)))


class LabelledBatch(NamedTuple):
    """A model's input, and the answers of ten people."""

    batch: Batch
    answers: Tensor  # [B, 10], -1 outside the vocabulary
    relevance: Tensor | None = None  # [B, N] int8 as in `EncodedQuestions`; None without true boxes


@dataclass(eq=False)
class _Examples:
    """Questions about photos as batches on a device; features are scaled to ``length`` (L2), or not if it is 0."""

    questions: EncodedQuestions
    store: FeatureStore
    device: torch.device
    dtype: torch.dtype
    length: float

    def __post_init__(self) -> None:
        answers = self.questions.answers
        self.answers = np.full((len(self.questions), 10), -1) if answers is None else answers

    def padded_sizes(self, rows: Rows) -> dict[str, int]:
        """Return the numbers of proposals and words that a batch is padded to: its largest."""
        proposals = self.store.num_boxes[self.questions.images[rows]].max(initial=1)
        return {"proposals": int(proposals), "words": int(self.questions.lengths[rows].max())}


class ResidentExamples(_Examples):
    """Questions about photos whose proposals are in a device's memory, with scaled features."""

    def __post_init__(self) -> None:
        super().__post_init__()
        questions, store, device = self.questions, self.store, self.device
        rows, photo = np.unique(questions.images, return_inverse=True)
        counts = store.num_boxes[rows]
        starts = np.concatenate(([0], counts.cumsum()))
        self.max_proposals = int(counts.max(initial=1))
        self.starts, self.counts, self.words, self.lengths, self.answers_on_device = (
            torch.from_numpy(values).to(device)  # by question
            for values in (starts[photo], counts[photo], questions.words, questions.lengths, self.answers)
        )
        self.relevance = None if questions.relevance is None else torch.from_numpy(questions.relevance).to(device)
        self.features = torch.empty(int(starts[-1]), store.width, device=device, dtype=self.dtype)
        self.boxes = torch.from_numpy(np.concatenate([store.boxes_of(row) for row in rows.tolist()])).to(device)
        for first in range(0, len(rows), PHOTOS_PER_CHUNK):
            chunk = rows[first : first + PHOTOS_PER_CHUNK]
            features = np.concatenate([store.features_of(row) for row in chunk.tolist()])
            target = slice(int(starts[first]), int(starts[first]) + len(features))
            self.features[target] = scale_features(torch.from_numpy(features).to(device), self.length).to(self.dtype)

    def at(self, rows: Tensor, *, proposals: int, words: int) -> LabelledBatch:
        """Return the questions in ``rows [B]`` padded to these sizes, without waiting for the device."""
        column = torch.arange(proposals, device=rows.device)
        mask = column < self.counts[rows].unsqueeze(1)
        # Padding repeats proposals of other photos; the mask hides them.
        index = (self.starts[rows].unsqueeze(1) + column).clamp(max=len(self.features) - 1).flatten()
        features, boxes = (
            values.index_select(0, index).unflatten(0, mask.shape) for values in (self.features, self.boxes)
        )
        lengths = self.lengths[rows].clamp(max=words)  # a graph is captured with questions that may be longer
        relevance = None if self.relevance is None else fitted(self.relevance[rows], proposals)
        batch = Batch(features, boxes, mask, self.words[rows, :words], lengths)
        return LabelledBatch(batch, self.answers_on_device[rows], relevance)

    def batches(self, order: Iterable[Rows]) -> Iterator[LabelledBatch]:
        """Yield each batch, padded to its largest photo and longest question."""
        for rows in order:
            yield self.at(torch.from_numpy(rows).to(self.device), **self.padded_sizes(rows))


class StreamedExamples(_Examples):
    """Questions about photos that are read from the store a few batches ahead."""

    def batches(self, order: Iterable[Rows]) -> Iterator[LabelledBatch]:
        """Yield each batch, padded to its largest photo and longest question."""
        hosts = map_in_order(lambda rows: self.read(rows, **self.padded_sizes(rows)), order, threads=READERS, ahead=2)
        for host in hosts:
            yield self.labelled([value.to(self.device, non_blocking=True) for value in host])

    def read(self, rows: Rows, *, proposals: int, words: int) -> list[Tensor]:
        """Return the questions in ``rows [B]`` padded to these sizes, in memory that a GPU can copy from."""
        questions, pinned = self.questions, self.device.type == "cuda"
        shape = len(rows), proposals, self.store.width
        features = torch.empty(shape, dtype=torch.float16, pin_memory=pinned)
        boxes = torch.empty(len(rows), proposals, 4, pin_memory=pinned)
        mask = self.store.read_into(questions.images[rows], features.numpy(), boxes.numpy())
        arrays = [mask, questions.words[rows, :words], questions.lengths[rows], self.answers[rows]]
        small = [torch.from_numpy(array) for array in arrays]
        if questions.relevance is not None:
            small.append(fitted(torch.from_numpy(questions.relevance[rows]), proposals))
        return [features, boxes, *((value.pin_memory() for value in small) if pinned else small)]

    def labelled(self, values: Sequence[Tensor]) -> LabelledBatch:
        """Return a batch from the tensors of `read`, once they are on the device."""
        features, boxes, mask, words, lengths, answers, *relevance = values
        scaled = scale_features(features, self.length).to(self.dtype)
        return LabelledBatch(Batch(scaled, boxes, mask, words, lengths), answers, *relevance)


Examples = ResidentExamples | StreamedExamples


def load_examples(
    questions: EncodedQuestions,
    store: FeatureStore,
    device: torch.device,
    dtype: torch.dtype,
    length: float,
    max_bytes: int | None = None,
) -> Examples:
    """Copy the photos to a device's memory if they fit, by default into the free memory; else stream them."""
    proposals = int(store.num_boxes[np.unique(questions.images)].sum())
    needed = proposals * (store.width * dtype.itemsize + 16)
    if max_bytes is None:
        max_bytes = torch.cuda.mem_get_info(device)[0] - SPARE_GPU_BYTES if device.type == "cuda" else HOST_BYTES
    return (ResidentExamples if needed < max_bytes else StreamedExamples)(questions, store, device, dtype, length)


def fitted(relevance: Tensor, proposals: int) -> Tensor:
    """Return ``relevance [B, N]`` cut or padded to a number of proposals; padding is of unknown relevance.

    >>> fitted(torch.tensor([[1, 0, -1]]), 2), fitted(torch.tensor([[1]]), 2)
    (tensor([[1, 0]]), tensor([[ 1, -1]]))
    """
    return nn.functional.pad(relevance, (0, proposals - relevance.shape[1]), value=UNKNOWN_RELEVANCE)


def epoch_order(questions: int, batch: int, seed: int, epoch: int) -> list[Rows]:
    """Return the questions of each of an epoch's steps: a shuffle that seed and epoch determine.

    The last step has what is left over; a single question is left out, as batch normalisation needs two.
    """
    shuffled = np.random.default_rng((seed, epoch)).permutation(questions)
    steps = [shuffled[first : first + batch] for first in range(0, questions, batch)]
    return steps if len(steps[-1]) > 1 else steps[:-1]
