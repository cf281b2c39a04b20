"""`tallybox vqa simulate`: write a synthetic data set in the official formats."""

import json
import time
from pathlib import Path
from typing import Any

import click

from tallybox.cli.options import json_option, settings_options
from tallybox.cli.progress import progress_bar
from tallybox.cli.terminal import echo_line
from tallybox.vqa.simulation import FEATURES, World
from tallybox.vqa.simulation import simulate as simulate_world

WORLD_HELP = {
    "questions_per_photo": "Each has a counterpart about another photo.",
    "features": "Numbers for each proposal.",
    "difficulty": "0 to 1: noise and overlap.",
}


@click.command()
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="The data set's folder.")
@settings_options(World, WORLD_HELP)
@json_option
def simulate(out: Path, as_json: bool, **options: Any) -> None:
    """Write a synthetic data set in the official formats: questions, answers, pairs and features."""
    start = time.perf_counter()
    with progress_bar("photos") as show:
        world = World(**{name: value for name, value in options.items() if value is not None})
        questions = simulate_world(out, world, on_progress=show)
    seconds = round(time.perf_counter() - start, 2)
    if as_json:
        click.echo(json.dumps({"questions": questions, "features": str(out / FEATURES), "seconds": seconds}))
        return
    for split, number in questions.items():
        echo_line(f"{split}: {number} questions")
    echo_line(f"{out}: written, {seconds} s")
    echo_line(f"next: tallybox vqa prepare {out} --features {out / FEATURES} --out PREPARED")
