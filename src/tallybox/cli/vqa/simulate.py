"""`tallybox vqa simulate`: write a simulated data set, or questions about annotated photos, in the official formats."""

import json
import time
from collections.abc import Container, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from tallybox.cli.options import json_option, settings_options
from tallybox.cli.progress import progress_bar
from tallybox.cli.terminal import echo_line
from tallybox.errors import InputError
from tallybox.vqa.simulation.instances import simulate_from_instances
from tallybox.vqa.simulation.simulate import FEATURES
from tallybox.vqa.simulation.simulate import simulate as simulate_world
from tallybox.vqa.simulation.world import World

WORLD_OPTIONS = frozenset(field.name for field in fields(World))
WORLD_HELP = {
    "questions_per_photo": "Each has a counterpart about another photo.",
    "features": "Numbers for each proposal.",
    "difficulty": "0 to 1: noise, overlap, disagreement.",
}
INSTANCES_OPTIONS = ("split", "questions_per_photo", "seed")


@click.command()
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="The data set's folder.")
@settings_options(World, WORLD_HELP)
@click.option(
    "--instances",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="COCO instances: ask about these photos instead; their features come from your detector.",
)
@click.option(
    "--split",
    type=click.Choice(["train", "val"]),
    help="The split of the questions about --instances.  [default: train]",
)
@json_option
def simulate(out: Path, instances: Path | None, as_json: bool, **options: Any) -> None:
    """Write a simulated data set in the official formats: questions, answers, pairs and features.

    With --instances, questions, answers and pairs about annotated photos.
    """
    start = time.perf_counter()
    options = {name: value for name, value in options.items() if value is not None}
    if instances is not None:
        _check_unused(options, INSTANCES_OPTIONS, "is for a simulated world, but --instances has photos of its own")
        questions = simulate_from_instances(instances, out, **options)
    else:
        _check_unused(options, WORLD_OPTIONS, "is for the photos of --instances, but there is no --instances")
        with progress_bar("photos") as show:
            questions = simulate_world(out, World(**options), on_progress=show)
    seconds = round(time.perf_counter() - start, 2)
    if as_json:
        features = {} if instances else {"features": str(out / FEATURES)}
        click.echo(json.dumps({"questions": questions, **features, "seconds": seconds}))
        return
    for split, number in questions.items():
        echo_line(f"{split}: {number} questions")
    echo_line(f"{out}: written, {seconds} s")
    echo_line(f"next: tallybox vqa prepare {out} --features {'TSV' if instances else out / FEATURES} --out PREPARED")


def _check_unused(options: Iterable[str], allowed: Container[str], reason: str) -> None:
    """Raise where an option was given that has no effect."""
    if unused := sorted(name for name in options if name not in allowed):
        raise InputError(f"--{unused[0].replace('_', '-')} {reason}; leave it out")
