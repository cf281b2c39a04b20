"""`tallybox toy`: the paper's toy task."""

import time
from pathlib import Path
from typing import Any

import click
import torch

from tallybox.cli import OrderedGroup, options
from tallybox.cli.terminal import echo_json, echo_line, progress_bar
from tallybox.files import check_writable
from tallybox.toy import Setting, ToyConfig, ToyTraining, grid_settings, run_sweep, save_layers, sweep_settings
from tallybox.toy.sweep import FIXED_AT
from tallybox.toy.training import MODELS

# Many settings at once fill a GPU. On a CPU they gain nothing, and a group is saved only when it is complete.
SETTINGS_AT_ONCE = {"cuda": 404, "cpu": 1}


def numbers(ctx: click.Context, param: click.Parameter, text: str | None) -> list[float] | None:
    """Return the numbers of a text such as ``0.2,0.5``."""
    try:
        return None if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of numbers with commas") from None


training_options = options.joined(
    click.option(
        "--model",
        "models",
        multiple=True,
        metavar="NAME",
        help=f"{', '.join(MODELS)} or package.module:Class; may be repeated.  [default: the three]",
    ),
    options.device_option,
    options.settings_options(ToyConfig),
)


@click.group(cls=OrderedGroup)
def toy() -> None:
    """Train and draw the paper's toy task.

    \b
    tallybox toy train --side-length 0.5 --noise 0.25
    tallybox toy sweep --setting hard --out runs/toy
    tallybox toy figures runs/toy
    """  # noqa: D301 - click keeps the lines after a backspace as they are


@toy.command()
@click.option("--side-length", type=float, required=True, help="Side l of the boxes, 0 to 1.")
@click.option("--noise", type=float, required=True, help="Noise q of the scores, 0 to 1.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--out", type=options.file_to_write, help="Save the trained layers here (safetensors).")
@options.json_option
@training_options
def train(
    side_length: float,
    noise: float,
    seed: int,
    out: Path | None,
    as_json: bool,
    models: tuple[str, ...],
    device: torch.device,
    **constants: Any,
) -> None:
    """Train models at one point of the paper's figures."""
    if out is not None:
        check_writable(out)
    start = time.perf_counter()
    setting, config = Setting(side_length, noise), ToyConfig(**constants)
    training = ToyTraining([setting], seed, config, device=device, models=models or MODELS)
    with progress_bar("training") as show:
        (result,) = training.run(show)
    seconds = round(time.perf_counter() - start, 2)
    if out is not None:
        save_layers(out, training)
    if as_json:
        accuracies = {f"{model}_accuracy": accuracy for model, accuracy in result.accuracy.items()}
        echo_json({"side_length": side_length, "noise": noise, "seed": seed, **accuracies, "seconds": seconds})
        return
    for model, accuracy in result.accuracy.items():
        echo_line(f"{model:>10}  accuracy {accuracy:.4f}")
    echo_line(f"side length {side_length:g}, noise {noise:g}, seed {seed}, {seconds:.1f} s")


@toy.command(short_help="Train models at all points of the paper's figures, or of your own grid.")
@click.option("--setting", "difficulty", type=click.Choice(list(FIXED_AT)), help="One of the paper's two, not both.")
@click.option(
    "--out", type=options.out_folder, required=True, help="Folder of results; for both settings OUT/easy, OUT/hard."
)
@click.option("--step", type=float, default=0.01, show_default=True, help="Distance of neighbouring points.")
@click.option("--side-length", "side_lengths", callback=numbers, help="Your own grid: 0.2 or 0.2,0.5.")
@click.option("--noise", "noises", callback=numbers, help="Your own grid, likewise.")
@click.option("--seed", "seeds", type=int, multiple=True, default=(0, 1), help="May be repeated.  [default: 0 and 1]")
@training_options
def sweep(
    difficulty: Any,
    out: Path,
    step: float,
    side_lengths: list[float] | None,
    noises: list[float] | None,
    seeds: tuple[int, ...],
    models: tuple[str, ...],
    device: torch.device,
    **constants: Any,
) -> None:
    """Train all points of the paper's figures, or of your own grid; the same command resumes after an interruption."""
    if (side_lengths is None) != (noises is None):
        raise click.UsageError("your own grid needs both --side-length and --noise")
    if difficulty and side_lengths:
        raise click.UsageError("--setting is for the paper's points, --side-length and --noise for your own")
    start = time.perf_counter()
    if side_lengths and noises:
        grid: dict[str, Any] = {"side_lengths": side_lengths, "noises": noises}
        sweeps = [("own", out, grid_settings(side_lengths, noises), grid)]
    else:
        folders = {difficulty: out} if difficulty else {name: out / name for name in FIXED_AT}
        sweeps = [
            (name, folder, sweep_settings(name, step), {"difficulty": name, "step": step})
            for name, folder in folders.items()
        ]
    for name, folder, settings, described in sweeps:
        with progress_bar(f"{name} sweep") as show:
            run_sweep(
                folder,
                settings,
                ToyConfig(**constants),
                seeds=seeds,
                device=device,
                settings_at_once=SETTINGS_AT_ONCE.get(device.type, 1),
                models=models or MODELS,
                described_as=described,
                on_progress=show,
            )
    echo_line(f"{out}: done in {time.perf_counter() - start:.1f} s")


@toy.command(short_help="Draw every figure from the results of a sweep.")
@click.argument("folder", type=options.existing_folder)
@options.pdf_option
def figures(folder: Path, pdf: bool) -> None:
    """Draw every figure from the results of a sweep, and write its accuracies as CSV, into its folder "figures"."""
    from tallybox.toy.figures import draw_toy_figures

    sweeps = [folder / name for name in FIXED_AT if (folder / name / "config.json").exists()]
    for sweep_folder in sweeps or [folder]:
        echo_line(f"{len(draw_toy_figures(sweep_folder, pdf=pdf))} files in {sweep_folder / 'figures'}")
