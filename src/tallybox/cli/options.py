"""Options that commands share, and how photos that cannot be read are reported."""

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from tallybox.cli.terminal import echo_line
from tallybox.errors import InputError

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

any_path = click.Path(path_type=Path)
existing = click.Path(path_type=Path, exists=True)
file_to_write = click.Path(path_type=Path, dir_okay=False)
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


def settings_options(settings: type[Any], helps: Mapping[str, str] | None = None) -> Decorator:
    """Return an option for each field of a dataclass, which owns the defaults; ``helps`` by the names of fields."""
    return joined(
        *(
            click.option(
                f"--{field.name.replace('_', '-')}",
                type=type(field.default),
                help=f"{(helps or {}).get(field.name, '')}  [default: {field.default}]".strip(),
            )
            for field in fields(settings)
        )
    )


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
estimator_option = click.option("--estimator", "file", type=any_path, help="An estimator from `tallybox fit`.")
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


def _as_tiles(context: click.Context, parameter: click.Parameter, value: str) -> str | int:
    if value not in ("auto", "off") and not value.isdecimal():
        raise click.BadParameter(f"{value!r} is not auto, off or a number of pixels")
    return int(value) if value.isdecimal() else value


tiles_option = click.option(
    "--tiles",
    default="auto",
    callback=_as_tiles,
    metavar="auto|off|N",
    help="Count in windows: large photos and crowds, none, or with windows of N pixels.  [default: auto]",
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
    """Give a function that prints an error and goes on; if it was called, the command exits with status 1."""
    warnings.filterwarnings("ignore", module=r"PIL\.")  # about damage in a file, which is read or reported
    failures: list[InputError] = []

    def report(error: InputError) -> None:
        failures.append(error)
        echo_line(f"Error: {error}", err=True)

    yield report
    if failures:
        sys.exit(1)
