"""`tallybox vqa train`: epochs, a log, and a checkpoint after each epoch from which the same command resumes."""

import json
import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tallybox.concurrency import single_threaded_torch
from tallybox.errors import InputError
from tallybox.files import write_text
from tallybox.runs import CONFIG, check_unchanged, read_config, read_results, versions
from tallybox.vqa.batches import Examples, Rows, TrainingData, answerable, epoch_order, open_training_data
from tallybox.vqa.checkpoints import FILE, Checkpoint, model_of, read_checkpoint, write_checkpoint
from tallybox.vqa.components import CustomCount, PublishedGlimpseCounter
from tallybox.vqa.config import VqaConfig
from tallybox.vqa.data.splits import has_split, open_pairs, open_questions, open_records
from tallybox.vqa.graphed_steps import GraphedSteps
from tallybox.vqa.model import VqaModel
from tallybox.vqa.prediction import OnProgress, answer, examples_of
from tallybox.vqa.scoring import Scorer
from tallybox.vqa.steps import VqaTrainer

# Multiplications in the largest layer of a step. Measured on two busy cores at 42 million: a step took 0.05 s on one
# thread, and up to 1.9 s on two.
MIN_PRODUCTS_FOR_THREADS = 500_000_000

OnEpoch = Callable[[int, VqaModel], None]  # epochs done, and the model after them

VALIDATION = "validation.jsonl"  # the file of scores in a run's folder


@dataclass(frozen=True)
class Validator:
    """Scores a model after epochs of `train`, on questions that it is not trained on, into its folder."""

    folder: Path
    config: VqaConfig
    data: TrainingData  # to score it on
    scorer: Scorer
    device: torch.device
    every: int = 1  # epochs; the last is scored in any case

    @cached_property
    def examples(self) -> Examples:
        """The questions; in the memory of a GPU, those that a model is trained on come first."""
        return examples_of(self.config, self.data.questions, self.data.store, self.device)

    def __call__(self, epoch: int, model: VqaModel) -> None:
        """Score the model after an epoch and add a line."""
        if epoch % self.every and epoch < self.config.training.epochs:
            return
        copy = model_of(model.config, model.sizes, model.state_dict(), self.folder)  # the trained one may be compiled
        scores = self.scorer.scores(answer(copy, self.data.answers, self.examples))
        step = read_results(self.folder / "results.jsonl")[-1]["step"]
        # Epochs after a checkpoint are repeated.
        lines = [line for line in read_results(self.folder / VALIDATION) if line["epoch"] < epoch]
        lines.append({"epoch": epoch, "step": step, **scores})
        write_text(self.folder / VALIDATION, "".join(json.dumps(line) + "\n" for line in lines))


def train(
    data: TrainingData,
    folder: Path,
    config: VqaConfig,
    *,
    device: torch.device,
    described: dict[str, Any] | None = None,
    on_progress: OnProgress = lambda done, total: None,
    on_epoch: OnEpoch = lambda done, model: None,
) -> Checkpoint:
    """Train a model into a folder, or resume an interrupted training there; the result is the same.

    ``described`` is added to the folder's config.json. A folder with another configuration is refused; only ``epochs``
    may be larger, and continues a finished run. ``on_epoch`` may compute with the model, which does not change the
    training.
    """
    gpus = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus):  # the caller's random numbers stay as they are
        run = VqaRun(data, folder, config, device, described or {})
        sizes = data.sizes
        products = config.training.batch * sizes.proposals * sizes.features * config.model.attention
        is_small = device.type == "cpu" and products < MIN_PRODUCTS_FOR_THREADS
        with single_threaded_torch() if is_small else nullcontext():
            return run.run(on_progress, on_epoch)


def train_prepared(
    prepared: Path,
    folder: Path,
    config: VqaConfig,
    *,
    split: str = "train",
    validate_every: int | None = None,
    device: torch.device,
    on_progress: OnProgress = lambda done, total: None,
) -> Checkpoint:
    """Train a model on a split of a prepared folder; see `train`.

    After every ``validate_every`` epochs (0: never) it is scored on val, by default after each if val is not part of
    the split.
    """
    data = open_training_data(prepared, split)
    described = {"prepared": str(prepared.resolve()), "split": split}
    options: dict[str, Any] = {"device": device, "described": described, "on_progress": on_progress}
    if validate_every and (split != "train" or not has_split(prepared, "val")):
        raise InputError("--validate-every needs a split val that is not trained on")
    if split == "train" and validate_every != 0 and has_split(prepared, "val"):
        scorer = Scorer(open_records(prepared, "val"), open_pairs(prepared, "val"))
        others = replace(data, questions=open_questions(prepared, "val", data.store))
        options["on_epoch"] = Validator(folder, config, others, scorer, device, validate_every or 1)
    return train(data, folder, config, **options)


class VqaRun:
    """A training run: its data on a device, its trainer, its folder."""

    def __init__(
        self, data: TrainingData, folder: Path, config: VqaConfig, device: torch.device, described: dict[str, Any]
    ) -> None:
        self.data, self.folder, self.config, self.split = data, folder, config, str(described.get("split", ""))
        questions, training = answerable(data.questions), config.training
        batch, supervision = training.batch, training.attention_supervision
        if len(questions) < batch:
            raise InputError(f"A batch of {batch} is larger than the {len(questions)} questions to train on; lower it.")
        if supervision and questions.relevance is None:
            raise InputError("attention_supervision needs true boxes, which the prepared questions do not have")
        settings = asdict(config) | described
        if earlier := read_config(folder):  # only epochs and the place of the data may differ
            allowed = {"training": earlier.get("training", {}) | {"epochs": training.epochs}}
            check_unchanged(folder, earlier | allowed | {"prepared": settings.get("prepared")}, settings)
        torch.manual_seed(training.seed)
        self.trainer = VqaTrainer(VqaModel(config.model, data.sizes), training, device)
        self.examples = examples_of(config, questions, data.store, device)
        self.graphed: GraphedSteps | None = None
        if training.fast and device.type == "cuda":
            self.trainer.compile()
            # The gradient of the reference's product waits for the device, which a graph cannot; and so may your own.
            if not isinstance(self.trainer.model.count, PublishedGlimpseCounter | CustomCount):
                self.graphed = GraphedSteps(self.trainer, self.examples)
        self.epoch = 0
        if (folder / FILE).exists():
            checkpoint, tensors = read_checkpoint(folder)
            if (checkpoint.sizes, checkpoint.words, checkpoint.answers) != (data.sizes, data.words, data.answers):
                raise InputError(f"{folder} has a run on other data; name a new folder")
            self.trainer.restore(tensors, checkpoint.steps)
            self.epoch = checkpoint.epoch
        if self.epoch > training.epochs:
            raise InputError(f"{folder} has been trained for {self.epoch} epochs, more than {training.epochs}")
        write_text(folder / CONFIG, json.dumps({"config": settings, "versions": versions()}, indent=1) + "\n")
        self.log = folder / "results.jsonl"
        self.logged_steps, self.logged_at = self.trainer.steps, time.perf_counter()  # of its last line
        # Steps after the checkpoint are repeated.
        kept = [line for line in read_results(self.log) if line["step"] <= self.trainer.steps]
        write_text(self.log, "".join(json.dumps(line) + "\n" for line in kept))

    def run(self, on_progress: OnProgress, on_epoch: OnEpoch) -> Checkpoint:
        """Train the remaining epochs."""
        epochs, steps_in_epoch = self.config.training.epochs, len(self._order(0))
        # A checkpoint is written while the next epoch is trained, which takes 3.7 s on an H200: waiting would add 0.8.
        with ThreadPoolExecutor(1) as writer:
            written: Future[None] = writer.submit(lambda: None)  # nothing to wait for yet
            while self.epoch < epochs:
                self._train_epoch(lambda done: on_progress(done, epochs * steps_in_epoch))
                self.epoch += 1
                on_epoch(self.epoch, self.trainer.model)
                written.result()
                tensors = [(name, value.to("cpu", copy=True)) for name, value in self.trainer.tensors()]
                written = writer.submit(write_checkpoint, self.folder, self.checkpoint(), tensors)
                if self.trainer.device.type == "cpu":  # its epochs take minutes, and no core is idle
                    written.result()
            written.result()
        return self.checkpoint()

    def checkpoint(self) -> Checkpoint:
        """Return the state of the run without its tensors."""
        data, steps = self.data, self.trainer.steps
        return Checkpoint(self.config, data.sizes, data.words, data.answers, self.epoch, steps, split=self.split)

    def _order(self, epoch: int) -> list[Rows]:
        settings = self.config.training
        return epoch_order(len(self.examples.questions), settings.batch, settings.seed, epoch)

    def _train_epoch(self, on_step: Callable[[int], None]) -> None:
        settings, trainer = self.config.training, self.trainer
        order = self._order(self.epoch)
        # Each epoch has its own seed, so that a resumed run draws the same random numbers.
        torch.manual_seed(int(np.random.SeedSequence((settings.seed, self.epoch)).generate_state(1)[0]))
        # A graph replays complete batches only; the last batch may be smaller.
        complete = [rows for rows in order if self.graphed is not None and len(rows) == settings.batch]
        rest = self.examples.batches(order[len(complete) :])
        replayed = iter(()) if self.graphed is None else self.graphed.run(complete)
        self.logged_at = time.perf_counter()
        for number, _ in enumerate(chain(replayed, map(trainer.step, rest)), start=1):
            if trainer.steps % settings.log_steps == 0 or number == len(order):
                self._write_log()
            on_step(trainer.steps)

    def _write_log(self) -> None:
        """Add a line about the steps since the last one."""
        trainer = self.trainer
        loss, accuracy = trainer.pop_totals()  # waits for the device
        now = time.perf_counter()
        if not math.isfinite(loss):
            raise InputError(f"The loss is {loss} after step {trainer.steps}; lower the learning rate.")
        steps, seconds = trainer.steps - self.logged_steps, now - self.logged_at
        line = {
            "step": trainer.steps,
            "epoch": self.epoch + 1,
            "loss": loss / steps,
            "accuracy": 100 * accuracy / steps,
            "learning_rate": float(trainer.optimiser.param_groups[0]["lr"]),
            "questions_per_second": round(steps * trainer.config.batch / seconds, 1),
        }
        self.logged_steps, self.logged_at = trainer.steps, now
        with self.log.open("a") as file:
            file.write(json.dumps(line) + "\n")
