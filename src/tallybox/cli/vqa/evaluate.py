"""`tallybox vqa evaluate`: score trained models by the official rule."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tallybox.cli.options import existing, json_option
from tallybox.cli.progress import progress_steps
from tallybox.cli.terminal import echo_line
from tallybox.devices import device_or_default


@click.command()
@click.argument("runs", nargs=-1, required=True, type=existing)
@click.option("--split", default="val", show_default=True, help="Which questions.")
@click.option("--prepared", type=existing, help="Another prepared folder than the run's own.")
@click.option("--model", "name", help="Your runs' own component, as package.module:Class.")
@click.option("--device", help='"cpu" or "cuda"; by default the GPU, if any.')
@json_option
def evaluate(runs: tuple[Path, ...], device: str | None, as_json: bool, **options: Any) -> None:
    """Score RUNS (folders, or .pth files of the published code); of several seeds, mean and sample deviation."""
    from tallybox.vqa.evaluation import evaluate_runs, is_trained_on, summarise

    for run in runs:
        if is_trained_on(run, options["split"]):
            echo_line(f"Warning: {run} was trained on {options['split']}; this is no score on new questions.", err=True)
    with progress_steps() as show:
        scores = evaluate_runs(runs, device=device_or_default(device), on_progress=show, **options)
    if as_json:
        click.echo(json.dumps(summarise(scores)))
    else:
        show_scores(scores)


def show_scores(scores: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    """Print a row for each score and a column for each model."""
    from rich.console import Console
    from rich.table import Table

    from tallybox.vqa.evaluation import format_score

    table = Table("Accuracy in %, errors of counts")
    for model, runs in scores.items():
        table.add_column(model if len(runs) == 1 else f"{model} ({len(runs)} runs)", justify="right")
    for key in dict.fromkeys(key for runs in scores.values() for run in runs for key in run):
        table.add_row(key, *(format_score([run[key] for run in runs if key in run]) for runs in scores.values()))
    Console().print(table)
