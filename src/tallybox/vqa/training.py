"""Training from start to end: epochs, a log, and a checkpoint after each epoch that the same command goes on from."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch

from tallybox.checks import check_count
from tallybox.distributed import Processes, current_processes
from tallybox.errors import InputError, TallyboxError
from tallybox.files import write_text
from tallybox.kernels.threads import small_operations
from tallybox.runs import RunFolder, read_results
from tallybox.vqa.batches import Examples, epoch_order, place_examples
from tallybox.vqa.checkpoints import FILE, Checkpoint, read_checkpoint, write_checkpoint
from tallybox.vqa.configuration import VqaConfig
from tallybox.vqa.learning import GraphedSteps, Learner
from tallybox.vqa.model import VqaModel
from tallybox.vqa.training_data import TrainingData, answerable

# Multiplications in the largest layer of a step. Measured on two busy cores at 42 million: a step took 0.05 s on one
# thread, and up to 1.9 s on two.
LEAST_PRODUCTS_OF_THREADS = 500_000_000

OnProgress = Callable[[int, int], None]  # steps done, steps in all
OnEpoch = Callable[[int, VqaModel], None]  # epochs done, and the model as it is then


def train(
    data: TrainingData,
    folder: Path,
    config: VqaConfig,
    *,
    device: torch.device,
    described: dict[str, Any] | None = None,
    curves: bool = True,
    checkpoint_epochs: int = 1,
    on_progress: OnProgress = lambda done, total: None,
    on_epoch: OnEpoch = lambda done, model: None,
) -> Checkpoint:
    """Train a model into a folder, or go on where an interrupted training there stands.

    The result is the same either way. ``described`` is what else the folder should say about the run; a folder that
    says otherwise is refused. Without ``curves`` nothing is written for TensorBoard, which need not be installed then.
    A checkpoint is written every ``checkpoint_epochs`` and at the end. Whoever looks at the model ``on_epoch`` may
    answer with it, and changes nothing.
    """
    check_count("checkpoint_epochs", checkpoint_epochs)
    gpus = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus):  # nobody else's random numbers change
        training = Training(data, folder, config, device, described or {})
        with small_operations() if training.is_small() else nullcontext():
            return training.run(on_progress, on_epoch, curves=curves, checkpoint_epochs=checkpoint_epochs)


class Training:
    """A run: its data on a device, its learner, its folder."""

    def __init__(
        self, data: TrainingData, folder: Path, config: VqaConfig, device: torch.device, described: dict[str, Any]
    ) -> None:
        self.data, self.folder, self.config = data, folder, config
        self.processes = current_processes()
        questions = answerable(data.questions)
        batch = config.training.batch
        if len(questions) < batch:
            raise InputError(
                f"batch must be at most the {len(questions)} questions to learn from, but got {batch}; lower it"
            )
        if batch % self.processes.number:
            raise InputError(f"batch must divide evenly among {self.processes.number} processes, but got {batch}")
        if config.training.attention_supervision and questions.relevance is None:
            raise InputError(
                "attention_supervision must be 0 where true boxes are not known, "
                f"but got {config.training.attention_supervision}; prepare the questions with --instances"
            )
        if self.processes.is_first:
            RunFolder(folder, config.to_dict() | described)
        torch.manual_seed(config.training.seed)
        self.learner = Learner(VqaModel(config.model, data.sizes), config.training, device)
        self.examples = place_examples(questions, data.store, device, self.learner.dtype, config.model.feature_length)
        self.graphed: GraphedSteps | None = None
        if config.training.fast and device.type == "cuda":
            self.learner.compile()
            if isinstance(self.examples, Examples) and self.processes.number == 1:
                self.graphed = GraphedSteps(self.learner, self.examples)
        self.epoch = 0
        if (folder / FILE).exists():
            self._go_on()
        self.steps_in_epoch = len(questions) // batch

    def is_small(self) -> bool:
        """Whether a step on a CPU is too little work for a second thread, which would be waited for all the time."""
        sizes, model = self.data.sizes, self.config.model
        products = self.config.training.batch * sizes.proposals * sizes.features * model.attention
        return self.learner.device.type == "cpu" and products < LEAST_PRODUCTS_OF_THREADS

    def _go_on(self) -> None:
        checkpoint, tensors = read_checkpoint(self.folder)
        if checkpoint.sizes != self.data.sizes:
            raise InputError(f"{self.folder} holds a run on other data; name a new folder")
        self.learner.restore(tensors, checkpoint.steps)
        self.epoch = checkpoint.epoch

    def run(self, on_progress: OnProgress, on_epoch: OnEpoch, *, curves: bool, checkpoint_epochs: int) -> Checkpoint:
        """Take all epochs that are left."""
        epochs = self.config.training.epochs
        with Log(self.folder, self.learner.steps, self.processes, curves=curves) as log:
            while self.epoch < epochs:
                self._learn_epoch(log, lambda done: on_progress(done, epochs * self.steps_in_epoch))
                self.epoch += 1
                if self.processes.is_first and (self.epoch % checkpoint_epochs == 0 or self.epoch == epochs):
                    write_checkpoint(self.folder, self.checkpoint(), self.learner.tensors())
                on_epoch(self.epoch, self.learner.model)
        return self.checkpoint()

    def checkpoint(self) -> Checkpoint:
        """Return where the run stands."""
        data = self.data
        return Checkpoint(self.config, data.sizes, data.words, data.answers, self.epoch, self.learner.steps)

    def _learn_epoch(self, log: Log, on_step: Callable[[int], None]) -> None:
        settings, learner = self.config.training, self.learner
        order = epoch_order(len(self.examples.questions), settings.batch, settings.seed, self.epoch)
        # An epoch's random numbers are its own, so a run that is taken up again draws the same.
        torch.manual_seed(int(np.random.SeedSequence((settings.seed, self.epoch)).generate_state(1)[0]))
        batches = iter(()) if self.graphed else self.examples.batches(order, self.processes)
        log.start()
        for number, rows in enumerate(order, start=1):
            if self.graphed is not None:
                self.graphed.learn(rows)
            else:
                learner.learn(next(batches))
            if learner.steps % settings.log_steps == 0 or number == len(order):
                log.write(learner, self.epoch)
            on_step(learner.steps)


class Log:
    """Lines of JSON (results.jsonl) and TensorBoard's curves; only the first process writes."""

    def __init__(self, folder: Path, steps: int, processes: Processes, *, curves: bool) -> None:
        self.path = folder / "results.jsonl"
        self.writes = processes.is_first
        self.curves: Any = None
        self.steps, self.since = steps, time.perf_counter()
        if self.writes:
            # What came after the checkpoint will come again.
            kept = [line for line in read_results(self.path) if line["step"] <= steps]
            write_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))
            if curves:
                self.curves = _summary_writer()(folder / "tensorboard", purge_step=steps + 1)

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.curves is not None:
            self.curves.close()

    def start(self) -> None:
        """Forget the time since the last line, which was spent otherwise."""
        self.since = time.perf_counter()

    def write(self, learner: Learner, epoch: int) -> None:
        """Add a line about the steps since the last."""
        loss, accuracy = learner.take_totals()
        now, steps = time.perf_counter(), learner.steps - self.steps
        rate = learner.optimiser.param_groups[0]["lr"]
        line = {
            "step": learner.steps,
            "epoch": epoch + 1,
            "loss": loss / steps,
            "accuracy": 100 * accuracy / steps,
            "learning_rate": float(rate),
            "questions_per_second": round(steps * learner.config.batch / (now - self.since), 1),
        }
        self.steps, self.since = learner.steps, now
        if self.writes:
            with self.path.open("a") as file:
                file.write(json.dumps(line) + "\n")
        if self.curves is not None:
            for name in ("loss", "accuracy", "learning_rate", "questions_per_second"):
                self.curves.add_scalar(f"train/{name}", line[name], line["step"])


def _summary_writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError:
        raise TallyboxError(
            "training writes curves with the package tensorboard, which is not installed; pip install 'tallybox[vqa]'"
        ) from None
    return SummaryWriter
