"""`tallybox vqa simulate`: write a simulated data set, or questions about annotated photos, in the official formats."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Container, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click

from tallybox.cli.progress import progress_bar
from tallybox.cli.terminal import echo_line
from tallybox.errors import InputError
from tallybox.vqa.simulation.instances import simulate_from_instances
from tallybox.vqa.simulation.simulate import FEATURES, simulate_from_inventory
from tallybox.vqa.simulation.simulate import simulate as simulate_world
from tallybox.vqa.simulation.world import World

existing_file = click.Path(path_type=Path, exists=True, dir_okay=False)
DEFAULTS = {field.name: field.default for field in fields(World)}
HELP = {
    "questions_per_photo": "Each has a counterpart about another photo.",
    "features": "Numbers for each proposal.",
    "difficulty": "0 to 1: noise, overlap, disagreement.",
}
Command = TypeVar("Command", bound=Callable[..., Any])
INVENTORY_OPTIONS = ("features", "difficulty", "seed")
INSTANCES_OPTIONS = ("split", "questions_per_photo", "seed")


def world_options(command: Command) -> Command:
    """Add an option for each setting of a simulated world."""
    for name, default in reversed(DEFAULTS.items()):
        text = f"{HELP.get(name, '')}  [default: {default}]".strip()
        command = click.option(f"--{name.replace('_', '-')}", type=type(default), help=text)(command)
    return command


@click.command()
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="The data set's folder.")
@world_options
@click.option(
    "--instances",
    type=existing_file,
    help="COCO instances: ask about these photos instead; their features come from your detector.",
)
@click.option(
    "--split",
    type=click.Choice(["train", "val"]),
    help="The split of the questions about --instances.  [default: train]",
)
@click.option(
    "--questions",
    type=existing_file,
    multiple=True,
    help="Official questions; with --inventory, only features of their photos are made.",
)
@click.option("--inventory", type=existing_file, help="CSV image_id,category_id,count: what the photos show.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def simulate(
    out: Path,
    instances: Path | None,
    questions: tuple[Path, ...],
    inventory: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Write a simulated data set in the official formats: questions, answers, pairs and features.

    With --instances, questions, answers and pairs about annotated photos. With --questions and --inventory, features
    of the photos of real questions, simulated from what is known to be in them.
    """
    start = time.perf_counter()
    given = {name: value for name, value in options.items() if value is not None}
    if bool(questions) != (inventory is not None) or (inventory is not None and instances is not None):
        raise InputError("--questions and --inventory must come together and without --instances")
    what, features = "questions", out / FEATURES
    with progress_bar("photos") as show:
        if inventory is not None:
            _check_unused(given, INVENTORY_OPTIONS, "is not for photos of an --inventory")
            what = "photos"
            written = {"all": simulate_from_inventory(questions, inventory, out, World(**given), on_progress=show)}
        elif instances is not None:
            _check_unused(given, INSTANCES_OPTIONS, "is for a simulated world, but --instances has photos of its own")
            written = simulate_from_instances(instances, out, **given)
        else:
            _check_unused(given, DEFAULTS, "is for the photos of --instances, but there is no --instances")
            written = simulate_world(out, World(**given), on_progress=show)
    seconds = round(time.perf_counter() - start, 2)
    if as_json:
        described = {} if instances else {"features": str(features)}
        click.echo(json.dumps({what: written, **described, "seconds": seconds}))
        return
    for split, number in written.items():
        echo_line(f"{split}: {number} {what}")
    echo_line(f"{out}: written, {seconds} s")
    folder = out if inventory is None else "FOLDER"
    echo_line(f"next: tallybox vqa prepare {folder} --features {'TSV' if instances else features} --out PREPARED")


def _check_unused(given: Iterable[str], allowed: Container[str], reason: str) -> None:
    """Raise where an option was given that has no effect."""
    if unused := sorted(name for name in given if name not in allowed):
        raise InputError(f"--{unused[0].replace('_', '-')} {reason}; leave it out")
