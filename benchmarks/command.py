"""Run a benchmark as a command, ``python -m benchmarks.NAME``: measure, print a table or JSON."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from benchmarks.measure import BenchRow, report
from rich.filesize import decimal

from tallybox.cli.options import file_to_write, json_option
from tallybox.devices import device_or_default
from tallybox.errors import TallyboxError
from tallybox.files import write_text

WIDTH = 18  # of a column
COLUMNS: dict[str, Callable[[BenchRow], str]] = {
    "ms": lambda row: f"{row.median_ms:.3f}",
    "reference ms": lambda row: f"{row.reference_ms:.2f}",
    "speed-up": lambda row: f"{row.speedup:.1f}",
    "peak memory": lambda row: format_bytes(row.peak_bytes),
}


def benchmark_command(bench: Callable[..., Iterator[BenchRow]], *parameters: click.Parameter) -> click.Command:
    """Return a command that prints the rows of ``bench(device, seconds, **parameters)``."""

    @click.command(help=bench.__doc__, params=list(parameters))
    @click.option("--device", help='"cpu" or "cuda".  [default: the GPU, if any]')
    @click.option("--seconds", default=2.0, show_default=True, help="How long to measure each number.")
    @json_option
    @click.option("--out", type=file_to_write, help="Also write the JSON to a file.")
    def command(device: str | None, seconds: float, as_json: bool, out: Path | None, **options: Any) -> None:
        try:
            where = device_or_default(device)
            click.echo("".join(f"{name:>{WIDTH}}" for name in COLUMNS), err=as_json)
            rows = []
            for row in bench(where, seconds, **options):
                rows.append(row)
                numbers = "".join(f"{text(row):>{WIDTH}}" for text in COLUMNS.values())
                click.echo(f"{row.case}\n{numbers}", err=as_json)
        except TallyboxError as error:
            raise click.ClickException(str(error)) from error
        result = json.dumps(report(rows, where), indent=1)
        if out is not None:
            write_text(out, result + "\n")
        if as_json:
            click.echo(result)

    return command


def format_bytes(number: int | None) -> str:
    """Write a number of bytes in a readable unit."""
    return "unknown" if number is None else decimal(number)
