"""The paper's table on human questions of VQA v2 about real photos, seen by PicoDet, and what explains it.

    python research/vqa_human.py ../shared/data runs/human --seeds 5 --device cuda --jobs 16
    python research/vqa_human.py ../shared/data runs/try --rows baseline counter.half:2 --share 6 --epochs 1

A row is a model with the settings that training photos chose for it (`CHOSEN`), and changes to it: `counter.x8.half` is
the counter with a factor of 8 on its logits, learned from half of the photos. Without `--rows`, the four models are
made. Runs go side by side, each in a process of its own. The same command goes on after an interruption: a run whose
file is there is not made again.
`--split selection` holds out a fifth of the *training* photos and scores the questions about them; the validation
questions take no part.

Beside a file for each run, the command writes `answers.npz` (`table`, `runs`, and for each set of questions the indices
of all answers, `[questions, runs]`) and `results.jsonl`. research/vqa_human_page.py makes the page from them.
"""

import argparse
import ctypes
import json
import multiprocessing
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import torch
from calibration import fit_temperature
from numpy.typing import NDArray
from torch import Tensor
from vqa_human_data import CATEGORIES, Experiment, Learned, prepare_all

from tallybox.activation import activation_knots
from tallybox.counter.module import Counter
from tallybox.files import atomic_writing, write_text
from tallybox.presence.weights import PresenceFunctions
from tallybox.runs import versions
from tallybox.toy.training import rounded
from tallybox.vqa.batches import ResidentExamples, StreamedExamples, TrainingData, load_examples
from tallybox.vqa.checkpoints import Checkpoint, write_checkpoint
from tallybox.vqa.components import GlimpseCounter
from tallybox.vqa.config import MODELS, VqaConfig, read_configuration
from tallybox.vqa.data.splits import EncodedQuestions
from tallybox.vqa.model import VqaModel
from tallybox.vqa.prediction import BATCH_QUESTIONS, answer
from tallybox.vqa.scoring import all_scores, true_count
from tallybox.vqa.steps import autocast, compute_dtype
from tallybox.vqa.training import train

CONFIG = Path(__file__).parent.parent / "configs" / "vqa_human.toml"
KEPT = ("counter", "presence", "presence.ask")  # rows whose model of seed 0 is kept, in half precision
SHOWN = ("all", "yes/no", "number", "other", "count", "count_2_or_more", "count_mae", "pair_count")
READS_FEATURES = ("attention.from_features.weight", "classifier.from_seen.weight")
LARGEST_COUNT = 6  # of the table of counts that a component finds
TIMES_SCORED = 3  # in a run of the selection

# What training photos chose for each model, of all features or scores only, 0.2 or no dropout in the attention.
CHOSEN = {"baseline": (), "nms": ("still",), "counter": ("scores", "still"), "presence": ("scores", "still")}
# What a row changes, by its name: in the model, in its training, in what it learns from.
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    # The factor on the logits that a component counts.
    "x1": ({"sharpness": 1.0}, {}, {}),
    "x2": ({"sharpness": 2.0}, {}, {}),
    "x8": ({"sharpness": 8.0}, {}, {}),
    # Attention logits as the paper has them: their level is free.
    "free": ({"level": "free"}, {}, {}),
    # The component's learning rate, as a multiple of the others'.
    "rate0": ({}, {"count_rate": 0.1}, {}),
    "rate2": ({}, {"count_rate": 2.0}, {}),
    "rate5": ({}, {"count_rate": 5.0}, {}),
    "rate10": ({}, {"count_rate": 10.0}, {}),
    # What it counts.
    "objects16": ({"max_objects": 16}, {}, {}),
    "thin": ({}, {}, {"overlap": 0.4}),
    "one": ({"glimpses": 1}, {}, {}),
    "four": ({"glimpses": 4}, {}, {}),
    "still": ({"attention_dropout": 0.0}, {}, {}),
    "lively": ({"attention_dropout": 0.5}, {}, {}),
    "calm": ({"attention_dropout": 0.2}, {}, {}),
    "calmer": ({"attention_dropout": 0.1}, {}, {}),
    # What the paper and its code do differently.
    "published": ({"padding": "published", "level": "free"}, {}, {}),
    "float32": ({}, {"precision": "float32"}, {}),
    # The baseline's size and training.
    "wide": ({"embedding": 300, "question": 1024, "attention": 512, "classifier": 1024}, {}, {}),
    "small": ({"embedding": 128, "question": 256, "attention": 256, "classifier": 256}, {}, {}),
    "drop3": ({"dropout": 0.3}, {}, {}),
    "drop6": ({"dropout": 0.6}, {}, {}),
    "drop7": ({"dropout": 0.7}, {}, {}),
    "length1": ({"feature_length": 1.0}, {}, {}),
    "length4": ({"feature_length": 4.0}, {}, {}),
    "batch64": ({}, {"batch": 64}, {}),
    "batch128": ({}, {"batch": 128}, {}),
    "batch512": ({}, {"batch": 512}, {}),
    "slow": ({}, {"learning_rate": 0.0007}, {}),
    "quick": ({}, {"learning_rate": 0.003}, {}),
    "decay": ({}, {"half_life": 1500}, {}),
    "decay3": ({}, {"half_life": 3000}, {}),
    "epochs15": ({}, {"epochs": 15}, {}),
    "epochs45": ({}, {"epochs": 45}, {}),
    # A region's features.
    "places": ({}, {}, {"places": 2.0}),
    "scores": ({}, {}, {"components": 0.0}),
    "full": ({}, {}, {"components": Learned().components}),
    "components": ({}, {}, {"scores": 0.0}),
    "scores6": ({}, {}, {"scores": 6.0}),
    "components1": ({}, {}, {"components": 1.0}),
    "components2": ({}, {}, {"components": 0.2}),
    # What is learned from.
    "quarter": ({}, {}, {"share": 0.25}),
    "half": ({}, {}, {"share": 0.5}),
    "tallyqa": ({}, {}, {"sources": ("human", "tallyqa")}),
    "written": ({}, {}, {"sources": ("human", "written")}),
    "told": ({}, {}, {"true_counts": True}),  # the upper line
    "blind": ({}, {}, {"scores": 0.0, "components": 0.0, "places": 0.0}),  # the lower line: the question only
    # The model of `tallybox ask`: the detector's scores of photos at full size, which is what the command sees.
    "ask": ({"question": 256}, {}, {"components": 0.0, "sources": ("human", "tallyqa", "written", "whole")}),
}


@dataclass(frozen=True)
class Run:
    """A row of the experiment with one seed."""

    row: str
    seed: int
    epochs: int | None = None  # fewer than configured, to try the script

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.row}-{self.seed}"

    def settings(self) -> tuple[VqaConfig, Learned]:
        """Return the configuration and what is learned from."""
        name, *changes = self.row.split(".")
        if name not in MODELS or not CHANGES.keys() >= {*changes}:
            raise SystemExit(f"{self.row} must be one of {', '.join(MODELS)}, and changes of {', '.join(CHANGES)}")
        model: dict[str, Any] = {"name": name}
        training: dict[str, Any] = {"seed": self.seed}
        learned: dict[str, Any] = {}
        for change in (*CHOSEN[name], *changes):
            for values, changed in zip((model, training, learned), CHANGES[change], strict=True):
                values |= changed
        training |= {"epochs": self.epochs} if self.epochs else {}
        return read_configuration(CONFIG, model=model, training=training), replace(Learned(), **learned)

    def make(self, experiment: Experiment, out: Path, device: torch.device) -> None:
        """Train and score the model, and write the run's file."""
        torch.set_num_threads(1)
        start = time.perf_counter()
        config, learned = self.settings()
        data = experiment.learned_by(learned)
        questions = experiment.scored_by(learned, data)
        dtype = compute_dtype(config.training.precision, device)
        epochs, length = config.training.epochs, config.model.feature_length
        scored = load_examples(questions, data.store, device, dtype, length)
        result: dict[str, Any] = {"curve": []}
        said: dict[str, list[str]] = {}

        def evaluate(epoch: int, trained: VqaModel) -> None:
            last = epoch == epochs
            if not last and (experiment.split == "final" or epoch % -(-epochs // TIMES_SCORED)):
                return
            model = VqaModel(config.model, data.sizes).to(device)  # the trained one may be compiled
            model.load_state_dict(trained.state_dict())
            state = Checkpoint(config, data.sizes, data.words, data.answers, epoch, 0)
            answers = answer(model, state.answers, scored)
            result["scores"] = all_scores(answers, experiment.scored.records, experiment.scored.pairs)
            result["curve"].append({"epoch": epoch} | {key: result["scores"].get(key) for key in SHOWN})
            if not last:
                return
            said["scored"] = [*answers.values()]
            for name, others in experiment.others_by(learned, data).items():
                examples = load_examples(others, data.store, device, dtype, length) if len(others) else None
                said[name] = [*answer(model, state.answers, examples).values()] if examples else []
            result["learned"] = functions_of(model)
            result["attention"] |= {"trained": attention_of(model, data, questions, experiment, device)}
            if ".ask" in self.row:
                result["temperature"] = temperature_of(model, scored)
            if self.row in KEPT and not self.seed:
                reads_scores_alone = not (learned.components or learned.places)
                factor = learned.scores if reads_scores_alone else 1.0
                write_checkpoint(out / self.name, state, half_precision(model, factor))

        torch.manual_seed(config.training.seed)
        untrained = VqaModel(config.model, data.sizes).to(device)
        result["attention"] = {"initial": attention_of(untrained, data, questions, experiment, device)}
        with tempfile.TemporaryDirectory() as folder:
            done = train(data, Path(folder), config, device=device, on_epoch=evaluate)
        result |= {
            "row": self.row,
            "seed": self.seed,
            "split": experiment.split,
            "steps": done.steps,
            "seconds": round(time.perf_counter() - start, 1),
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
            "versions": versions(),
            "config": asdict(config),
            "learned_from": asdict(learned) | {"questions": len(data.questions)},
        }
        index = {text: number for number, text in enumerate(data.answers)}
        coded = {f"{name}_answers": np.array([index[one] for one in texts], np.uint16) for name, texts in said.items()}
        with atomic_writing(self.file(out)) as file:
            np.savez_compressed(file, result=json.dumps(result), **coded)
        shown = {key: round(result["scores"][key], 2) for key in SHOWN if key in result["scores"]}
        print(f"{self.name}, {result['seconds']:.0f} s, {done.steps} steps: {json.dumps(shown)}", flush=True)

    def file(self, out: Path) -> Path:
        """Return the file that a finished run has."""
        return out / "runs" / f"{self.name}.npz"


def functions_of(model: VqaModel) -> dict[str, Any]:
    """Return the functions that the count component has learned."""
    counter = getattr(model.count, "counter", getattr(model.count, "component", None))
    if counter is None:
        return {}
    with torch.no_grad():
        if isinstance(counter, Counter):
            return {"activations": rounded(activation_knots(counter.weight).squeeze(0).tolist(), 5)}
        functions = PresenceFunctions.of(counter.weights)._asdict()
        return {"presence": {name: rounded(f.tolist(), 4) for name, f in functions.items()}}


def attention_of(
    model: VqaModel, data: TrainingData, questions: EncodedQuestions, experiment: Experiment, device: torch.device
) -> dict[str, Any]:
    """Return what the first glimpse tells apart in the scored counting questions, and what is counted from it.

    ``asked`` and ``others`` are the mean attention (after the factor and the logistic) to regions whose best category
    is the one that the question names, and to all others; ``counted`` is the mean count by true count, from 0.
    """
    rows = np.flatnonzero([record.counts for record in experiment.scored.records])
    examples = load_examples(questions.at(rows), data.store, device, torch.float32, model.config.feature_length)
    model.eval()
    categories = torch.from_numpy(experiment.scored.categories[rows]).to(device)
    truths = [true_count(experiment.scored.records[row]) for row in rows.tolist()]
    attention, asked, masks, found = [], [], [], []
    for part in np.array_split(np.arange(len(rows)), -(-len(rows) // BATCH_QUESTIONS)):
        batch = next(examples.batches([part])).batch
        with torch.no_grad():
            glimpses = model(batch)[1].float()
            glimpse = glimpses[..., 0] * model.config.sharpness
            if isinstance(model.count, GlimpseCounter):
                glimpse = model.count.log_odds(glimpses, batch.mask)
            if isinstance(model.count, GlimpseCounter):
                found += model.count.counter.count(glimpse, batch.boxes, batch.mask).reshape(len(part)).tolist()
        best = batch.features[..., :CATEGORIES].argmax(-1)
        attention.append(glimpse.sigmoid()[batch.mask])
        asked.append(((best == categories[part].unsqueeze(1)) & (categories[part] >= 0).unsqueeze(1))[batch.mask])
        masks.append((categories[part] >= 0).unsqueeze(1).expand_as(batch.mask)[batch.mask])
    values, of_asked, is_known = torch.cat(attention), torch.cat(asked), torch.cat(masks)
    summary = {
        "mean": values.mean(),
        "deviation": values.std(),
        "asked": values[of_asked].mean(),
        "others": values[is_known & ~of_asked].mean(),
    }
    rounded_off = {name: round(float(value), 4) for name, value in summary.items()}
    if not found:
        return rounded_off
    by_truth = [[one for one, truth in zip(found, truths, strict=True) if truth == n] for n in range(LARGEST_COUNT + 1)]
    return rounded_off | {"counted": [round(float(np.mean(some)), 2) if some else None for some in by_truth]}


def temperature_of(model: VqaModel, examples: ResidentExamples | StreamedExamples) -> float:
    """Return what to divide the logits by, so that the probabilities of answers are how often they are right."""
    rows = np.arange(len(examples.questions))
    parts = np.array_split(rows, -(-len(rows) // BATCH_QUESTIONS))
    with torch.inference_mode(), autocast(examples.dtype, examples.device):
        logits = torch.cat([model(labelled.batch)[0].float().cpu() for labelled in examples.batches(parts)])
    return round(fit_temperature(logits, torch.from_numpy(examples.answers)), 3)


def half_precision(model: VqaModel, factor: float) -> Iterator[tuple[str, Tensor]]:
    """Yield a model's tensors for a small checkpoint: its large matrices halved, the count component as it is.

    The model then reads features without the ``factor`` that it learned with.
    """
    for name, value in model.state_dict().items():
        is_large = value.dim() > 1 and not name.startswith("count.")
        scaled = factor * value if name in READS_FEATURES else value
        yield f"model.{name}", scaled.half() if is_large else scaled


def run_all(
    runs: Sequence[Run], experiment: Experiment, out: Path, device: torch.device, at_once: int, seconds: float
) -> int:
    """Make runs side by side, and return how many failed; none begins after some seconds.

    Each is a fork of this process, which has the data in memory and has not touched the GPU.
    """
    context, start = multiprocessing.get_context("fork"), time.perf_counter()
    waiting, running, failed = [*runs], list[BaseProcess](), 0
    while waiting or running:
        if time.perf_counter() - start > seconds:
            print(f"time is over: {len(waiting)} runs are not begun", flush=True)
            waiting, seconds = [], float("inf")
        while waiting and len(running) < at_once:
            process = context.Process(target=_make, args=(waiting.pop(0), experiment, out, device), daemon=True)
            process.start()
            running.append(process)
        if running:
            wait([process.sentinel for process in running])
        ended = [process for process in running if not process.is_alive()]
        failed += sum(process.exitcode != 0 for process in ended)
        running = [process for process in running if process not in ended]
    return failed


def _make(run: Run, experiment: Experiment, out: Path, device: torch.device) -> None:
    die_with_parent = 1  # PR_SET_PDEATHSIG of Linux
    ctypes.CDLL(None).prctl(die_with_parent, signal.SIGKILL)
    run.make(experiment, out, device)


def gather(out: Path, experiment: Experiment) -> None:
    """Write the answers and the results of all runs that are there."""
    answers: dict[str, list[NDArray[np.uint16]]] = {}
    results = []
    for path in sorted((out / "runs").glob("*.npz")):
        with np.load(path) as file:
            results.append(json.loads(str(file["result"])))
            for name in file.files:
                if name != "result":
                    answers.setdefault(name, []).append(file[name])
    names = np.array([f"{result['row']}-{result['seed']}" for result in results])
    with atomic_writing(out / "answers.npz") as file:
        columns: dict[str, NDArray[Any]] = {name: np.stack(columns, 1) for name, columns in answers.items()}
        for name, records in experiment.others.items():
            columns[f"{name}_ids"] = np.array([record.question_id for record in records], np.int64)
        np.savez_compressed(file, table=np.array(experiment.vocabulary.answers), runs=names, **columns)
    write_text(out / "results.jsonl", "".join(json.dumps(result) + "\n" for result in results))


def main() -> None:
    """Prepare the data, and make the runs that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", nargs="+", default=MODELS, help="ROW, or ROW:SEEDS")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--split", choices=("selection", "final"), default="final")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--prepared", type=Path, help="folder of an earlier run with the same data")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no run begins later")
    parser.add_argument("--share", type=int, default=1, help="one of so many photos, to try the script")
    parser.add_argument("--epochs", type=int, help="other than configured, to try the script")
    given = parser.parse_args()
    start = time.perf_counter()
    seeds = {row: int(number or given.seeds) for row, _, number in (row.partition(":") for row in given.rows)}
    first, last = given.first_seed, given.first_seed + max(seeds.values())
    runs = [Run(row, s, given.epochs) for s in range(first, last) for row in seeds if s < first + seeds[row]]
    for run in runs:
        run.settings()  # a wrong name is an error before anything is done
    folder = given.prepared or given.out
    prepare_all(given.data, folder, given.share)
    experiment = Experiment(given.data, folder / "prepared", given.split)
    print(f"{len(experiment.scored.records)} questions to score; {time.perf_counter() - start:.0f} s", flush=True)
    (given.out / "runs").mkdir(parents=True, exist_ok=True)
    missing = [run for run in runs if not run.file(given.out).exists()]
    failed = run_all(missing, experiment, given.out, torch.device(given.device), given.jobs, given.seconds)
    gather(given.out, experiment)
    print(f"{len(missing)} runs, {failed} failed, {time.perf_counter() - start:.0f} s", flush=True)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
