"""Do the VQA models count? Four models, four seeds, on real photos and on real questions.

    python research/vqa_photos.py ...  and  python research/vqa_questions.py ...       # the data, see there
    python research/vqa_evidence.py photos PREPARED docs/results/vqa/photos --device cuda --at-once 16
    python research/vqa_evidence.py photos_unsupervised PREPARED docs/results/vqa/photos_unsupervised --device cuda
    python research/vqa_evidence.py questions PREPARED docs/results/vqa/questions --device cuda --at-once 16
    python research/vqa_evidence.py questions_human PREPARED docs/results/vqa/questions_human --device cuda --at-once 16

Each run is a line of results.jsonl when it ends; the same command again makes the runs that are missing. `photos` also
writes the checkpoint that `tallybox ask` answers with (presence, seed 0). With `--on held-out` a fifth of the training
photos takes the place of the validation photos, to choose by; then the logits are written too, for
research/ask_calibration.py. research/vqa_evidence_page.py
writes the page.
"""

import argparse
import hashlib
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tallybox.activation import activation_knots
from tallybox.counter.module import Counter
from tallybox.presence.module import PresenceCounter
from tallybox.presence.weights import PresenceFunctions
from tallybox.runs import append_results, open_run, read_results, versions
from tallybox.toy.training import rounded
from tallybox.vqa.batches import ResidentExamples, TrainingData, load_examples, open_training_data
from tallybox.vqa.checkpoints import Checkpoint, write_checkpoint
from tallybox.vqa.components import GlimpseCounter
from tallybox.vqa.config import MODELS, VqaConfig, read_configuration
from tallybox.vqa.data.questions import QuestionRecord
from tallybox.vqa.data.splits import EncodedQuestions, open_pairs, open_questions, open_records
from tallybox.vqa.model import VqaModel
from tallybox.vqa.prediction import BATCH_QUESTIONS, predict
from tallybox.vqa.scoring import all_scores, true_count
from tallybox.vqa.training import train

CONFIGS = Path(__file__).parent.parent / "configs"
SEEDS = range(4)
SHIPPED = ("photos", "presence", 0)
CURVE = ("count", "all", "count_2_or_more", "count_mae")
POINTS_OF_A_CURVE = 8
EXAMPLE_COUNTS = range(1, 7)  # an example for each
FOLDS = 5


@dataclass(frozen=True)
class ScoredQuestions:
    """What a model is scored on."""

    questions: EncodedQuestions
    records: list[QuestionRecord]
    pairs: NDArray[np.int64]


def open_experiment(prepared: Path, on: str) -> tuple[TrainingData, ScoredQuestions]:
    """Return what is learned from and what is scored: validation, or a fifth of the training photos."""
    data = open_training_data(prepared, "train")
    if on == "val":
        return data, ScoredQuestions(
            open_questions(prepared, "val"), open_records(prepared, "val"), open_pairs(prepared, "val")
        )
    held = data.questions.images % FOLDS == FOLDS - 1
    questions = data.questions.at(held)
    records = [record for record, is_held in zip(open_records(prepared, "train"), held, strict=True) if is_held]
    pairs = open_pairs(prepared, "train")
    within = np.isin(pairs, questions.question_ids).all(1)
    return replace(data, questions=data.questions.at(~held)), ScoredQuestions(questions, records, pairs[within])


@dataclass(frozen=True)
class Run:
    """One model with one seed."""

    experiment: str
    model: str
    seed: int
    on: str
    configuration: Path
    epochs: int | None  # of the configuration, or fewer to try things out

    def config(self) -> VqaConfig:
        """Return the values to train with; a graph of each step pays only for longer runs."""
        training = {"seed": self.seed, "epochs": self.epochs, "fast": False}
        return read_configuration(self.configuration, model={"name": self.model}, training=training)

    def make(self, prepared: Path, out: Path, device: torch.device) -> dict[str, Any]:
        """Train and score it."""
        torch.set_num_threads(1)
        start = time.perf_counter()
        data, scored = open_experiment(prepared, self.on)
        config = self.config()
        epochs = config.training.epochs
        every = -(-epochs // POINTS_OF_A_CURVE)
        curve: list[dict[str, float]] = []
        result: dict[str, Any] = {}

        def evaluate(epoch: int, model: VqaModel) -> None:
            if epoch % every and epoch != epochs:
                return
            state = Checkpoint(config, data.sizes, data.words, data.answers, epoch, 0)
            predictions = predict(model, state, scored.questions, data.store, device=device)
            figures = all_scores(predictions, scored.records, scored.pairs)
            curve.append({"epoch": epoch} | {key: round(figures[key], 4) for key in CURVE if key in figures})
            print(f"{self.model} {self.seed}, {time.perf_counter() - start:.0f} s: {json.dumps(curve[-1])}", flush=True)
            if epoch == epochs:
                result["answers"] = [predictions[one.question_id] for one in scored.records]
                result["learned"] = learned(model)
                result["examples"] = list(examples(model, data, scored, predictions, explain=self.seed == 0))
                if self.on == "held-out":
                    write_logits(out / f"logits_{self.model}_{self.seed}.npz", model, data, scored, device)
                    write_checkpoint(out, state, half_precision(model))  # of several, the last to finish
                elif (self.experiment, self.model, self.seed) == SHIPPED:
                    write_checkpoint(out, state, half_precision(model))

        with tempfile.TemporaryDirectory() as folder:
            done = train(data, Path(folder), config, device=device, on_epoch=evaluate)
        return {
            "experiment": self.experiment,
            "model": self.model,
            "seed": self.seed,
            "scored_on": self.on,
            "questions": len(scored.records),
            "steps": done.steps,
            "seconds": round(time.perf_counter() - start, 1),
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
            "versions": versions(),
            "config": asdict(config),
            "curve": curve,
            **result,
        }


def learned(model: VqaModel) -> dict[str, Any]:
    """Return what the count component has learned, as the toy task's results have it."""
    if not isinstance(model.count, GlimpseCounter):
        return {}
    counter = model.count.counter
    with torch.no_grad():
        if isinstance(counter, Counter):
            return {"activations": rounded(activation_knots(counter.weight).squeeze(0).tolist(), 5)}
        functions = PresenceFunctions.of(counter.weights)._asdict()
        return {"presence": {name: rounded(f.tolist(), 4) for name, f in functions.items()}}


def chosen_examples(records: Sequence[QuestionRecord]) -> Iterator[int]:
    """Yield the index of an example for each true count from 1 to 6: the question whose id has the smallest SHA-256."""
    for count in EXAMPLE_COUNTS:
        indices = [index for index, record in enumerate(records) if true_count(record) == count]
        if indices:
            yield min(indices, key=lambda index: hashlib.sha256(str(records[index].question_id).encode()).digest())


def examples(
    model: VqaModel, data: TrainingData, scored: ScoredQuestions, predictions: dict[int, str], *, explain: bool
) -> Iterator[dict[str, Any]]:
    """Yield the examples with a model's answers, and with what its count component computed."""
    device = next(model.parameters()).device
    for index in chosen_examples(scored.records):
        record = scored.records[index]
        shown: dict[str, Any] = {
            "question_id": record.question_id,
            "image_id": record.image_id,
            "question": record.text,
            "true_count": true_count(record),
            "answer": predictions[record.question_id],
        }
        if explain and isinstance(model.count, GlimpseCounter):
            length = model.config.feature_length
            one = ResidentExamples(scored.questions.at(np.array([index])), data.store, device, torch.float32, length)
            batch = next(one.batches([np.array([0])])).batch
            with torch.no_grad():
                log_odds = model.count.log_odds(model(batch)[1])
                shown["trace"] = traced(model.count.counter, log_odds, batch.boxes, batch.mask)
        yield shown


def traced(counter: Counter | PresenceCounter, log_odds: Tensor, boxes: Tensor, mask: Tensor) -> dict[str, Any]:
    """Return what a figure shows of one photo."""
    shown: dict[str, Any] = {
        "boxes": rounded(boxes[0].tolist(), 1),
        "attention": rounded(log_odds[0].sigmoid().tolist(), 4),
    }
    if isinstance(counter, Counter):
        trace = counter.explain(log_odds, boxes, mask)
        shown |= {name: rounded(getattr(trace, name)[0].tolist(), 4) for name in ("relevance", "distance")}
        shown |= {"count_matrix": rounded(trace.count_matrix[0].tolist(), 4), "indices": trace.indices[0].tolist()}
        return shown | {"count": round(float(trace.count[0]), 3)}
    found = counter.explain(log_odds, boxes, mask)
    return shown | {"presence": rounded(found.presence[0, 0].tolist(), 4), "count": round(float(found.count[0]), 3)}


def write_logits(
    path: Path, model: VqaModel, data: TrainingData, scored: ScoredQuestions, device: torch.device
) -> None:
    """Write the logits of the answers ``[Q, K]``, in the order of the questions, and their ids."""
    examples = load_examples(scored.questions, data.store, device, torch.float32, model.config.feature_length)
    rows = np.array_split(np.arange(len(scored.records)), -(-len(scored.records) // BATCH_QUESTIONS))
    model.eval()
    with torch.inference_mode():
        logits = torch.cat([model(labelled.batch)[0].float().cpu() for labelled in examples.batches(rows)])
    np.savez(path, logits=logits.numpy(), question_ids=scored.questions.question_ids, answers=scored.questions.answers)


def half_precision(model: VqaModel) -> Iterator[tuple[str, Tensor]]:
    """Yield a model's tensors for a small checkpoint: its large matrices halved, the count component as it is."""
    for name, value in model.state_dict().items():
        is_large = value.dim() > 1 and not name.startswith("count.")
        yield f"model.{name}", value.half() if is_large else value


def main() -> None:
    """Make the runs that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=("photos", "photos_unsupervised", "questions", "questions_human"))
    parser.add_argument("prepared", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--at-once", type=int, default=1, help="runs side by side")
    parser.add_argument("--on", choices=("val", "held-out"), default="val", help="what is scored")
    parser.add_argument("--models", nargs="+", default=MODELS, help="only these")
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS, help="only these")
    parser.add_argument("--config", type=Path, help="other than the experiment's own in configs/")
    parser.add_argument("--epochs", type=int, help="other than configured, to try things out")
    given = parser.parse_args()
    start = time.perf_counter()
    configuration = given.config or CONFIGS / f"vqa_{given.experiment}.toml"
    config = asdict(read_configuration(configuration, training={"epochs": given.epochs}))
    results_path = open_run(given.out, config | {"experiment": given.experiment, "scored_on": given.on})
    done = {(result["model"], result["seed"]) for result in read_results(results_path)}
    runs = [
        Run(given.experiment, model, seed, given.on, configuration, given.epochs)
        for seed in given.seeds
        for model in given.models
        if (model, seed) not in done
    ]
    failed = 0
    # Spawned, not forked: a GPU cannot be used in a fork.
    with ProcessPoolExecutor(given.at_once, multiprocessing.get_context("spawn")) as processes:
        waiting = {
            processes.submit(run.make, given.prepared, given.out, torch.device(given.device)): run for run in runs
        }
        for future in as_completed(waiting):
            run = waiting[future]
            try:
                append_results(results_path, [future.result()])
            except Exception as error:  # whatever one run does not survive, the others go on
                failed += 1
                print(f"{run.model} {run.seed} failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    print(f"{given.out}: {len(runs) - failed} runs made, {failed} failed, {time.perf_counter() - start:.0f} s")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
