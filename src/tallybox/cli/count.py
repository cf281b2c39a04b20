"""`tallybox count`: photos and files of detections to lines, JSON, tables, a page and outlined photos."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tallybox.cli import options
from tallybox.cli.terminal import echo_line, printable, progress_bar
from tallybox.detections.categories import named, quantity
from tallybox.detections.writers import write_table
from tallybox.errors import InputError
from tallybox.estimator.prediction import CountPrediction, TotalPrediction, marked_interval, most_first
from tallybox.files import check_writable, import_optional, is_special, write_text
from tallybox.photos.cache import unfinished_folder
from tallybox.photos.counter import PhotoCounter
from tallybox.photos.counting import PathCounter
from tallybox.photos.pipeline import PhotoResult

TABLE_SUFFIXES = (".csv", ".tsv", ".xlsx", ".parquet", ".json")
COLUMNS = ("image", "category", "count", "most_probable", "expected", "low", "high", "saturated", "calibrated")
MAX_STEM = 200  # bytes of a photo's name that its picture keeps; a file name has at most 255

Totals = Mapping[str, TotalPrediction]


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
            echo_line(f"Wrote {quantity(len(pictures.written), 'picture')} to {folder}", err=True)
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
        reason = f"no estimator was fitted to {found.spec}, so its scores are used as they are"
        command = f"tallybox fit PHOTOS LABELS.csv --detector {found.spec} --out FILE"
        echo_line(f"Uncalibrated: {reason}. Label photos, run '{command}' and pass --estimator FILE.", err=True)
    if found.files and not has_estimator:
        bundled = f"{found.files[0]}: using the bundled estimator, which was fitted to PicoDet-S at 640 px."
        command = "tallybox fit DETECTIONS LABELS --out FILE"
        echo_line(f"{bundled} For another detector, run '{command}' and pass --estimator FILE.", err=True)


def json_text(images: Iterable[PhotoResult], totals: Totals | None) -> str:
    """Return one JSON object with the images, and the totals if wanted."""
    sums = {} if totals is None else {"totals": {name: total.to_dict() for name, total in totals.items()}}
    return json.dumps({"images": list(map(_image_dict, images)), **sums}) + "\n"


def _image_dict(image: PhotoResult) -> dict[str, Any]:
    counts = {name: prediction.to_dict() for name, prediction in image.counts.items()}
    tiling = {} if image.tiling is None else {"tiles": image.tiling._asdict()}
    seconds = {} if image.seconds is None else {"seconds": image.seconds}
    return {"image": image.name, **seconds, "counts": counts, **tiling}


def write_counts(images: Sequence[PhotoResult], totals: Totals | None, path: Path) -> None:
    """Write a table, or JSON, by the file's suffix.

    An image in which nothing is counted has a row without a category. Totals, if wanted, are the last rows, of the
    image "total".
    """
    if path.suffix.lower() == ".json":
        write_text(path, json_text(images, totals))
    else:
        pandas = import_optional("pandas", needed_for=f"writing {path}", install="'tallybox[detections]'")
        rows: list[dict[str, Any]] = []
        for image in images:
            of_image = {"image": image.name, "seconds": image.seconds}
            rows += [of_image | _cells(*pair) for pair in image.counts.items()] or [of_image | {"count": 0}]
        for category, total in (totals or {}).items():
            rows.append({"image": "total", "count": round(total.expected), **_cells(category, total)})
        has_times = any(image.seconds is not None for image in images)
        columns = [COLUMNS[0], *(["seconds"] if has_times else []), *COLUMNS[1:]]
        frame = pandas.DataFrame(rows, columns=columns, dtype=object)
        write_table(frame if path.suffix.lower() != ".parquet" else frame.convert_dtypes(), path)
    in_windows = sum(image.tiling is not None for image in images)
    echo_line(f"Wrote {path}: {len(images)} images{f', {in_windows} in windows' if in_windows else ''}", err=True)


def _cells(category: str, prediction: CountPrediction | TotalPrediction) -> dict[str, Any]:
    cells = {"category": category, **prediction.to_dict(), "calibrated": str(prediction.calibrated).lower()}
    if isinstance(prediction, CountPrediction):
        cells["saturated"] = str(prediction.saturated).lower()
    return cells


def print_counts(image: PhotoResult, *, every: bool, as_table: bool) -> None:
    """Print a table of a photo's counts, or a line; with ``every``, also of categories that count 0: they are named."""
    windows = "" if image.tiling is None else f", {image.tiling.windows} windows in {image.tiling.seconds:.1f} s"
    counted = {category: p for category, p in most_first(image.counts) if every or p.count > 0}
    if image.path is None or not as_table:
        parts = [f"{named(str(p), category)} ({marked_interval(p)})" for category, p in counted.items()]
        echo_line(f"{image.name}{windows}  {' · '.join(parts) or 'nothing counted'}")
        return
    console = Console(highlight=False)
    size_wh = None if image.detections is None else image.detections.image_size
    size = "" if size_wh is None else f"  {size_wh[0]} x {size_wh[1]}"
    console.print(Text.assemble((printable(image.name), "bold"), (size + windows, "dim")), soft_wrap=True)
    if counted:
        rows = [(category, str(p), p) for category, p in counted.items()]
        console.print(_counts_table(("category", "count", "90 % interval"), rows))
    else:
        console.print("  nothing counted")
    perhaps = {category: p.probability_of_any for category, p in image.counts.items() if category not in counted}
    if perhaps:
        likely = sorted(perhaps.items(), key=lambda pair: -pair[1])
        listed = ", ".join(f"{category} ({100 * probability:.0f} %)" for category, probability in likely)
        console.print(Text(printable(f"  perhaps also: {listed}"), "dim"), soft_wrap=True)
    console.print()


def print_totals(totals: Totals) -> None:
    """Print a table of totals, the largest first."""
    largest = sorted(totals.items(), key=lambda pair: -pair[1].expected)
    rows = [(category, f"{total.expected:.1f}", total) for category, total in largest]
    console = Console(highlight=False)
    console.print(Text("all images together", "bold"))
    console.print(_counts_table(("category", "expected total", "90 % interval"), rows))


def _counts_table(
    headers: tuple[str, str, str], rows: Iterable[tuple[str, str, CountPrediction | TotalPrediction]]
) -> Table:
    table = Table(headers[0], box=None, padding=(0, 3, 0, 2), header_style="dim")
    table.add_column(headers[1], justify="right")
    table.add_column(headers[2])
    for name, number, prediction in rows:
        table.add_row(Text(printable(name)), number, marked_interval(prediction))
    return table


class Pictures:
    """Writes photos with their counted objects outlined, as ``NAME_counted.jpg`` in a folder."""

    def __init__(self, folder: Path, counter: PhotoCounter, *, all_boxes: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.written: set[Path] = set()
        self._folder, self._counter = folder, counter
        self._options: dict[str, Any] = {"all_boxes": all_boxes, "colours": {}}  # all pictures share their colours

    def save(self, photo: PhotoResult, report: Callable[[InputError], None]) -> None:
        """Write one picture; ``report`` gets the error if another file is in its place."""
        from tallybox.photos.outlines import save_picture

        assert photo.path is not None
        name = photo.path.stem if photo.seconds is None else photo.path.name
        stem = os.fsencode(name)[:MAX_STEM].decode(errors="ignore")
        path, number = self._folder / f"{stem}_counted.jpg", 2
        while path in self.written:  # photos of several folders may share their names
            path, number = self._folder / f"{stem}_counted-{number}.jpg", number + 1
        try:
            save_picture(self._counter.draw(photo, **self._options), path)
            self.written.add(path)
        except InputError as error:
            report(error)
