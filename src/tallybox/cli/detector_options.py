"""The options that commands share which look at photos."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

SPEC_HELP = (
    "What detects: picodet, transformers:MODEL, ultralytics:FILE, torchvision:NAME, onnx:FILE or "
    "package.module:factory.  [default: picodet]"
)


def detector_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--detector``, ``--text`` and ``--engine``."""
    for option in (
        click.option(
            "--engine",
            type=click.Choice(["local", "ray"]),
            help="Where: here, or on a Ray cluster.  [default: local]",
        ),
        click.option(
            "--text",
            "texts",
            multiple=True,
            metavar="PHRASE",
            help="What a zero-shot model looks for; may be repeated.",
        ),
        click.option("--detector", metavar="SPEC", help=SPEC_HELP),
    ):
        command = option(command)
    return command
