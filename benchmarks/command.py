"""`tallybox bench`: measure speed on this machine; results are checked first."""

import json
from collections.abc import Callable, Iterator
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import torch
from benchmarks.measure import BenchRow, report
from rich.filesize import decimal

from tallybox.cli.options import any_path, existing, file_to_write, json_option
from tallybox.devices import device_or_default
from tallybox.errors import InputError
from tallybox.files import write_text

COLUMNS: dict[str, Callable[[BenchRow], str]] = {
    "ms": lambda row: f"{row.median_ms:.3f}",
    "reference ms": lambda row: f"{row.reference_ms:.2f}",
    "speed-up": lambda row: f"{row.speedup:.1f}",
    "peak memory": lambda row: format_bytes(row.peak_bytes),
    "reference's peak": lambda row: format_bytes(row.reference_peak_bytes),
}
# The modules that have a function bench_NAME(device, seconds), imported when a benchmark runs, and what it measures.
BENCHMARKS = {
    "counter": ("counter", "Time the counting component: the fused backend beside the reference."),
    "toy": ("toy", "Time the toy task: one point on a CPU, both complete sweeps on a GPU."),
    "photos": (
        "photo_counting",
        "Time photos to counts: reading, detecting, counting, all; the reference takes one photo at a time.",
    ),
    "vqa": ("vqa", "Time a training step of the VQA model, at the paper's size on a GPU and at a small one on a CPU."),
}


@click.group()
def bench() -> None:
    """Measure speed on this machine; results are checked first."""


def add_benchmark(
    name: str, summary: str | None, rows: Callable[..., Iterator[BenchRow]], *, cpu_only: bool = False
) -> None:
    """Turn a function that yields rows into a command that prints them."""

    @bench.command(name, help=summary)
    @click.option("--device", help='"cpu" or "cuda"; by default the GPU, if any.')
    @click.option("--seconds", default=2.0, show_default=True, help="How long to measure each number.")
    @json_option
    @click.option("--out", type=file_to_write, help="Also write the JSON to a file.")
    @wraps(rows)
    def command(device: str | None, as_json: bool, out: Path | None, **options: Any) -> None:
        if cpu_only and device not in (None, "cpu"):
            raise InputError(f"this is measured on the CPU, but got device {device!r}")
        torch_device = device_or_default("cpu" if cpu_only else device)
        # A case has up to 66 characters, so its numbers are on a line of their own: both fit in 80 columns.
        click.echo("".join(f"{name:>{width_of(name)}}" for name in COLUMNS), err=as_json)
        measured = []
        for row in rows(device=torch_device, **options):
            measured.append(row)
            numbers = "".join(f"{text_of(row):>{width_of(name)}}" for name, text_of in COLUMNS.items())
            click.echo(f"{row.case}\n{numbers}", err=as_json)
        result = json.dumps(report(measured, torch_device), indent=1)
        if out is not None:
            write_text(out, result + "\n")
        if as_json:
            click.echo(result)


def measure(module: str, function: str, **options: Any) -> Iterator[BenchRow]:
    """Yield the rows of a benchmark, whose module is imported only now."""
    rows: Iterator[BenchRow] = getattr(import_module(f"benchmarks.{module}"), function)(**options)
    return rows


@click.argument("file", required=False, type=existing)
@click.option("--estimator", "model", type=any_path, help="An estimator from `tallybox fit`.")
def measure_detections(
    device: torch.device, seconds: float, file: Path | None, model: Path | None
) -> Iterator[BenchRow]:
    """Time counting from detections (made-up ones, or FILE's) on the CPU; the reference is supervision's NMS."""
    from benchmarks.detections import bench_detections

    from tallybox import CountEstimator, read_detections

    estimator = None if model is None else CountEstimator.load(model)
    return bench_detections(estimator, None if file is None else list(read_detections(file)), seconds)


def width_of(column: str) -> int:
    """Return how wide a column is, for numbers as large as 999,999.999 and two spaces before its name."""
    return max(len(column) + 2, 12)


def format_bytes(number: int | None) -> str:
    """Write a number of bytes in the unit a person would use."""
    return "unknown" if number is None else decimal(number)


for _name, (_module, _summary) in BENCHMARKS.items():
    add_benchmark(_name, _summary, partial(measure, _module, f"bench_{_name}"))
add_benchmark("detections", measure_detections.__doc__, measure_detections, cpu_only=True)
