"""`tallybox bench vqa`: a training step at the size of the paper, and its parts, beside a plain float32 step.

The photos are random, since nothing here depends on what they show: as many proposals as asked for, 2,048 features,
lying in the device's memory. Questions have as many words as those of VQA v2 have, by a rough count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tallybox.bench.measure import Row, median_ms, peak_bytes
from tallybox.errors import TallyboxError
from tallybox.vqa.batches import Examples, LabelledBatch
from tallybox.vqa.configuration import ModelConfig, Precision, TrainingConfig
from tallybox.vqa.learning import GraphedSteps, Learner, computing_in
from tallybox.vqa.model import DataSizes, VqaModel, attended
from tallybox.vqa.prepared import Proposals, Questions

PAPER_EPOCHS, PAPER_QUESTIONS = 100, 443_757
# Shares of questions with 3, 4, ... words, roughly those of VQA v2's training split; the longest has 23.
LENGTH_SHARES = {
    3: 0.07,
    4: 0.20,
    5: 0.25,
    6: 0.18,
    7: 0.12,
    8: 0.07,
    9: 0.04,
    10: 0.03,
    12: 0.025,
    15: 0.01,
    23: 0.005,
}


@dataclass(frozen=True)
class VqaRow(Row):
    """A row with what training makes of it."""

    questions_per_second: float | None = None


@dataclass(frozen=True)
class Size:
    """How large a step is."""

    batch: int
    proposals: int
    sizes: DataSizes
    model: ModelConfig
    photos: int


def paper_size(proposals: int) -> Size:
    """The paper's step; photos enough that a batch's proposals come from all over the memory."""
    return Size(256, proposals, DataSizes(15_000, 3_000, 2_048, proposals), ModelConfig(), photos=4_096)


def small_size() -> Size:
    """What a CPU can do in a fraction of a second."""
    model = ModelConfig(embedding=64, question=128, attention=64, classifier=128)
    return Size(64, 20, DataSizes(500, 200, 128, 20), model, photos=512)


class RandomPhotos:
    """A store of random photos in memory, each with as many proposals."""

    def __init__(self, size: Size, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        total = size.photos * size.proposals
        self.offsets: NDArray[np.int64] = np.arange(0, total + 1, size.proposals)
        # One block of features serves all photos: what is in them does not matter, only where they lie.
        block = random.random((1 << 12, size.sizes.features), np.float32).astype(np.float16)
        self.features: NDArray[np.float16] = block[np.arange(total) % len(block)]
        corners = random.random((total, 2), np.float32) * 400
        self.boxes_xyxy: NDArray[np.float32] = np.concatenate((corners, corners + 20 + corners[::-1] / 2), 1)

    def read(self, rows: NDArray[np.int64]) -> Proposals:
        """Not needed: all photos are in memory."""
        raise NotImplementedError


def random_questions(size: Size, seed: int = 0) -> Questions:
    """Return questions about random photos, with answers."""
    random = np.random.default_rng(seed)
    number = size.photos * 2
    shares = np.array(list(LENGTH_SHARES.values()))
    lengths = random.choice(np.array(list(LENGTH_SHARES)), number, p=shares / shares.sum())
    words = random.integers(1, size.sizes.words + 1, (number, max(LENGTH_SHARES)))
    return Questions(
        np.arange(number),
        random.integers(0, size.photos, number),
        words * (np.arange(words.shape[1]) < lengths[:, None]),
        lengths,
        random.integers(0, size.sizes.answers, (number, 10)),
    )


class Way(NamedTuple):
    """How steps are taken."""

    precision: Precision
    compiled: bool = False  # the layers that look at proposals and answer
    graphed: bool = False  # the whole step as one CUDA graph


PLAIN = Way("float32")
# By what they are called; training takes the last.
WAYS = {
    "cpu": {"float32": PLAIN},
    "cuda": {
        "bfloat16": Way("bfloat16"),
        "bfloat16, compiled": Way("bfloat16", compiled=True),
        "bfloat16, CUDA graph": Way("bfloat16", graphed=True),
        "bfloat16, compiled, CUDA graph": Way("bfloat16", compiled=True, graphed=True),
    },
}
# The way whose parts are timed one by one: the last that is not a single launch.
BROKEN_DOWN = {"cpu": "float32", "cuda": "bfloat16, compiled"}


class Steps:
    """A learner and examples to take steps with, in turn."""

    def __init__(self, size: Size, device: torch.device, way: Way) -> None:
        torch.manual_seed(0)
        config = TrainingConfig(batch=size.batch, precision=way.precision)
        self.size = size
        self.learner = Learner(VqaModel(size.model, size.sizes), config, device)
        self.examples = Examples(
            random_questions(size), RandomPhotos(size), device, self.learner.dtype, size.model.feature_length
        )
        order = np.random.default_rng(1).permutation(len(self.examples.questions))
        self.order = order[: len(order) // size.batch * size.batch].reshape(-1, size.batch)
        self.taken = 0
        if way.compiled:
            self.learner.compile()
        self.graphs = GraphedSteps(self.learner, self.examples) if way.graphed else None

    def rows(self) -> NDArray[np.int64]:
        """Return the next batch's questions."""
        self.taken += 1
        rows: NDArray[np.int64] = self.order[self.taken % len(self.order)]
        return rows

    def step(self) -> None:
        """Take a step as training does."""
        if self.graphs is not None:
            self.graphs.learn(self.rows())
        else:
            self.learner.learn(next(self.examples.batches([self.rows()])))

    def batch(self) -> LabelledBatch:
        """Return a batch padded as far as its longest question."""
        return next(self.examples.batches([self.rows()]))


def check_learning(size: Size, device: torch.device, way: Way) -> None:
    """Raise unless fast steps bring the loss of one batch down as plain ones do."""
    curves = []
    for steps in (Steps(size, device, way), Steps(size, device, PLAIN)):
        steps.order = steps.order[:1]
        losses = []
        for _ in range(12):
            steps.step()
            losses.append(steps.learner.take_totals()[0])
        curves.append(losses)
    ours, plain = curves
    # Compiled layers draw other masks: losses agree as those of two seeds do.
    if not (abs(ours[0] - plain[0]) < 0.1 * plain[0] and abs(ours[-1] - plain[-1]) < 0.25 * plain[0]):
        raise TallyboxError(f"fast steps must learn as plain ones before they are timed, but losses are {curves}")


def bench_vqa(device: torch.device, seconds: float = 2.0) -> Iterator[Row]:
    """Yield rows for whole steps, for the parts of one, and on a GPU for the paper's whole training."""
    kind = "cuda" if device.type == "cuda" else "cpu"
    sizes = [paper_size(100), paper_size(36)] if kind == "cuda" else [small_size()]
    check_learning(sizes[0], device, list(WAYS[kind].values())[-1])
    for size in sizes:
        yield from bench_size(size, device, kind, seconds)


def bench_size(size: Size, device: torch.device, kind: str, seconds: float) -> Iterator[Row]:
    """Yield the rows of one size."""
    suffix = f"{size.batch} x {size.proposals} x {size.sizes.features}"
    plain = Steps(size, device, PLAIN)
    plain_ms, plain_peak = median_ms(plain.step, device, seconds=seconds), peak_bytes(plain.step, device)
    plain_parts = {name: median_ms(run, device, seconds=seconds / 4) for name, run in parts(plain).items()}
    del plain
    for name, way in WAYS[kind].items():
        steps = Steps(size, device, way)
        step_ms = median_ms(steps.step, device, seconds=seconds)
        peaks = peak_bytes(steps.step, device), plain_peak
        yield _row(f"step, {name}, {suffix}", step_ms, plain_ms, *peaks, questions=size.batch)
        if name == BROKEN_DOWN[kind]:
            for part, run in parts(steps).items():
                part_ms = median_ms(run, device, seconds=seconds / 4)
                yield _row(f"part, {part}, {name}, {suffix}", part_ms, plain_parts[part])
        del steps
    if kind == "cuda":
        taken = PAPER_EPOCHS * (PAPER_QUESTIONS // size.batch)
        case = f"{PAPER_EPOCHS} epochs of {PAPER_QUESTIONS:,} questions, projected, {suffix}"
        yield _row(case, step_ms * taken, plain_ms * taken, questions=taken * size.batch)


def _row(
    case: str,
    ours_ms: float,
    plain_ms: float,
    peak: int | None = None,
    plain_peak: int | None = None,
    questions: int | None = None,
) -> VqaRow:
    rate = None if questions is None else round(questions / ours_ms * 1e3, 1)
    return VqaRow(case, round(ours_ms, 4), round(plain_ms, 4), round(plain_ms / ours_ms, 2), peak, plain_peak, rate)


def parts(steps: Steps) -> dict[str, Callable[[], object]]:
    """Return the parts of a step, each forward and backward where it learns."""
    learner, model = steps.learner, steps.learner.model.train()
    labelled = steps.batch()
    batch = labelled.batch
    with torch.no_grad(), computing_in(learner.dtype, learner.device):
        question = model.question(batch.words, batch.lengths)
        glimpses = model.attention(batch.features, question).float()
        seen = attended(batch.features, glimpses, batch.mask)

    def both(run: Callable[..., Tensor], *leaves: Tensor) -> Callable[[], object]:
        """Run forward and backward to some inputs and all weights."""
        given = [leaf.detach().requires_grad_() for leaf in leaves]

        def once() -> None:
            with computing_in(learner.dtype, learner.device):
                output = run(*given)
            output.float().sum().backward()
            learner.optimiser.zero_grad()

        return once

    assert model.count is not None
    component = model.count
    with torch.no_grad():
        count = component(glimpses, batch.boxes, batch.mask)

    def update() -> None:
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        learner.optimiser.step()

    return {
        "gathering a batch": steps.batch,
        "question": both(lambda: model.question(batch.words, batch.lengths)),
        "attention": both(lambda q: model.attention(batch.features, q), question),
        "weighted means": both(lambda g: attended(batch.features, g, batch.mask), glimpses),
        "counting": both(lambda g: component(g, batch.boxes, batch.mask), glimpses),
        "classifier": both(lambda s, q, c: model.classifier(s, q, c), seen, question, count),
        "Adam": update,
    }
