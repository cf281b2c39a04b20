"""`tallybox bench`: measure here, correctness checked first."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.table import Table

from tallybox.bench.measure import Row, report
from tallybox.cli.device import chosen_device
from tallybox.errors import InputError


@click.group()
def bench() -> None:
    """Measure here, correctness checked first."""


def measurement_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that all measurements share."""
    for option in (
        click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Also write the JSON to a file."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        click.option("--seconds", default=2.0, show_default=True, help="How long to measure each number."),
        click.option("--device", help='"cpu" or "cuda"; the GPU where there is one.'),
    ):
        command = option(command)
    return command


@bench.command()
@measurement_options
def counter(device: str | None, seconds: float, as_json: bool, out: Path | None) -> None:
    """Time the counting component: the fused backend beside the reference."""
    from tallybox.bench.counter import bench_counter

    where = chosen_device(device)
    show_rows(bench_counter(where, seconds), where, as_json=as_json, out=out)


@bench.command()
@measurement_options
def toy(device: str | None, seconds: float, as_json: bool, out: Path | None) -> None:
    """Time the toy task: one point on a CPU, both complete sweeps on a GPU."""
    from tallybox.bench.toy import bench_toy

    where = chosen_device(device)
    show_rows(bench_toy(where, seconds), where, as_json=as_json, out=out)


@bench.command()
@measurement_options
def vqa(device: str | None, seconds: float, as_json: bool, out: Path | None) -> None:
    """Time a training step of the VQA model, at the paper's size on a GPU and at a small one on a CPU."""
    from tallybox.bench.vqa import bench_vqa

    where = chosen_device(device)
    show_rows(bench_vqa(where, seconds), where, as_json=as_json, out=out)


@bench.command()
@click.argument("file", required=False, type=click.Path(path_type=Path, exists=True))
@click.option("--estimator", "estimator_file", type=click.Path(path_type=Path), help="What `tallybox fit` wrote.")
@measurement_options
def detections(
    file: Path | None, estimator_file: Path | None, device: str | None, seconds: float, as_json: bool, out: Path | None
) -> None:
    """Time counting from detections (made-up ones, or FILE's) beside supervision's NMS; the reference is that."""
    from tallybox.bench.detections import bench_detections
    from tallybox.detections.files import read_detections
    from tallybox.estimator.estimator import CountEstimator

    if device not in (None, "cpu"):
        raise InputError(f"detections are counted on the CPU, but got device {device!r}")
    estimator = None if estimator_file is None else CountEstimator.load(estimator_file)
    images = None if file is None else list(read_detections(file))
    show_rows(bench_detections(estimator, images, seconds), torch.device("cpu"), as_json=as_json, out=out)


@bench.command()
@measurement_options
def photos(device: str | None, seconds: float, as_json: bool, out: Path | None) -> None:
    """Time photos to counts: reading, detecting, counting, all; the reference takes one photo at a time."""
    from tallybox.bench.photo_counting import bench_photos

    where = chosen_device(device)
    show_rows(bench_photos(where, seconds), where, as_json=as_json, out=out)


@bench.command()
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Also write the JSON to a file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--seconds", default=10.0, show_default=True, help="How long to measure each number.")
def serve(seconds: float, as_json: bool, out: Path | None) -> None:
    """Put the HTTP service under load; the reference is the same service without batching."""
    from tallybox.bench.serve import bench_serve

    progress = Console(stderr=True)
    table = Table("clients", "requests/s", "median ms", "p99 ms", "without batching: requests/s", "median ms", "p99 ms")
    done = []
    for row in bench_serve(seconds):
        done.append(row)
        progress.print(f"{row.case}: {row.requests_per_second:.0f} requests a second, p99 {row.p99_ms:.0f} ms")
        numbers = (row.requests_per_second, row.median_ms, row.p99_ms)
        without = (row.reference_requests_per_second, row.reference_ms, row.reference_p99_ms)
        table.add_row(row.case, *(f"{number:.4g}" for number in (*numbers, *without)))
    result = json.dumps(report(list(done), torch.device("cpu")), indent=1)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(result + "\n")
    if as_json:
        click.echo(result)
    else:
        Console().print(table)


def show_rows(rows: Iterator[Row], device: torch.device, *, as_json: bool, out: Path | None) -> None:
    """Print rows as a table as they come, or all of them as JSON."""
    progress = Console(stderr=True)
    done: list[Row] = []
    for row in rows:
        done.append(row)
        progress.print(f"{row.case}: {row.median_ms:.3f} ms, {row.speedup:.1f} times the reference's speed")
    result = json.dumps(report(done, device), indent=1)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(result + "\n")
    if as_json:
        click.echo(result)
        return
    table = Table("case", *("ms", "reference ms", "speed-up", "peak memory", "reference's peak"))
    for row in done:
        table.add_row(
            row.case,
            f"{row.median_ms:.3f}",
            f"{row.reference_ms:.2f}",
            f"{row.speedup:.1f}",
            *(format_bytes(peak) for peak in (row.peak_bytes, row.reference_peak_bytes)),
        )
    Console().print(table)


def format_bytes(number: int | None) -> str:
    """Write a number of bytes in the unit a person would use."""
    if number is None:
        return "unknown"
    size = float(number)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} GiB"
