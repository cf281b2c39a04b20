"""What `tallybox fit`, `evaluate` and `suggest` learn from and look at: files of detections, or photos."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from tallybox.cli.detector_options import SPEC_HELP, TEXT_HELP
from tallybox.cli.progress import progress_bar
from tallybox.cli.terminal import echo_line
from tallybox.detections.category_names import COCO_CATEGORIES
from tallybox.detections.container import Detections
from tallybox.detections.labels import TrueCounts
from tallybox.detections.readers import read_detections, stored_category_names, with_counts
from tallybox.errors import InputError


class ImageSource(NamedTuple):
    """Images with what was detected in them."""

    images: Iterable[Detections]
    names: Mapping[int, str]  # of the categories; empty where they are not known
    are_photos: bool

    def with_counts(
        self, labels: Path, *, only: Sequence[str], missing_is_zero: bool
    ) -> tuple[Iterable[Detections], TrueCounts]:
        """Return the images and the true counts in a file, as `tallybox.detections.readers.with_counts` does."""
        options: dict[str, Any] = {"only": only, "missing_is_zero": missing_is_zero, "are_photos": self.are_photos}
        return with_counts(self.images, self.names, labels, **options)


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--detector`` and ``--text``, for photos."""
    for option in (
        click.option("--text", "texts", multiple=True, metavar="PHRASE", help=TEXT_HELP),
        click.option("--detector", metavar="SPEC", help=f"For photos. {SPEC_HELP}"),
    ):
        command = option(command)
    return command


def open_images(
    source: str,
    estimator: Path,
    report: Callable[[InputError], None],
    *,
    detector: str | None,
    texts: Sequence[str],
    categories: Mapping[int, str] = COCO_CATEGORIES,
) -> ImageSource:
    """Return the images of a file of detections, or of photos, whose detections are kept beside the estimator."""
    from tallybox.photos.detecting import keep_detections
    from tallybox.photos.sources import find_photos, find_sources
    from tallybox.photos.specs import DEFAULT_SPEC

    try:
        is_file = not find_sources([source])[0].is_photo
        if not is_file or detector:
            photos = find_photos([source])
    except InputError as error:
        raise click.UsageError(str(error)) from error
    if is_file and not detector:
        if texts:
            raise click.UsageError(f"--text is for photos, but {source} is a file of detections")
        path = Path(source)
        return ImageSource(read_detections(path, categories), stored_category_names(path, categories), False)
    folder = estimator.with_suffix(".detections")
    with progress_bar("detecting") as show:
        names, images = keep_detections(
            photos, folder, spec=detector or DEFAULT_SPEC, texts=texts, on_failure=report, on_progress=show
        )
    echo_line(f"detections of {len(images):,} photos are kept in {folder}", err=True)
    return ImageSource(images, names, True)
