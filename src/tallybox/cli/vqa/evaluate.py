"""`tallybox vqa evaluate`: score trained models by the official rule."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tallybox.cli.options import existing, json_option
from tallybox.cli.progress import progress_steps
from tallybox.devices import device_or_default

if TYPE_CHECKING:
    from tallybox.vqa.evaluation import Scores

TITLES = {"baseline": "Baseline", "nms": "+ NMS", "counter": "+ counter", "presence": "+ presence counter"}
# The columns of the paper's second table, and their scores.
TABLE_KEYS = ("number", "count", "all", "pair_number", "pair_count", "pair_all")
COLUMNS = [(key.replace("_", " ").capitalize(), key) for key in TABLE_KEYS]
MISSING = "–"
COUNTING = [("Count", "count"), ("RMSE", "count_rmse"), ("MAE", "count_mae")]
BY_ANSWER_TYPE = [("Yes/No", "yes/no"), ("Number", "number"), ("Other", "other"), ("All", "all")]


@click.command()
@click.argument("runs", nargs=-1, required=True, type=existing)
@click.option("--split", default="val", show_default=True, help="Which questions.")
@click.option("--prepared", type=existing, help="Another prepared folder than the run's own.")
@click.option("--model", "name", help="The model in a .pth file (baseline, counter), or your runs' own component.")
@click.option("--question-types", is_flag=True, help="Also the accuracy by the official types of questions.")
@click.option("--device", help='"cpu" or "cuda"; by default the GPU, if any.')
@json_option
def evaluate(runs: tuple[Path, ...], device: str | None, as_json: bool, **options: Any) -> None:
    """Score RUNS (folders, or .pth files of the published code); of several seeds, mean and sample deviation."""
    from tallybox.vqa.evaluation import evaluate_runs, summarise

    for run in runs:
        warn_of_learned(run, options["split"], options["prepared"])
    with progress_steps() as show:
        groups = evaluate_runs(runs, device=device_or_default(device), on_progress=show, **options)
    scores = {name: group.scores for name, group in groups.items()}
    if as_json:
        summary = summarise(scores)
        for name, group in groups.items():
            summary[name]["learned_from"] = group.learned_from
        click.echo(json.dumps(summary))
        return
    show_tables(scores)


def warn_of_learned(run: Path, split: str, prepared: Path | None) -> None:
    """Warn if a run was trained on questions that it is scored on."""
    from tallybox.vqa.evaluation import count_learned

    if learned := count_learned(run, split, prepared):
        click.echo(
            f"Warning: {run} was trained on {learned} of these questions; its scores say nothing about new ones.",
            err=True,
        )


def show_tables(scores: dict[str, list[Scores]]) -> None:
    """Print scores in the layout of the paper's second table, then in that of its first, then errors of counts."""
    from rich.console import Console
    from rich.table import Table

    from tallybox.vqa.evaluation import TYPE

    for title, columns in (
        ("VQA accuracy, then balanced pair accuracy, in percent", COLUMNS),
        ("VQA accuracy by type of answer, in percent", BY_ANSWER_TYPE),
        ("Accuracy in percent and errors of counts", COUNTING),
    ):
        columns = [column for column in columns if any(column[1] in run for runs in scores.values() for run in runs)]
        table = Table("Model", title=title, padding=0)
        for name, _ in columns:
            table.add_column(name, justify="right", no_wrap=True)  # seven columns fit in 80
        for row in table_rows(scores, columns):
            table.add_row(*row)
        Console().print(table)
    types = [key for key in next(iter(scores.values()))[0] if key.startswith(TYPE)]
    if types:
        table = Table("Type of question, most frequent first", title="VQA accuracy by type of question, in percent")
        for model in scores:
            table.add_column(title_of(model), justify="right")
        _, *by_type = zip(*table_rows(scores, [(key, key) for key in types]), strict=True)
        for key, cells in zip(types, by_type, strict=True):
            table.add_row(key.removeprefix(TYPE), *cells)
        Console().print(table)


def table_rows(
    runs: Mapping[str, Sequence[Mapping[str, float]]], columns: Sequence[tuple[str, str]] = COLUMNS
) -> list[list[str]]:
    """Return a row of text for each model, its title first: "mean±deviation", or the mean of a single run.

    >>> table_rows({"baseline": [{"number": 44.0, "all": 64.0}, {"number": 45.0, "all": 64.0}]})
    [['Baseline', '44.50±0.7', '–', '64.00±0.0', '–', '–', '–']]
    """
    return [
        [title_of(model), *(_cell([run[key] for run in scores if key in run]) for _, key in columns)]
        for model, scores in runs.items()
    ]


def title_of(name: str) -> str:
    """Return the title of a model, with the path of its run in brackets if there is one.

    >>> title_of("counter (runs/published)")
    '+ counter (runs/published)'
    """
    model, space, path = name.partition(" (")
    return TITLES.get(model, model) + space + path


def _cell(values: Sequence[float]) -> str:
    from tallybox.vqa.evaluation import mean_and_deviation

    if not values:
        return MISSING
    mean, deviation = mean_and_deviation(values)
    return f"{mean:.2f}" if deviation is None else f"{mean:.2f}±{deviation:.1f}"
