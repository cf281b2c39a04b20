"""Time a training step at the paper's size, and its parts, compared with an eager float32 step.

python -m benchmarks.vqa [--device cuda] [--json]

Photos are random and in the device's memory. The lengths of questions are distributed roughly as in VQA v2.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import NamedTuple

import numpy as np
import torch
from benchmarks.command import benchmark_command
from benchmarks.measure import BenchRow, compare, make_row
from torch import Tensor

from tallybox.errors import TallyboxError
from tallybox.vqa.batches import LabelledBatch, ResidentExamples, StreamedExamples
from tallybox.vqa.config import ModelConfig, Precision, TrainingConfig
from tallybox.vqa.data.splits import EncodedQuestions
from tallybox.vqa.data.store import FeatureStore
from tallybox.vqa.graphed_steps import GraphedSteps
from tallybox.vqa.model import DataSizes, VqaModel, attended
from tallybox.vqa.steps import VqaTrainer, autocast

PAPER_EPOCHS, PAPER_QUESTIONS = 100, 443_757
# Numbers of words and their shares, roughly those of VQA v2's training split; the longest question has 23.
LENGTHS = (3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 23)
SHARES = (0.07, 0.20, 0.25, 0.18, 0.12, 0.07, 0.04, 0.03, 0.025, 0.01, 0.005)


@dataclass(frozen=True)
class VqaRow(BenchRow):
    """A row with the throughput of training."""

    questions_per_second: float | None = None


@dataclass(frozen=True)
class Size:
    """How large a step is; enough photos that the proposals of a batch are spread over the memory."""

    batch: int
    photos: int
    sizes: DataSizes
    model: ModelConfig

    def __str__(self) -> str:
        return f"{self.batch} x {self.sizes.proposals} x {self.sizes.features}"


class StepMode(NamedTuple):
    """How steps are computed."""

    precision: Precision
    compiled: bool = False  # attention and classifier
    graphed: bool = False  # the whole step as one CUDA graph
    streamed: bool = False  # photos are copied from the computer's memory at each step


SMALL_MODEL = ModelConfig(embedding=64, question=128, attention=64, classifier=128)
# The paper's with 100 and with 36 proposals; one that a CPU can compute in a fraction of a second.
SIZES = {
    "cuda": [Size(256, 4_096, DataSizes(15_000, 3_000, 2_048, proposals), ModelConfig()) for proposals in (100, 36)],
    "cpu": [Size(64, 512, DataSizes(500, 200, 128, 20), SMALL_MODEL)],
}
PLAIN = StepMode("float32")
# By name; training uses the last.
MODES = {
    "cpu": {"float32": PLAIN},
    "cuda": {
        "bfloat16": StepMode("bfloat16"),
        "bfloat16, compiled": StepMode("bfloat16", compiled=True),
        "bfloat16, CUDA graph": StepMode("bfloat16", graphed=True),
        "bfloat16, compiled, CUDA graph, streamed": StepMode("bfloat16", compiled=True, graphed=True, streamed=True),
        "bfloat16, compiled, CUDA graph": StepMode("bfloat16", compiled=True, graphed=True),
    },
}
# The mode whose parts are timed one by one: the last that is not a CUDA graph.
BROKEN_DOWN = {"cpu": "float32", "cuda": "bfloat16, compiled"}


def random_photos(size: Size) -> FeatureStore:
    """Return a store of random photos in memory, all with the same number of proposals."""
    random = np.random.default_rng(0)
    total = size.photos * size.sizes.proposals
    # All photos repeat one block of features: their values do not matter.
    block = random.random((1 << 12, size.sizes.features), np.float32).astype(np.float16)
    corners = random.random((total, 2), np.float32) * 400
    return FeatureStore(
        image_ids=[str(photo) for photo in range(size.photos)],
        sizes_wh=np.full((size.photos, 2), 1000, np.float32),
        offsets=np.arange(0, total + 1, size.sizes.proposals),
        features=[block[np.arange(total) % len(block)]],
        boxes_xyxy=np.concatenate((corners, corners + 20 + corners[::-1] / 2), 1),
    )


def random_questions(size: Size) -> EncodedQuestions:
    """Return questions about random photos, with answers."""
    random = np.random.default_rng(0)
    number = size.photos * 2
    lengths = random.choice(LENGTHS, number, p=np.array(SHARES) / sum(SHARES))
    words = random.integers(1, size.sizes.words + 1, (number, max(LENGTHS)))
    words *= np.arange(max(LENGTHS)) < lengths[:, None]
    images, answers = random.integers(0, size.photos, number), random.integers(0, size.sizes.answers, (number, 10))
    return EncodedQuestions(np.arange(number), images, words, lengths, answers)


class BenchSteps:
    """A trainer with random examples: all of them, or the same batch again and again."""

    def __init__(self, size: Size, device: torch.device, mode: StepMode, *, one_batch: bool = False) -> None:
        torch.manual_seed(0)
        config = TrainingConfig(batch=size.batch, precision=mode.precision)
        self.trainer = VqaTrainer(VqaModel(size.model, size.sizes), config, device)
        examples = StreamedExamples if mode.streamed else ResidentExamples
        self.examples: ResidentExamples | StreamedExamples = examples(
            random_questions(size), random_photos(size), device, self.trainer.dtype, size.model.feature_length
        )
        order = np.random.default_rng(1).permutation(len(self.examples.questions))
        batches = order[: len(order) // size.batch * size.batch].reshape(-1, size.batch)
        self.rows = cycle(batches[:1] if one_batch else batches)
        if mode.compiled:
            self.trainer.compile()
        self.graphed: Iterator[None] | None = None
        if mode.graphed:
            self.graphed = GraphedSteps(self.trainer, self.examples).run(self.rows)

    def step(self) -> None:
        """Take a step like training."""
        if self.graphed is not None:
            next(self.graphed)
        else:
            self.trainer.step(self.batch())

    def batch(self) -> LabelledBatch:
        """Return the next batch, padded to its longest question."""
        return next(self.examples.batches([next(self.rows)]))


def check_learning(size: Size, device: torch.device, mode: StepMode) -> None:
    """Raise unless fast steps reduce the loss of one batch as plain ones do."""
    curves: list[list[float]] = []
    for checked_mode in (mode, PLAIN):
        steps = BenchSteps(size, device, checked_mode, one_batch=True)
        losses: list[float] = []
        for _ in range(12):
            steps.step()
            losses.append(steps.trainer.pop_totals()[0])
        curves.append(losses)
    ours, plain = curves
    # Compiled layers draw other dropout masks: losses agree only as those of two seeds do.
    if not (abs(ours[0] - plain[0]) < 0.1 * plain[0] and abs(ours[-1] - plain[-1]) < 0.25 * plain[0]):
        raise TallyboxError(f"fast steps must learn as plain ones before they are timed, but losses are {curves}")


def bench_vqa(device: torch.device, seconds: float = 2.0, sizes: Sequence[Size] = ()) -> Iterator[BenchRow]:
    """Yield rows for whole steps, for the parts of one, and on a GPU for the paper's whole training."""
    kind = "cuda" if device.type == "cuda" else "cpu"
    sizes = sizes or SIZES[kind]
    check_learning(sizes[0], device, list(MODES[kind].values())[-1])
    for size in sizes:
        yield from bench_size(size, device, kind, seconds)


def bench_size(size: Size, device: torch.device, kind: str, seconds: float) -> Iterator[BenchRow]:
    """Yield the rows of one size."""
    plain = BenchSteps(size, device, PLAIN)
    for name, mode in MODES[kind].items():
        steps = BenchSteps(size, device, mode)
        row = compare(f"step, {name}, {size}", steps.step, plain.step, device, seconds)
        yield with_throughput(row, size.batch)
        if name == BROKEN_DOWN[kind]:
            plain_parts = parts(plain)
            for part, run in parts(steps).items():
                case = f"part, {part}, {name}, {size}"
                yield with_throughput(compare(case, run, plain_parts[part], device, seconds / 4))
        del steps
    if kind == "cuda":
        steps_taken = PAPER_EPOCHS * (PAPER_QUESTIONS // size.batch)
        case = f"{PAPER_EPOCHS} epochs of {PAPER_QUESTIONS:,} questions, projected, {size}"
        row = make_row(case, row.median_ms * steps_taken, row.reference_ms * steps_taken)
        yield with_throughput(row, steps_taken * size.batch)


def with_throughput(row: BenchRow, questions: int | None = None) -> VqaRow:
    """Add how many questions a second are learned from, where the measured call learns from ``questions``."""
    per_second = None if questions is None else round(questions / row.median_ms * 1e3, 1)
    return VqaRow(**vars(row), questions_per_second=per_second)


def parts(steps: BenchSteps) -> dict[str, Callable[[], object]]:
    """Return the parts of a step, with their backward passes."""
    trainer, model = steps.trainer, steps.trainer.model.train()
    component, batch = model.count, steps.batch().batch
    assert component is not None
    with torch.no_grad(), autocast(trainer.dtype, trainer.device):
        question = model.question(batch.words, batch.lengths)
        glimpses = model.attention(batch.features, question).float()
        attended_features = attended(batch.features, glimpses, batch.mask)
    with torch.no_grad():
        count = component(glimpses, batch.boxes, batch.mask)

    def both(run: Callable[..., Tensor], *leaves: Tensor) -> Callable[[], object]:
        """Run forward, and backward to ``leaves`` and all weights."""
        inputs = [leaf.detach().requires_grad_() for leaf in leaves]

        def once() -> None:
            with autocast(trainer.dtype, trainer.device):
                output = run(*inputs)
            output.float().sum().backward()
            trainer.optimiser.zero_grad()

        return once

    def update() -> None:
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        trainer.optimiser.step()

    return {
        "gathering a batch": steps.batch,
        "question": both(lambda: model.question(batch.words, batch.lengths)),
        "attention": both(lambda q: model.attention(batch.features, q), question),
        "weighted means": both(lambda g: attended(batch.features, g, batch.mask), glimpses),
        "counter": both(lambda g: component(g, batch.boxes, batch.mask), glimpses),
        "classifier": both(model.classifier, attended_features, question, count),
        "Adam": update,
    }


if __name__ == "__main__":
    benchmark_command(bench_vqa)()
