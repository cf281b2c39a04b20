"""`tallybox vqa`: VQA v2, from the official files to answers."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import click
import torch
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from tallybox.cli import OrderedGroup, options
from tallybox.cli.terminal import echo_json, echo_line, progress_bar, progress_steps
from tallybox.vqa.config import MODELS, Precision, read_configuration
from tallybox.vqa.simulation import FEATURES, World
from tallybox.vqa.simulation import simulate as simulate_world

WORLD_HELP = {
    "questions_per_photo": "Each has a counterpart about another photo.",
    "features": "Numbers for each proposal.",
    "difficulty": "0 to 1: noise and overlap.",
}

prepared_option = click.option("--prepared", type=options.existing, help="Another prepared folder than the run's own.")
run_options = options.joined(
    prepared_option,
    click.option("--model", "name", help="The run's own component, as package.module:Class."),
    options.device_option,
)


def out_option(what: str) -> options.Decorator:
    """Return the option for the folder that a command writes."""
    return click.option("--out", type=options.out_folder, required=True, help=what)


def seconds_since(start: float) -> float:
    """Return how long a command took, as it prints it."""
    return round(time.perf_counter() - start, 2)


@click.group(cls=OrderedGroup)
def vqa() -> None:
    """Answer questions about photos: VQA v2."""


@vqa.command(short_help="Write a simulated data set in the official formats.")
@out_option("The data set's folder.")
@options.settings_options(World, WORLD_HELP)
@options.json_option
def simulate(out: Path, as_json: bool, **others: Any) -> None:
    """Write a synthetic data set in the official formats: questions, answers, pairs and features."""
    start = time.perf_counter()
    with progress_bar("photos") as show:
        questions = simulate_world(out, World(**others), on_progress=show)
    seconds = seconds_since(start)
    if as_json:
        echo_json({"questions": questions, "features": str(out / FEATURES), "seconds": seconds})
        return
    for split, number in questions.items():
        echo_line(f"{split}: {number} questions")
    echo_line(f"{out}: written, {seconds} s")
    echo_line(f"next: tallybox vqa prepare {out} --features {out / FEATURES} --out PREPARED")


@vqa.command(short_help="Write regions and features of your own photos.")
@options.photos_argument
@out_option("The folder of features.")
@options.json_option
def features(photos: Mapping[str, Path], out: Path, as_json: bool) -> None:
    """Write the regions of photos, folders of photos and patterns ("*.jpg") for `tallybox vqa prepare`.

    Features are PicoDet's scores of 80 categories. The same command goes on after an interruption, or adds photos. A
    photo that cannot be read is reported and the others are written; the exit status is then 1.
    """
    from tallybox.vqa.regions import write_photo_features

    start = time.perf_counter()
    with options.reported_failures() as report:
        with progress_bar("describing") as show:
            number = write_photo_features(photos, out, on_failure=report, on_progress=show)
        if as_json:
            echo_json({"photos": number, "seconds": seconds_since(start)})
            return
        echo_line(f"{out}: {number} photos; {seconds_since(start)} s")
        echo_line(f"next: tallybox vqa prepare QUESTIONS --features {out} --out PREPARED")


@vqa.command(short_help="Turn questions, answers and features into what training reads.")
@click.argument("folder", type=options.existing_folder)
@click.option(
    "--features",
    type=options.existing,
    multiple=True,
    required=True,
    help="Region features: a file (.tsv, .tsv.gz, .safetensors) or a folder of them; repeat for more.",
)
@out_option("The prepared folder.")
@click.option(
    "--vocabulary-from",
    type=click.Choice(["train", "trainval"]),
    default="train",
    show_default=True,
    help="Whose words and answers; trainval for the test server.",
)
@click.option("--skip-missing", is_flag=True, help="Leave out questions whose photos have no features.")
@options.json_option
def prepare(folder: Path, features: tuple[Path, ...], out: Path, as_json: bool, **others: Any) -> None:
    """Turn the official files in FOLDER and their features into a folder for training.

    The same command goes on after an interruption; with more --features it adds their photos.
    """
    from tallybox.vqa.data.official import official_files
    from tallybox.vqa.data.prepare import prepare as prepare_files

    start = time.perf_counter()
    with progress_steps() as show:
        done = prepare_files(official_files(folder), features, out, on_progress=show, **others)
    done["seconds"] = seconds_since(start)
    if as_json:
        echo_json(done)
        return
    for split, number in done["questions"].items():
        unanswerable, lost = done["unanswerable"][split], done["lost_questions"][split]
        note = f"; {unanswerable} have no answer in the vocabulary: scored, not trained on" if unanswerable else ""
        note += f"; {lost} more left out, without photos" if lost else ""
        echo_line(f"{split}: {number} questions{note}")
    for split, number in done["left_out"].items():
        echo_line(f"{split}: left out; no file of features has a photo of its {number} questions")
    echo_line(f"{done['words']} words, {done['answers']} answers")
    repeated = f"; {done['repeated_photos']} occur twice, the first is used" if done["repeated_photos"] else ""
    proposals = f"{done['proposals']} proposals of {done['features']} features"
    echo_line(f"{done['photos']} photos with {proposals}, {decimal(done['store_bytes'])}{repeated}")
    echo_line(f"{out}: ready, {done['seconds']} s")


@vqa.command(short_help="Train a model.")
@click.argument("prepared", type=options.existing_folder)
@out_option("The run's folder.")
@click.option("--config", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="A TOML file of settings.")
@click.option("--split", default="train", show_default=True, help="train, or trainval for the test server.")
@click.option(
    "--model",
    "name",
    metavar="|".join(MODELS),
    help="Or your own component as package.module:Class.  [default: counter]",
)
@click.option("--epochs", type=int, help="[default: 100]")
@click.option("--batch", type=int, help="Questions per step.  [default: 256]")
@click.option(
    "--validate-every",
    type=click.IntRange(min=0),
    help="Epochs between validations on val, 0 for none.  [default: 1 if there is a val that is not trained on]",
)
@click.option("--seed", type=int, help="[default: 0]")
@click.option("--precision", type=click.Choice(get_args(Precision)), help="Of matrix products.  [default: auto]")
@options.device_option
@options.json_option
def train(
    prepared: Path,
    out: Path,
    config: Path | None,
    split: str,
    name: str | None,
    validate_every: int | None,
    device: torch.device,
    as_json: bool,
    **training: Any,
) -> None:
    """Train a model on the PREPARED folder; the same command resumes an interrupted or a shorter run."""
    from tallybox.vqa.data.vocabulary import VOCABULARY, Vocabulary
    from tallybox.vqa.training import train_prepared

    if split == "trainval" and Vocabulary.load(prepared / VOCABULARY).split == "train":
        warning = f"Warning: the vocabulary of {prepared} is of train only; prepare with --vocabulary-from trainval."
        echo_line(warning, err=True)
    values = read_configuration(config, model={"name": name}, training=training)
    start, name = time.perf_counter(), values.model.name
    with progress_bar(f"training {name}") as show:
        done = train_prepared(
            prepared, out, values, split=split, validate_every=validate_every, device=device, on_progress=show
        )
    seconds = seconds_since(start)
    if as_json:
        echo_json({"model": name, "epochs": done.epoch, "steps": done.steps, "seconds": seconds})
    else:
        echo_line(f"{out}: {name}, {done.epoch} epochs, {done.steps} steps; {seconds} s this time")


@vqa.command(short_help="Score trained models by the official rule.")
@click.argument("runs", nargs=-1, required=True, type=options.existing)
@click.option("--split", default="val", show_default=True, help="Which questions.")
@run_options
@options.json_option
def evaluate(runs: tuple[Path, ...], device: torch.device, as_json: bool, **others: Any) -> None:
    """Score RUNS (folders, or .pth files of the published code); of several seeds, mean and sample deviation."""
    from tallybox.vqa.prediction import evaluate_runs, is_trained_on, summarise

    for run in runs:
        if is_trained_on(run, others["split"]):
            echo_line(f"Warning: {run} was trained on {others['split']}; this is no score on new questions.", err=True)
    with progress_steps() as show:
        scores = evaluate_runs(runs, device=device, on_progress=show, **others)
    if as_json:
        echo_json(summarise(scores))
    else:
        _show_scores(scores)


def _show_scores(scores: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    """Print a row for each score and a column for each model."""
    from tallybox.vqa.prediction import format_score

    table = Table("Accuracy in %, errors of counts")
    for model, runs in scores.items():
        table.add_column(model if len(runs) == 1 else f"{model} ({len(runs)} runs)", justify="right")
    for key in dict.fromkeys(key for runs in scores.values() for run in runs for key in run):
        table.add_row(key, *(format_score([run[key] for run in runs if key in run]) for runs in scores.values()))
    Console().print(table)


@vqa.command(short_help="Write the results file of the test server.")
@click.argument("run", type=options.existing)
@click.option("--out", type=options.file_to_write, required=True, help="The results file.")
@click.option("--split", default="test", show_default=True, help="Which questions: test, test-dev, ...")
@run_options
def predict(run: Path, out: Path, device: torch.device, **others: Any) -> None:
    """Answer all questions of a split with a RUN (or a .pth file of the published code) for the test server."""
    from tallybox.vqa.prediction import predict_run, write_results

    with progress_bar("answering") as show:
        _, answers = predict_run(run, device=device, on_progress=show, **others)
    write_results(answers, out)
    echo_line(f"{out}: {len(answers)} answers")


@vqa.command(short_help="Draw the paper's figures from a run.")
@click.argument("run", type=options.existing)
@click.option("--out", type=options.out_folder, help="Where to.  [default: RUN/figures]")
@click.option("--toy", type=options.existing, help="A folder of tallybox toy sweep, whose activations are drawn too.")
@click.option("--photos", type=options.existing, help="Photos to draw under the boxes, named by ids as COCO's are.")
@click.option("--split", default="val", show_default=True, help="Which questions.")
@options.pdf_option
@prepared_option
def figures(run: Path, out: Path | None, **others: Any) -> None:
    """Draw a RUN's learning curves and, of the counter model, activations and examples."""
    from tallybox.vqa.figures import draw_run_figures

    out = out or (run if run.is_dir() else run.parent) / "figures"
    written = draw_run_figures(run, out, **others)
    echo_line(f"{out}: {', '.join(sorted({path.stem for path in written if path.suffix == '.png'}))}")


@vqa.command(short_help="All of it on a simulated world: four models, scored.")
@out_option("The folder of data, models and scores.")
@options.device_option
@options.json_option
def demo(out: Path, device: torch.device, as_json: bool) -> None:
    """Write a simulated world, prepare it, train four models on it and score them; no files needed.

    The models are the paper's baseline, the baseline with NMS, the paper's counter, and presence counting.

    The same command resumes after an interruption.
    """
    from tallybox.vqa.demo import run_demo
    from tallybox.vqa.prediction import summarise

    start = time.perf_counter()
    with progress_steps() as show:
        scores = run_demo(out, device=device, on_progress=show)
    seconds = seconds_since(start)
    if as_json:
        echo_json({**summarise(scores), "seconds": seconds})
        return
    _show_scores(scores)
    echo_line(f"{out}: files, prepared, {', '.join(scores)}; {seconds} s")
