"""`tallybox count`: count the objects in photos and in files of detections, image by image."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path

import click

from tallybox.cli.count_output import CountedImage, CsvOutput, JsonOutput, Output, PictureOutput, TextOutput
from tallybox.cli.progress import progress_bar
from tallybox.cli.standard_output import reserved_standard_output
from tallybox.detections.files import read_detections
from tallybox.errors import InputError
from tallybox.estimator.estimator import CountEstimator
from tallybox.photos.shipped import shipped_estimator
from tallybox.photos.sources import Source, find_sources

Counted = Iterator[CountedImage]
OnFailure = Callable[[InputError], None]


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--category", "categories", multiple=True, metavar="NAME", help="Count these only; may be repeated.")
@click.option("--estimator", "file", type=click.Path(path_type=Path), help="What `tallybox fit` wrote.")
@click.option(
    "--engine", type=click.Choice(["local", "ray"]), help="Where: here, or on a Ray cluster.  [default: local]"
)
@click.option("--size", type=int, help="Pixels the detector sees of a photo's longer side.  [default: 416]")
@click.option("--save", "folder", type=click.Path(path_type=Path, file_okay=False), help="Write annotated photos here.")
@click.option("--csv", "table", type=click.Path(path_type=Path, dir_okay=False), help='Write a CSV; "-" prints it.')
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def count(
    paths: tuple[str, ...],
    categories: tuple[str, ...],
    file: Path | None,
    engine: str | None,
    size: int | None,
    folder: Path | None,
    table: Path | None,
    as_json: bool,
) -> None:
    """Count the objects in photos, folders of photos, patterns ("*.jpg") and files of detections.

    Detections are .json, .json.gz, .csv, .csv.gz or .parquet, as `tallybox fit` takes them. Without --category, every
    category with a box that scores more than 0.05 is listed; the others count 0. A file that cannot be read is
    reported and the others are counted; the exit status is then 1. With --engine ray, Parquet data sets are counted on
    the cluster that RAY_ADDRESS names, else on all cores here.
    """
    if as_json and table == Path("-"):
        raise click.UsageError("--json and --csv - both print on standard output; name a file for --csv")
    try:
        sources = find_sources(paths)
    except InputError as error:
        raise click.UsageError(str(error)) from error
    if folder is not None and not any(source.is_photo for source in sources):
        raise click.UsageError("--save draws on photos, but there is none among the paths")
    if engine == "ray" and any(source.is_photo for source in sources):
        raise click.UsageError("--engine ray counts Parquet data sets, but there is a photo among the paths")
    estimator = _chosen_estimator(file, sources)
    ids = [estimator.category_id(name) for name in categories] or None
    failures: list[InputError] = []

    def report(error: InputError) -> None:
        failures.append(error)
        click.echo(f"Error: {error}", err=True)

    with ExitStack() as stack:
        stack.enter_context(reserved_standard_output())
        outputs: list[Output] = []
        if as_json:
            outputs.append(stack.enter_context(JsonOutput(estimator)))
        if table is not None:
            outputs.append(stack.enter_context(CsvOutput(estimator, table)))
        if folder is not None:
            outputs.append(stack.enter_context(PictureOutput(estimator, folder, ids, report)))
        if not as_json and table != Path("-"):
            outputs.append(stack.enter_context(TextOutput(estimator, every=ids is not None)))
        for counted in _count_sources(sources, estimator, ids, engine, size, report):
            for output in outputs:
                output.write(counted)
    if failures:
        sys.exit(1)


def _chosen_estimator(file: Path | None, sources: list[Source]) -> CountEstimator:
    if file is not None:
        return CountEstimator.load(file)
    click.echo(
        "Counting with the estimator that comes with tallybox, fitted to YOLOv4-tiny at 416 px "
        "(docs/estimator-card.md).",
        err=True,
    )
    if not all(source.is_photo for source in sources):
        click.echo(
            "It is right only for that detector's boxes; for another, learn one with "
            "'tallybox fit DETECTIONS LABELS --out FILE' and give it with --estimator FILE.",
            err=True,
        )
    return shipped_estimator()


def _count_sources(
    sources: list[Source],
    estimator: CountEstimator,
    ids: list[int] | None,
    engine: str | None,
    size: int | None,
    report: OnFailure,
) -> Counted:
    """Count photos in batches and files of detections as they stream, in the order given."""
    done = 0

    def advance(number: int) -> None:
        nonlocal done
        done += number
        show(done, len(sources))

    with progress_bar("counting") as show:
        for is_photo, group in groupby(sources, key=lambda source: source.is_photo):
            paths = [source.path for source in group]
            if is_photo:
                yield from _count_photos(paths, estimator, ids, size, report, advance)
                continue
            for path in paths:
                yield from _count_detections(path, estimator, ids, engine, report)
                advance(1)


def _count_detections(
    path: Path, estimator: CountEstimator, ids: list[int] | None, engine: str | None, report: OnFailure
) -> Counted:
    try:
        if engine == "ray":
            from tallybox.estimator.ray_engine import predict_each_with_ray

            answered = predict_each_with_ray(estimator, path, ids)
        else:
            answered = estimator.predict_each(read_detections(path), ids)
        for image, predictions in answered:
            yield CountedImage(image, predictions)
    except InputError as error:
        report(error)


def _count_photos(
    paths: list[Path],
    estimator: CountEstimator,
    ids: list[int] | None,
    size: int | None,
    report: OnFailure,
    advance: Callable[[int], None],
) -> Counted:
    from tallybox.photos.detector import YoloV4Tiny
    from tallybox.photos.reading import detect_in_batches

    warnings.filterwarnings("ignore", module=r"PIL\.")  # about damage in a file: it is read or reported, in one line
    detector = YoloV4Tiny() if size is None else YoloV4Tiny(size=size)

    def failure(path: Path, error: InputError) -> None:
        report(error)
        advance(1)

    for images in detect_in_batches(paths, detector, on_failure=failure):
        for image, predictions in estimator.predict_each(images, ids):
            yield CountedImage(image, predictions, Path(str(image.image_id)))
        advance(len(images))
