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
from tallybox.errors import InputError
from tallybox.vqa.config import ModelName, Precision, read_configuration


@click.command()
@click.argument("prepared", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="The run's folder.")
@click.option("--config", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="A TOML file of settings.")
@click.option("--split", default="train", show_default=True, help="train, or trainval for the test server.")
@click.option(
    "--model",
    "name",
    type=click.Choice([*get_args(ModelName), "counting"]),  # the name of counter in tallybox 0.1
    metavar="|".join(get_args(ModelName)),
    help="[default: counter]",
)
@click.option("--epochs", type=int, help="[default: 100]")
@click.option("--batch", type=int, help="Questions per step.  [default: 256]")
@click.option(
    "--validate-every",
    type=click.IntRange(min=0),
    help="Epochs between validations on val, 0 for none.  [default: 1 where there is a val that is not learned from]",
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
    from tallybox.runs import read_config
    from tallybox.vqa.batches import DATA_CHECKSUM, data_checksum, open_training_data
    from tallybox.vqa.data.splits import has_split
    from tallybox.vqa.evaluation import open_validation_data
    from tallybox.vqa.training import train as train_model

    values = read_configuration(config, model={"name": name}, training=training)
    data = open_training_data(prepared, split)
    if split == "trainval" and not read_config(prepared).keys() & {"vocabulary_from", "vocabulary"}:
        click.echo(
            f"Warning: the vocabulary of {prepared} is of train only; for words and answers of val too, prepare with "
            "--vocabulary-from trainval",
            err=True,
        )
    validation = None
    if validate_every and not has_split(prepared, "val"):
        raise InputError(f"--validate-every needs a split val, but {prepared} has none; leave it out")
    if split == "train" and validate_every != 0 and (validate_every or has_split(prepared, "val")):
        validation = open_validation_data(prepared, "val", validate_every or 1)
    elif validate_every:
        raise InputError("--validate-every needs questions that are not learned from, but val is among them")
    described = {"prepared": str(prepared.resolve()), "split": split, DATA_CHECKSUM: data_checksum(prepared)}
    where = device_or_default(device)
    start = time.perf_counter()
    with progress_bar(f"training {values.model.name}") as show:
        done = train_model(
            data, out, values, device=where, described=described, validation=validation, on_progress=show
        )
    name, seconds = values.model.name, round(time.perf_counter() - start, 2)
    if as_json:
        click.echo(json.dumps({"model": name, "epochs": done.epoch, "steps": done.steps, "seconds": seconds}))
    else:
        echo_line(f"{out}: {name}, {done.epoch} epochs, {done.steps} steps; {seconds} s this time")
