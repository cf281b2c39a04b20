"""What commands that read photos share: their options, and how photos that cannot be read are reported."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from tallybox.cli.terminal import echo_line
from tallybox.errors import InputError

SPEC_HELP = (
    "What detects: picodet, transformers:MODEL, ultralytics:FILE, torchvision:NAME, onnx:FILE or "
    "package.module:factory.  [default: picodet]"
)
TEXT_HELP = "What a zero-shot model looks for; may be repeated."


def detector_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--detector``, ``--text`` and ``--engine``."""
    for option in (
        click.option(
            "--engine", type=click.Choice(["local", "ray"]), help="Where: here, or on a Ray cluster.  [default: local]"
        ),
        click.option("--text", "texts", multiple=True, metavar="PHRASE", help=TEXT_HELP),
        click.option("--detector", metavar="SPEC", help=SPEC_HELP),
    ):
        command = option(command)
    return command


@contextmanager
def reported_failures() -> Iterator[Callable[[InputError], None]]:
    """Give a function that prints an error and goes on; where it was called, the command exits with status 1."""
    warnings.filterwarnings("ignore", module=r"PIL\.")  # about damage in a file: it is read or reported
    failures: list[InputError] = []

    def report(error: InputError) -> None:
        failures.append(error)
        echo_line(f"Error: {error}", err=True)

    yield report
    if failures:
        sys.exit(1)
