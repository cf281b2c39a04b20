"""`tallybox vqa train`: train a model."""

import json
import time
from pathlib import Path
from typing import Any, get_args

import click

from tallybox.cli.options import json_option
from tallybox.cli.progress import progress_bar
from tallybox.cli.terminal import echo_line
from tallybox.devices import device_or_default
from tallybox.vqa.config import MODELS, Precision, read_configuration


@click.command()
@click.argument("prepared", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="The run's folder.")
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
@click.option("--device", help='"cpu" or "cuda"; by default the GPU, if any.')
@json_option
def train(
    prepared: Path,
    out: Path,
    config: Path | None,
    split: str,
    name: str | None,
    validate_every: int | None,
    device: str | None,
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
    start = time.perf_counter()
    with progress_bar(f"training {values.model.name}") as show:
        where = device_or_default(device)
        done = train_prepared(
            prepared, out, values, split=split, validate_every=validate_every, device=where, on_progress=show
        )
    name, seconds = values.model.name, round(time.perf_counter() - start, 2)
    if as_json:
        click.echo(json.dumps({"model": name, "epochs": done.epoch, "steps": done.steps, "seconds": seconds}))
    else:
        echo_line(f"{out}: {name}, {done.epoch} epochs, {done.steps} steps; {seconds} s this time")
