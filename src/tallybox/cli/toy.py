"""`tallybox toy`: the paper's toy task."""

import json
import time
from pathlib import Path
from typing import Any

import click

from tallybox.cli.options import json_option, settings_options
from tallybox.cli.progress import progress_bar
from tallybox.cli.terminal import echo_line
from tallybox.devices import device_or_default
from tallybox.toy.sweep import FIXED_AT, run_sweep
from tallybox.toy.training import Setting, ToyConfig, train_settings

# Many settings at once fill a GPU. On a CPU they gain nothing, and a group is saved only when it is complete.
SETTINGS_AT_ONCE = {"cuda": 404, "cpu": 1}
folder_type = click.Path(path_type=Path, file_okay=False)


def config_of(options: dict[str, Any]) -> ToyConfig:
    """Return the configuration with the values of options; those that are None have their defaults."""
    return ToyConfig(**{name: value for name, value in options.items() if value is not None})


@click.group()
def toy() -> None:
    """Train and draw the paper's toy task."""


@toy.command()
@click.option("--side-length", type=float, required=True, help="Side l of the boxes, 0 to 1.")
@click.option("--noise", type=float, required=True, help="Noise q of the weights, 0 to 1.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--device", help='"cpu" or "cuda"; the GPU where there is one.')
@json_option
@settings_options(ToyConfig)
def train(side_length: float, noise: float, seed: int, device: str | None, as_json: bool, **constants: Any) -> None:
    """Train all models at one point of the paper's figures."""
    settings, config, where = [Setting(side_length, noise)], config_of(constants), device_or_default(device)
    start = time.perf_counter()
    with progress_bar("training") as show:
        (result,) = train_settings(settings, seed, config, device=where, on_progress=show)
    seconds = round(time.perf_counter() - start, 2)
    if as_json:
        accuracies = {f"{model}_accuracy": accuracy for model, accuracy in result.accuracy.items()}
        click.echo(json.dumps({"side_length": side_length, "noise": noise, **accuracies, "seconds": seconds}))
        return
    for model, accuracy in result.accuracy.items():
        echo_line(f"{model:>10}  {accuracy:.4f} of counts right")
    echo_line(f"side length {side_length:g}, noise {noise:g}, seed {seed}, {seconds:.1f} s")


@toy.command()
@click.option("--setting", "difficulty", type=click.Choice(list(FIXED_AT)), help="One of the two; without it, both.")
@click.option(
    "--out", type=folder_type, required=True, help="The folder of results; of both settings, OUT/easy and OUT/hard."
)
@click.option("--step", type=float, default=0.01, show_default=True, help="Distance of neighbouring points.")
@click.option("--seeds", type=int, default=2, show_default=True)
@click.option("--device", help='"cpu" or "cuda"; the GPU where there is one.')
@click.option("--settings-at-once", "at_once", type=int, help="How many points train together, and are saved together.")
@settings_options(ToyConfig)
def sweep(
    difficulty: Any, out: Path, step: float, seeds: int, device: str | None, at_once: int | None, **constants: Any
) -> None:
    """Train all points of the paper's figures; the same command resumes after an interruption."""
    where, config = device_or_default(device), config_of(constants)
    at_once = at_once or SETTINGS_AT_ONCE.get(where.type, 1)
    start = time.perf_counter()
    folders = {name: out / name for name in FIXED_AT} if difficulty is None else {difficulty: out}
    for name, folder in folders.items():
        with progress_bar(f"{name} sweep") as show:
            run_sweep(
                folder, name, config, step=step, seeds=seeds, device=where, settings_at_once=at_once, on_progress=show
            )
    echo_line(f"{out}: done in {time.perf_counter() - start:.1f} s")


@toy.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
def figures(folder: Path) -> None:
    """Draw every figure from the results of a sweep, into its folder "figures"."""
    from tallybox.toy.figures import draw_toy_figures

    sweeps = [folder / name for name in FIXED_AT if (folder / name / "config.json").exists()]
    for sweep_folder in sweeps or [folder]:
        echo_line(f"{len(draw_toy_figures(sweep_folder))} files in {sweep_folder / 'figures'}")
