"""From prepared files to batches on a device: proposals that lie there already, or that are read ahead.

Legend: B questions, N proposals (padded), F features, P proposals of all photos.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tallybox.distributed import Processes
from tallybox.vqa.model import Batch, scale_features
from tallybox.vqa.prepared import UNKNOWN_RELEVANCE, Proposals, Questions

Rows = NDArray[np.int64]
Item = TypeVar("Item")

ALONE = Processes()
READ_AHEAD = 3  # batches
PHOTOS_AT_ONCE = 2048  # while memory is filled: 0.8 GB of the paper's features
SPARE_GPU_BYTES = 8 * 2**30  # for the model and what a step needs


class PhotoStore(Protocol):
    """Proposals of photos, one photo after another."""

    @property
    def offsets(self) -> Rows:
        """Where each photo begins, and where the last ends: ``[I + 1]``."""

    @property
    def features(self) -> NDArray[np.float16]:
        """``[P, F]``, as a detector gave them."""

    @property
    def boxes_xyxy(self) -> NDArray[np.float32]:
        """``[P, 4]``."""

    def read(self, rows: Rows) -> Proposals:
        """Return some photos, padded."""


class LabelledBatch(NamedTuple):
    """What a model is asked, and what ten people answered."""

    batch: Batch
    answers: Tensor  # [B, 10], -1 outside the vocabulary
    relevance: Tensor | None = None  # [B, N] int8 as of `Questions`; None where it is known of no question


class ResidentPhotos:
    """The proposals of the photos that are asked about, in a device's memory, scaled to a length."""

    def __init__(self, store: PhotoStore, rows: Rows, device: torch.device, dtype: torch.dtype, length: float) -> None:
        counts = photo_sizes(store)[rows]
        self.counts = counts
        self.most = int(counts.max(initial=1))
        starts = np.concatenate(([0], counts.cumsum()))
        self._place = np.full(len(store.offsets) - 1, -1, np.int64)
        self._place[rows] = np.arange(len(rows))
        self.place, self.starts, self.numbers = (
            torch.from_numpy(values).to(device) for values in (self._place, starts[:-1].copy(), counts)
        )
        self.features = torch.empty(int(starts[-1]), store.features.shape[1], device=device, dtype=dtype)
        self.boxes = torch.empty(int(starts[-1]), 4, device=device)
        for first in range(0, len(rows), PHOTOS_AT_ONCE):
            some = slice(first, first + PHOTOS_AT_ONCE)
            wanted = np.concatenate([np.arange(*store.offsets[row : row + 2]) for row in rows[some]])
            target = slice(int(starts[first]), int(starts[first]) + len(wanted))
            read = torch.from_numpy(np.asarray(store.features[wanted])).to(device)
            self.features[target] = scale_features(read, length).to(dtype)
            self.boxes[target] = torch.from_numpy(np.asarray(store.boxes_xyxy[wanted])).to(device)

    def widest(self, rows: Rows) -> int:
        """Return the most proposals that one of some photos has."""
        return int(self.counts[self._place[rows]].max(initial=1))

    def at(self, rows: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return features ``[B, N, F]``, boxes ``[B, N, 4]`` and mask ``[B, N]``; nothing waits for the device."""
        place = self.place[rows]
        column = torch.arange(width, device=rows.device)
        mask = column < self.numbers[place].unsqueeze(1)
        # Padding takes another photo's proposals, which exist; no layer looks at them.
        index = (self.starts[place].unsqueeze(1) + column).clamp(max=len(self.features) - 1).flatten()
        features = self.features.index_select(0, index).unflatten(0, mask.shape)
        return features, self.boxes.index_select(0, index).unflatten(0, mask.shape), mask


class Examples:
    """Questions about photos that lie in a device's memory."""

    def __init__(
        self, questions: Questions, store: PhotoStore, device: torch.device, dtype: torch.dtype, length: float
    ) -> None:
        self.questions = questions
        self.device = device
        self.photos = ResidentPhotos(store, np.unique(questions.images), device, dtype, length)
        self.images, self.words, self.lengths = (
            torch.from_numpy(values).to(device) for values in (questions.images, questions.words, questions.lengths)
        )
        self.answers = None if questions.answers is None else torch.from_numpy(questions.answers).to(device)
        self.relevance = None if questions.relevance is None else torch.from_numpy(questions.relevance).to(device)

    def at(self, rows: Tensor, *, proposals: int, words: int) -> LabelledBatch:
        """Return the questions in ``rows [B]`` padded to given sizes; nothing waits for the device."""
        lengths = self.lengths[rows].clamp(max=words)  # a graph is captured with questions that may be longer
        batch = Batch(*self.photos.at(self.images[rows], proposals), self.words[rows, :words], lengths)
        answers = no_answers(rows) if self.answers is None else self.answers[rows]
        relevance = None if self.relevance is None else fitted(self.relevance[rows], proposals)
        return LabelledBatch(batch, answers, relevance)

    def batches(self, order: Iterable[Rows], processes: Processes = ALONE) -> Iterator[LabelledBatch]:
        """Yield this process's part of batches in order, padded to what is longest in the whole batch."""
        for whole in order:
            proposals = self.photos.widest(self.questions.images[whole])
            words = int(self.questions.lengths[whole].max())
            rows = torch.from_numpy(processes.share(whole)).to(self.device)
            yield self.at(rows, proposals=proposals, words=words)


class StreamedExamples:
    """Questions about photos that are read from the store while earlier ones are computed with."""

    def __init__(
        self, questions: Questions, store: PhotoStore, device: torch.device, dtype: torch.dtype, length: float
    ) -> None:
        self.questions = questions
        self.store = store
        self.device = device
        self.dtype = dtype
        self.length = length

    def batches(self, order: Iterable[Rows], processes: Processes = ALONE) -> Iterator[LabelledBatch]:
        """Yield this process's part of batches in order, padded to what is longest in the whole batch."""
        for host in read_ahead(order, lambda whole: self._read(whole, processes)):
            features, boxes, mask, words, lengths, answers, *relevance = (
                value.to(self.device, non_blocking=True) for value in host
            )
            batch = Batch(scale_features(features, self.length).to(self.dtype), boxes, mask, words, lengths)
            yield LabelledBatch(batch, answers, *relevance)

    def _read(self, whole: Rows, processes: Processes) -> list[Tensor]:
        questions, rows = self.questions, processes.share(whole)
        photos = self.store.read(questions.images[rows])
        widest = int(photo_sizes(self.store)[questions.images[whole]].max(initial=1))
        padding = widest - photos.mask.shape[1]
        words = torch.from_numpy(questions.words[rows, : int(questions.lengths[whole].max())])
        values = [
            nn.functional.pad(torch.from_numpy(photos.features), (0, 0, 0, padding)),
            nn.functional.pad(torch.from_numpy(photos.boxes_xyxy), (0, 0, 0, padding)),
            nn.functional.pad(torch.from_numpy(photos.mask), (0, padding)),
            words,
            torch.from_numpy(questions.lengths[rows]),
            no_answers(words) if questions.answers is None else torch.from_numpy(questions.answers[rows]),
        ]
        if questions.relevance is not None:
            values.append(fitted(torch.from_numpy(questions.relevance[rows]), widest))
        return [value.pin_memory() for value in values] if self.device.type == "cuda" else values


def photo_sizes(store: PhotoStore) -> Rows:
    """Return how many proposals each photo has, ``[I]``."""
    return store.offsets[1:] - store.offsets[:-1]


def fitted(relevance: Tensor, proposals: int) -> Tensor:
    """Return ``relevance [B, N]`` with another number of columns; a proposal that is not there is not known.

    >>> fitted(torch.tensor([[1, 0, -1]]), 2), fitted(torch.tensor([[1]]), 2)
    (tensor([[1, 0]]), tensor([[ 1, -1]]))
    """
    return nn.functional.pad(relevance, (0, proposals - relevance.shape[1]), value=UNKNOWN_RELEVANCE)


def no_answers(rows: Tensor) -> Tensor:
    """Return what stands for the answers of questions that nobody answered."""
    return torch.full((len(rows), 10), -1, device=rows.device)


def place_examples(
    questions: Questions, store: PhotoStore, device: torch.device, dtype: torch.dtype, length: float
) -> Examples | StreamedExamples:
    """Put photos into a device's memory where they fit, else read them when they are needed.

    Features are scaled to ``length`` (L2), or left as they are if it is 0.
    """
    counts = photo_sizes(store)[np.unique(questions.images)]
    needed = int(counts.sum()) * (store.features.shape[1] * dtype.itemsize + 16)
    fits = needed < free_bytes(device)
    return (Examples if fits else StreamedExamples)(questions, store, device, dtype, length)


def free_bytes(device: torch.device) -> int:
    """Return how much of a device's memory photos may take."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] - SPARE_GPU_BYTES
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def read_ahead(order: Iterable[Rows], read: Callable[[Rows], Item]) -> Iterator[Item]:
    """Yield what ``read`` makes of each item, in order, a few items ahead of who takes them.

    >>> list(read_ahead([np.arange(2), np.arange(3)], len))
    [2, 3]
    """
    with ThreadPoolExecutor(max_workers=2) as readers:
        waiting: list[Future[Item]] = []
        for rows in order:
            waiting.append(readers.submit(read, rows))
            if len(waiting) > READ_AHEAD:
                yield waiting.pop(0).result()
        for future in waiting:
            yield future.result()


def epoch_order(questions: int, batch: int, seed: int, epoch: int) -> Rows:
    """Return the questions of an epoch's steps, ``[steps, B]``: a shuffle that seed and epoch determine.

    Fewer than a batch are left over; each epoch leaves others out.

    >>> epoch_order(7, 3, seed=0, epoch=1).shape
    (2, 3)
    """
    shuffled = np.random.default_rng((seed, epoch)).permutation(questions)
    return shuffled[: questions // batch * batch].reshape(-1, batch)
