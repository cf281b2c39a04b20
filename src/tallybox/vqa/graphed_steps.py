"""Training steps on a GPU as CUDA graphs: each replay is a single launch.

A graph reads and writes fixed memory. `ResidentInputs` and `StreamedInputs` put the next batch there.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import tee

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tallybox.concurrency import map_in_order
from tallybox.vqa.batches import READERS, LabelledBatch, ResidentExamples, Rows, StreamedExamples
from tallybox.vqa.model import WordPacking
from tallybox.vqa.steps import VqaTrainer

GRAPH_WORDS = 4  # questions are padded to multiples of this, so that a few graphs serve all
SIZE_STEP = 16  # batch sizes are multiples of it: matrix products round up anyway
WARM_UP_STEPS = 3


class ResidentInputs:
    """Questions about photos in the GPU's memory: a graph gathers a batch from its row numbers."""

    def __init__(self, examples: ResidentExamples, batch: int) -> None:
        self.examples = examples
        self.rows = torch.zeros(batch, dtype=torch.int64, device=examples.device)

    def fill(self, order: Iterable[Rows]) -> Iterator[None]:
        """Put each batch in place, and yield when it is."""
        for rows in order:
            self.rows.copy_(torch.from_numpy(rows).pin_memory(), non_blocking=True)
            yield

    def labelled(self, words: int) -> LabelledBatch:
        """Return the batch in place, padded to ``words``."""
        return self.examples.at(self.rows, proposals=self.examples.max_proposals, words=words)


class StreamedInputs:
    """Questions about photos that are read from the store: threads read ahead, and a stream copies to the GPU."""

    def __init__(self, examples: StreamedExamples, batch: int) -> None:
        self.examples = examples
        self.sizes = examples.padded_sizes(np.arange(len(examples.questions)))
        self.copying = torch.cuda.Stream(examples.device)
        self.values = self._copy(examples.read(np.zeros(batch, np.int64), **self.sizes))
        self.copying.synchronize()

    def fill(self, order: Iterable[Rows]) -> Iterator[None]:
        """Put each batch in place, and yield when it is."""
        following: list[Tensor] = []
        for host in map_in_order(lambda rows: self.examples.read(rows, **self.sizes), order, threads=READERS, ahead=2):
            current, following = following, self._copy(host)  # copied while the current one is computed
            if current:
                yield from self._put(current)
        if following:
            yield from self._put(following)

    def labelled(self, words: int) -> LabelledBatch:
        """Return the batch in place, padded to ``words``."""
        labelled = self.examples.labelled(self.values)
        batch = labelled.batch
        lengths = batch.lengths.clamp(max=words)  # a graph is captured with questions that may be longer
        return labelled._replace(batch=batch._replace(words=batch.words[:, :words], lengths=lengths))

    def _copy(self, host: Sequence[Tensor]) -> list[Tensor]:
        with torch.cuda.stream(self.copying):
            return [value.to(self.examples.device, non_blocking=True) for value in host]

    def _put(self, values: Sequence[Tensor]) -> Iterator[None]:
        computing = torch.cuda.current_stream(self.examples.device)
        computing.wait_stream(self.copying)
        for place, value in zip(self.values, values, strict=True):
            place.copy_(value)
            value.record_stream(computing)
        yield


def expected_batch_sizes(lengths: Rows, batch: int, words: int) -> list[int]:
    """Return a bound on how many questions of a random batch have each of ``words`` words.

    Four standard deviations above the mean, so that few batches exceed it.

    >>> expected_batch_sizes(np.array([3, 3, 3, 5]), batch=256, words=5)
    [256, 256, 256, 96, 96]
    """
    share = (lengths[:, None] > np.arange(words)).mean(0)
    bound = np.maximum(batch * share + 4 * np.sqrt(batch * share * (1 - share)), 1)
    return [int(size) for size in np.minimum(np.ceil(bound / SIZE_STEP) * SIZE_STEP, batch)]


def is_covered(lengths: Rows, batch_sizes: NDArray[np.int64]) -> bool:
    """Whether a graph for these batch sizes covers a batch with questions of these lengths.

    >>> is_covered(np.array([2, 1, 1]), np.array([3, 1])), is_covered(np.array([2, 2, 1]), np.array([3, 1]))
    (True, False)
    """
    questions = (lengths[:, None] > np.arange(len(batch_sizes))).sum(0)  # that have a word at each step
    return bool(lengths.max() <= len(batch_sizes) and (questions <= batch_sizes).all())


class GraphedSteps:
    """Whole steps as CUDA graphs: one graph for each padded length (`expected_batch_sizes`), and one for any batch."""

    def __init__(self, trainer: VqaTrainer, examples: ResidentExamples | StreamedExamples) -> None:
        self.trainer = trainer
        batch = trainer.config.batch
        if isinstance(examples, ResidentExamples):
            self.inputs: ResidentInputs | StreamedInputs = ResidentInputs(examples, batch)
        else:
            self.inputs = StreamedInputs(examples, batch)
        self.lengths = examples.questions.lengths
        self.graphs: list[tuple[WordPacking, torch.cuda.CUDAGraph]] = []  # a graph reads its packing's memory
        before = {name: value.clone() for name, value in trainer.tensors()}
        longest = int(self.lengths.max())
        for words in range(GRAPH_WORDS, longest + GRAPH_WORDS, GRAPH_WORDS):
            self._capture(expected_batch_sizes(self.lengths, batch, min(words, longest)))
        self._capture([batch] * longest)
        trainer.restore(before, trainer.steps)
        trainer.totals.zero_()

    def run(self, order: Iterable[Rows]) -> Iterator[None]:
        """Take a step with the questions of each batch in ``order``, and yield after it."""
        # The GRU reads the longest questions first; the mean over a batch has no order.
        ordered, ahead = tee(rows[np.argsort(-self.lengths[rows], kind="stable")] for rows in order)
        for rows, _ in zip(ordered, self.inputs.fill(ahead), strict=True):
            lengths = self.lengths[rows]
            self.trainer.set_learning_rate()
            sizes = (packing.batch_sizes.numpy() for packing, _ in self.graphs)
            chosen = next(index for index, size in enumerate(sizes) if is_covered(lengths, size))
            self.graphs[chosen][1].replay()
            self.trainer.steps += 1
            yield

    def _capture(self, batch_sizes: list[int]) -> None:
        device = self.trainer.device
        packing = WordPacking(batch_sizes, device)

        def step() -> None:
            self.trainer.update(self.inputs.labelled(len(batch_sizes)), packing)

        side_stream = torch.cuda.Stream(device)
        side_stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side_stream):
            for _ in range(WARM_UP_STEPS):
                step()
        torch.cuda.current_stream(device).wait_stream(side_stream)
        graph = torch.cuda.CUDAGraph()
        pool = self.graphs[0][1].pool() if self.graphs else None
        with torch.cuda.graph(graph, pool=pool):
            step()
        self.graphs.append((packing, graph))
