"""The images that `tallybox fit`, `evaluate` and `suggest` read: files of detections, or photos."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from tallybox.cli.progress import progress_bar
from tallybox.cli.terminal import echo_line
from tallybox.detections.category_names import check_same_names
from tallybox.detections.detections import Detections
from tallybox.detections.labels import TrueCounts
from tallybox.detections.readers import read_detections, read_for_estimator, stored_category_names, with_counts
from tallybox.errors import InputError
from tallybox.estimator.fitted import Fitted


class ImageSource(NamedTuple):
    """Images with what was detected in them."""

    images: Iterable[Detections]
    names: Mapping[int, str]  # of the categories; empty where they are not known
    detector: tuple[str, ...]  # SPEC and phrases of what detects in photos; none for a file of detections


class LabelledImages(NamedTuple):
    """Images with what was detected in them and what they really hold."""

    images: Iterable[Detections]
    counts: TrueCounts
    detector: tuple[str, ...]


def open_images(
    source: str,
    estimator: Path,
    report: Callable[[InputError], None],
    fitted: Fitted | None = None,
    *,
    check: Callable[[Iterable[Detections], Mapping[int, str]], object] = lambda images, names: None,
    detector: str | None,
    texts: Sequence[str],
) -> ImageSource:
    """Return the images of a file of detections, or of photos, whose detections are kept beside the estimator.

    A ``fitted`` estimator must have learned from the same detector, and the images' categories must have its names.
    Before photos are detected, ``check`` gets them without boxes, and the names of the categories; it may raise.
    """
    from tallybox.photos.cache import cached_detections
    from tallybox.photos.sources import find_photos, find_sources
    from tallybox.photos.specs import DEFAULT_SPEC, check_same_detector

    try:
        is_file = not find_sources([source])[0].is_photo and not detector
        photos = {} if is_file else find_photos([source])
    except InputError as error:
        raise click.UsageError(str(error)) from error

    def check_early(names: Mapping[int, str]) -> None:
        if fitted is not None:
            check_same_names(fitted.categories, names, source)
        check(map(Detections.empty, photos), names)

    names: Mapping[int, str]
    images: Iterable[Detections]
    if is_file:
        if texts:
            raise click.UsageError(f"--text is for photos, but {source} is a file of detections")
        path = Path(source)
        if fitted is not None:
            names, images = read_for_estimator(path, fitted.categories)
        else:
            names, images = stored_category_names(path), read_detections(path)
        return ImageSource(images, names, ())
    spec = detector or DEFAULT_SPEC
    if fitted is not None:
        check_same_detector(fitted.detector, (spec, *texts))
    folder = estimator.with_suffix(".detections")
    with progress_bar("detecting") as show:
        names, images = cached_detections(
            photos,
            folder,
            spec=spec,
            texts=texts,
            check=check_early,
            on_failure=report,
            on_progress=show,
        )
    echo_line(f"detections of {len(images):,} photos are kept in {folder}", err=True)
    if fitted is not None:  # where all photos were detected before, nothing was checked early
        check_same_names(fitted.categories, names, source)
    return ImageSource(images, names, (spec, *texts))


def open_labelled_images(
    source: str,
    labels: Path,
    estimator: Path,
    report: Callable[[InputError], None],
    fitted: Fitted | None = None,
    *,
    categories: Sequence[str],
    missing_is_zero: bool,
    **photo_options: Any,
) -> LabelledImages:
    """Return the images as `open_images` does, with their true counts from a file of labels."""
    options: dict[str, Any] = {"labels": labels, "only": categories, "missing_is_zero": missing_is_zero}

    def check(images: Iterable[Detections], names: Mapping[int, str]) -> None:
        """Raise where the labels are wrong, before minutes of detecting; warnings come with the counts."""
        with warnings.catch_warnings(action="ignore"):
            with_counts(images, names, are_photos=True, **options)

    opened = open_images(source, estimator, report, fitted, check=check, **photo_options)
    labelled = with_counts(opened.images, opened.names, are_photos=bool(opened.detector), **options)
    return LabelledImages(*labelled, opened.detector)
