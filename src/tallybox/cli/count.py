"""`tallybox count`: count the objects in photos and in files of detections, image by image."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeGuard

import click

from tallybox.cli.count_output import Write, json_output, picture_output, report_output, table_output, text_output
from tallybox.cli.options import (
    detections_options,
    detector_options,
    estimator_option,
    file_to_write,
    json_option,
    reported_failures,
)
from tallybox.cli.progress import progress_bar
from tallybox.cli.terminal import echo_line
from tallybox.detections.readers import read_category_names
from tallybox.errors import InputError
from tallybox.files import check_writable, is_special
from tallybox.photos.cache import unfinished_folder
from tallybox.photos.counting import PathCounter

TABLE_SUFFIXES = (".csv", ".tsv", ".xlsx", ".parquet", ".json")


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--category", "categories", multiple=True, metavar="NAME", help="Count these only; may be repeated.")
@estimator_option
@detector_options
@detections_options
@click.option(
    "--tiles", default="auto", metavar="auto|off|N", help="Windows for large photos; N: their smallest side in pixels."
)
@click.option("--every", metavar="TIME", help="Of a video, count a frame every 1s (the default), 500ms, 2min …")
@click.option("--save", "folder", type=click.Path(path_type=Path, file_okay=False), help="Write outlined photos here.")
@click.option("--all-boxes", is_flag=True, help="In --save, also show duplicates and boxes that are not counted.")
@click.option(
    *("--out", "--csv", "table"),
    type=file_to_write,
    help="Write a table (.csv, .tsv, .xlsx, .parquet) or .json, and resume it after an interruption.",
)
@click.option(
    "--report", "page", type=file_to_write, help="Write a page (.html) with totals and outlined photos, and resume it."
)
@click.option(
    "--total", "with_totals", is_flag=True, help="Also add up all images, with an interval; a sum of counts is too low."
)
@json_option
def count(
    paths: tuple[str, ...],
    categories: tuple[str, ...],
    file: Path | None,
    names: Path | None,
    tiles: str,
    folder: Path | None,
    all_boxes: bool,
    table: Path | None,
    page: Path | None,
    with_totals: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Count the objects in photos, folders of photos, patterns ("*.jpg"), videos and files of detections.

    tallybox gives each count a 90 % interval, and lists categories that may be there under "perhaps also".

    \b
    tallybox count holiday.jpg
    tallybox count photos/ --out counts.xlsx --report report.html
    tallybox count clip.mp4 --every 1s --out counts.csv
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    chosen = categories or None
    try:
        _check_suffix("--out", table, TABLE_SUFFIXES)
        _check_suffix("--report", page, (".html", ".htm"))
        found = PathCounter(
            paths,
            estimator=file,
            category_names=None if names is None else read_category_names(names),
            tiles=int(tiles) if tiles.isdecimal() else tiles,  # type: ignore[arg-type]  # checked
            **options,
        )
        if not found.has_photos and (page is not None or folder is not None):
            raise InputError("--report and --save show photos, but there is none among the paths")
        if with_totals and (found.videos or (found.has_photos and found.files)):
            raise InputError("--total adds up either photos or files of detections, and no videos")
    except InputError as error:
        raise click.UsageError(str(error)) from error
    inputs = [*(source.path for source in found.sources), *(path for path in (file, names) if path is not None)]
    for out in (table, page):
        if out is not None:
            check_writable(out, inputs)
    resumable = (table, page) if find_spec("pyarrow") else (table,)  # a report needs no pyarrow
    kept = next((unfinished_folder(out) for out in resumable if _is_file(out)), None)
    with reported_failures() as report, _deleted_in_the_end(kept), ExitStack() as stack:
        _echo_notes(found, has_estimator=file is not None)
        outputs: list[Write] = []
        compute_totals = None
        if with_totals:
            totals = found.totals(chosen)
            outputs.append(lambda image: totals.add(image.predictions) if image.predictions is not None else None)
            compute_totals = totals.compute
        if page is not None:
            outputs.append(stack.enter_context(report_output(page, found.counter, chosen)))
        if table is not None:
            outputs.append(stack.enter_context(table_output(table, compute_totals)))
        if folder is not None:
            outputs.append(stack.enter_context(picture_output(folder, found.counter, report, all_boxes=all_boxes)))
        if as_json:  # the last, so that it is printed first, even if a file cannot be written
            outputs.append(stack.enter_context(json_output(compute_totals)))
        elif table is None:
            text = text_output(compute_totals, every=bool(categories), as_lines=found.expected_images > 1)
            outputs.append(stack.enter_context(text))
        show_progress = stack.enter_context(progress_bar("counting"))
        is_drawn = folder is not None or page is not None
        for image in found.count(chosen, folder=kept, keep_photos=is_drawn, on_progress=show_progress):
            if image.error is not None:
                report(image.error)
            else:
                for write in outputs:
                    write(image)


@contextmanager
def _deleted_in_the_end(folder: Path | None) -> Iterator[None]:
    """Delete the folder from which the command resumes, once every output is written."""
    yield
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _is_file(path: Path | None) -> TypeGuard[Path]:
    """Return whether a path is that of a file, not of a device or a pipe."""
    return path is not None and not is_special(path)


def _check_suffix(option: str, path: Path | None, suffixes: tuple[str, ...]) -> None:
    if _is_file(path) and path.suffix.lower() not in suffixes:
        raise InputError(f"{option} takes a file that ends in {', '.join(suffixes)}; got {path}")


def _echo_notes(found: PathCounter, *, has_estimator: bool) -> None:
    """Say what is skipped, and which counts are not calibrated."""
    if kinds := ", ".join(f"{number} {kind}" for kind, number in found.skipped.most_common() if number):
        echo_line(f"Skipped files: {kinds}", err=True)
    if found.videos:
        echo_line("Counts are of the objects visible in a frame; use a tracker to count how many pass.", err=True)
    if found.has_photos and not found.counter.estimator.is_calibrated:
        echo_line(
            f"Uncalibrated: no estimator was fitted to {found.spec}, so its scores are used as they are. To calibrate "
            f"the counts, label some photos, run 'tallybox fit PHOTOS LABELS.csv --detector {found.spec} --out FILE' "
            "and pass --estimator FILE.",
            err=True,
        )
    if found.files and not has_estimator:
        echo_line(
            f"{found.files[0]}: using the bundled estimator, which was fitted to PicoDet-S at 640 px. For another "
            "detector, run 'tallybox fit DETECTIONS LABELS --out FILE' and pass --estimator FILE.",
            err=True,
        )
