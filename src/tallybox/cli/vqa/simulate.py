"""`tallybox vqa simulate`: write a made-up data set in the official formats."""

from __future__ import annotations

import json
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from tallybox.cli.progress import progress_bar
from tallybox.vqa.simulation.simulating import FEATURES
from tallybox.vqa.simulation.simulating import simulate as write_data_set
from tallybox.vqa.simulation.world import World

DEFAULTS = {field.name: field.default for field in fields(World)}


@click.command()
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="The data set's folder.")
@click.option("--train-photos", type=int, help=f"[default: {DEFAULTS['train_photos']}]")
@click.option("--val-photos", type=int, help=f"[default: {DEFAULTS['val_photos']}]")
@click.option("--test-photos", type=int, help=f"[default: {DEFAULTS['test_photos']}]")
@click.option(
    "--questions-per-photo", type=int, help=f"And their counterparts.  [default: {DEFAULTS['questions_per_photo']}]"
)
@click.option("--features", type=int, help=f"Numbers for each proposal.  [default: {DEFAULTS['features']}]")
@click.option(
    "--difficulty", type=float, help=f"0 to 1: noise, overlap, disagreement.  [default: {DEFAULTS['difficulty']}]"
)
@click.option("--seed", type=int, help=f"[default: {DEFAULTS['seed']}]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def simulate(out: Path, as_json: bool, **options: Any) -> None:
    """Write a made-up data set in the official formats: questions, answers, pairs and features."""
    start = time.perf_counter()
    world = World(**{name: value for name, value in options.items() if value is not None})
    with progress_bar("photos") as show:
        questions = write_data_set(out, world, on_progress=show)
    seconds = round(time.perf_counter() - start, 2)
    if as_json:
        click.echo(json.dumps({"questions": questions, "features": str(out / FEATURES), "seconds": seconds}))
        return
    for split, number in questions.items():
        click.echo(f"{split}: {number} questions")
    click.echo(
        f"{out}: written, {seconds} s; next: tallybox vqa prepare {out} --features {out / FEATURES} --out PREPARED"
    )
