"""Options that commands share, and how photos that cannot be read are reported."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from tallybox.cli.terminal import echo_line
from tallybox.errors import InputError

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

existing = click.Path(path_type=Path, exists=True)
SPEC_HELP = (
    "What detects: picodet, transformers:MODEL, ultralytics:FILE, torchvision:NAME, onnx:FILE or "
    "package.module:factory.  [default: picodet]"
)


def joined(*options: Decorator) -> Decorator:
    """Return one decorator for several options, in the order in which help lists them."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


text_option = click.option(
    "--text", "texts", multiple=True, metavar="PHRASE", help="What a zero-shot model looks for; may be repeated."
)
detector_options = joined(
    click.option("--detector", metavar="SPEC", help=SPEC_HELP),
    text_option,
    click.option(
        "--engine", type=click.Choice(["local", "ray"]), help="Where: here, or on a Ray cluster.  [default: local]"
    ),
)
source_options = joined(click.option("--detector", metavar="SPEC", help=f"For photos. {SPEC_HELP}"), text_option)
label_options = joined(
    click.option("--category", "categories", multiple=True, metavar="NAME", help="Only these; may be repeated."),
    click.option(
        "--missing-is-zero", is_flag=True, help="Photos without labels and empty cells count 0, not as unknown."
    ),
)


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
