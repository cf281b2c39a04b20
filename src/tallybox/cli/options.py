"""Options that commands share, and how photos that cannot be read are reported."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tallybox.cli.terminal import echo_line, progress_bar
from tallybox.detections.readers import read_category_names
from tallybox.errors import InputError

if TYPE_CHECKING:
    import torch

    from tallybox.photos.labelled import LabelledImages

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

any_path = click.Path(path_type=Path)
existing = click.Path(path_type=Path, exists=True)
existing_folder = click.Path(path_type=Path, exists=True, file_okay=False)
out_folder = click.Path(path_type=Path, file_okay=False)
file_to_write = click.Path(path_type=Path, dir_okay=False)
SPEC_HELP = (
    "Detector: picodet, transformers:MODEL, ultralytics:FILE, torchvision:NAME, onnx:FILE or "
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
    defaults = {field.name: field.default for field in fields(settings)}
    return joined(
        *(
            click.option(
                f"--{name.replace('_', '-')}", default=default, show_default=True, help=(helps or {}).get(name)
            )
            for name, default in defaults.items()
        )
    )


def _find_photos(ctx: click.Context, param: click.Parameter, paths: tuple[str, ...]) -> Mapping[str, Path]:
    from tallybox.photos.sources import find_photos

    try:
        return find_photos(paths)
    except InputError as error:
        raise click.UsageError(str(error), ctx) from error


def _device(ctx: click.Context, param: click.Parameter, name: str | None) -> torch.device:
    from tallybox.devices import device_or_default

    return device_or_default(name)


photos_argument = click.argument("photos", metavar="PHOTOS...", nargs=-1, required=True, callback=_find_photos)
device_option = click.option("--device", help='"cpu" or "cuda".  [default: the GPU, if any]', callback=_device)
pdf_option = click.option("--pdf", is_flag=True, help="Also as PDF for papers, 6.75 and 3.25 inches wide.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
estimator_option = click.option("--estimator", "file", type=any_path, help="An estimator from `tallybox fit`.")
text_option = click.option(
    "--text", "texts", multiple=True, metavar="PHRASE", help="A phrase for a zero-shot detector; may be repeated."
)
detector_options = joined(
    click.option("--detector", metavar="SPEC", help=SPEC_HELP),
    text_option,
    click.option("--engine", type=click.Choice(["local", "ray"]), help="Here, or on a Ray cluster.  [default: local]"),
)
source_options = joined(click.option("--detector", metavar="SPEC", help=f"For photos. {SPEC_HELP}"), text_option)
detections_options = joined(
    click.option(
        "--box-format",
        type=click.Choice(["xyxy", "xywh", "cxcywh"]),
        help="What the box columns of a table of detections mean.  [default: by their names]",
    ),
    click.option(
        "--names",
        "category_names",
        type=existing,
        callback=lambda ctx, param, path: None if path is None else read_category_names(path),
        help="Names of the detector's classes: YOLO's data.yaml.",
    ),
)


def read_labelled(
    source: str, labels: Path, estimator: Path, report: Callable[[InputError], None], **options: Any
) -> LabelledImages:
    """Read labelled images as `read_labelled_images` does, with progress; detections are kept beside the estimator."""
    from tallybox.photos.labelled import read_labelled_images

    with progress_bar("detecting") as show:
        cache = estimator.with_suffix(".detections")
        return read_labelled_images(source, labels, cache=cache, on_failure=report, on_progress=show, **options)


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
