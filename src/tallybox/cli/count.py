"""`tallybox count`: count the objects in photos and in files of detections, image by image."""

import shutil
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from tallybox.cli import options
from tallybox.cli.count_output import Pictures, json_text, print_counts, print_totals, write_counts
from tallybox.cli.terminal import echo_line, progress_bar
from tallybox.errors import InputError
from tallybox.files import check_writable, import_optional, is_special
from tallybox.photos.cache import unfinished_folder
from tallybox.photos.counting import PathCounter
from tallybox.photos.pipeline import PhotoResult

TABLE_SUFFIXES = (".csv", ".tsv", ".xlsx", ".parquet", ".json")


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--category", "categories", multiple=True, metavar="NAME", help="Count these only; may be repeated.")
@options.estimator_option
@options.detector_options
@options.detections_options
@click.option(
    "--tiles", default="auto", metavar="auto|off|N", help="Windows for large photos; N: their smallest side in pixels."
)
@click.option("--every", metavar="TIME", help="Of a video, count a frame every 1s (the default), 500ms, 2min …")
@click.option("--save", "folder", type=options.out_folder, help="Write outlined photos here.")
@click.option("--all-boxes", is_flag=True, help="In --save, also show duplicates and boxes that are not counted.")
@click.option(
    *("--out", "--csv", "table"),
    type=options.file_to_write,
    help="Write a table (.csv, .tsv, .xlsx, .parquet) or .json, and resume it after an interruption.",
)
@click.option(
    "--report", "page", type=options.file_to_write, help="Write a page (.html) with totals and photos, and resume it."
)
@click.option(
    "--total", "with_totals", is_flag=True, help="Also add up all images, with an interval; a sum of counts is too low."
)
@options.json_option
def count(
    paths: tuple[str, ...],
    categories: tuple[str, ...],
    file: Path | None,
    tiles: str,
    folder: Path | None,
    all_boxes: bool,
    table: Path | None,
    page: Path | None,
    with_totals: bool,
    as_json: bool,
    **others: Any,
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
        for option, out, suffixes in (("--out", table, TABLE_SUFFIXES), ("--report", page, (".html", ".htm"))):
            if out is not None and not is_special(out) and out.suffix.lower() not in suffixes:
                raise InputError(f"{option} takes a file that ends in {', '.join(suffixes)}; got {out}")
        found = PathCounter(
            paths,
            estimator=file,
            tiles=int(tiles) if tiles.isdecimal() else tiles,  # type: ignore[arg-type]  # checked
            **others,
        )
        if not found.has_photos and (page is not None or folder is not None):
            raise InputError("--report and --save show photos, but there is none among the paths")
        if with_totals and (found.videos or (found.has_photos and found.files)):
            raise InputError("--total adds up either photos or files of detections, and no videos")
    except InputError as error:
        raise click.UsageError(str(error)) from error
    inputs = [*(source.path for source in found.sources), *([] if file is None else [file])]
    files = [out for out in (table, page) if out is not None]
    for out in files:
        check_writable(out, inputs)
    if table is not None:
        import_optional("pandas", needed_for=f"writing {table}", install="'tallybox[detections]'")
    resumable = [out for out in files if not is_special(out)] if find_spec("pyarrow") else []
    kept = unfinished_folder(resumable[0]) if resumable else None
    images: list[PhotoResult] = []  # for JSON and tables
    with options.reported_failures() as report_failure:
        _echo_notes(found, has_estimator=file is not None)
        totals = found.totals(chosen) if with_totals or page is not None else None
        report = None
        if page is not None:
            from tallybox.photos.report import Report  # needs Pillow

            report = Report(found.counter)
        pictures = None if folder is None else Pictures(folder, found.counter, all_boxes=all_boxes)
        with progress_bar("counting") as show_progress:
            is_drawn = report is not None or pictures is not None
            for image in found.count(chosen, folder=kept, keep_photos=is_drawn, on_progress=show_progress):
                if image.error is not None:
                    report_failure(image.error)
                    continue
                if as_json or table is not None:
                    images.append(replace(image, photo=None))
                else:
                    print_counts(image, every=bool(categories), as_table=found.expected_images == 1)
                if totals is not None and image.predictions is not None and (image.path or not found.has_photos):
                    totals.add(image.predictions)
                if report is not None and image.path is not None:
                    report.add(image)
                if pictures is not None and image.path is not None:
                    pictures.save(image, report_failure)
        sums = {} if totals is None else totals.compute()
        totals_listed = sums if with_totals else None
        if as_json:
            sys.stdout.write(json_text(images, totals_listed))
        elif table is None and with_totals:
            print_totals(sums)
        if pictures is not None:
            number = len(pictures.written)
            echo_line(f"Wrote {number} {'picture' if number == 1 else 'pictures'} to {folder}", err=True)
        if table is not None:
            write_counts(images, totals_listed, table)
        if report is not None and page is not None:
            report.write(page, sums)
            echo_line(f"Wrote {page}", err=True)
        if kept is not None:
            shutil.rmtree(kept, ignore_errors=True)


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
