"""`tallybox vqa evaluate`: score trained models by the official rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tallybox.cli.device import chosen_device
from tallybox.cli.progress import progress_steps

if TYPE_CHECKING:
    from tallybox.vqa.evaluation import Scores

BY_ANSWER_TYPE = [("Yes/No", "yes/no"), ("Number", "number"), ("Other", "other"), ("All", "all")]


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--split", default="val", show_default=True, help="Which questions.")
@click.option(
    "--prepared", type=click.Path(path_type=Path, exists=True), help="Another prepared folder than the run's own."
)
@click.option("--device", help='"cpu" or "cuda"; by default the GPU, if any.')
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def evaluate(runs: tuple[Path, ...], split: str, prepared: Path | None, device: str | None, as_json: bool) -> None:
    """Score RUNS (folders, or .pth files of the published code); of several of a model, mean and sample deviation."""
    from tallybox.vqa.evaluation import evaluate_runs, summarise

    with progress_steps() as show:
        scores = evaluate_runs(runs, split=split, prepared=prepared, device=chosen_device(device), on_progress=show)
    if as_json:
        click.echo(json.dumps(summarise(scores)))
        return
    show_tables(scores)


def show_tables(scores: dict[str, list[Scores]]) -> None:
    """Print scores in the layout of the paper's second table, then in that of its first."""
    from rich.console import Console
    from rich.table import Table

    from tallybox.vqa.evaluation import COLUMNS, table_rows

    for title, columns in (
        ("VQA accuracy, then balanced pair accuracy, in percent", COLUMNS),
        ("VQA accuracy by type of answer, in percent", BY_ANSWER_TYPE),
    ):
        table = Table("Model", title=title)
        for name, _ in columns:
            table.add_column(name, justify="right")
        for row in table_rows(scores, columns):
            table.add_row(*row)
        Console().print(table)
