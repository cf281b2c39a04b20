"""Outputs of `tallybox count`: JSON, tables, lines for people, and annotated photos.

Each output is a context manager that gives a function, which writes one image as soon as it is counted.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tallybox.cli.terminal import echo_line, printable
from tallybox.detections.categories import named
from tallybox.detections.writers import write_table
from tallybox.errors import InputError
from tallybox.estimator.estimator import Categories
from tallybox.estimator.prediction import TotalPrediction, marked_interval, most_first
from tallybox.files import import_optional, write_text
from tallybox.photos.counter import PhotoCounter
from tallybox.photos.pipeline import PhotoResult

TABLE_COLUMNS = (
    *("image", "category", "count", "most_probable", "expected", "low", "high"),
    *("saturated", "calibrated"),
)
MAX_STEM = 200  # bytes of a photo's name that its picture keeps; a file name has at most 255


Write = Callable[[PhotoResult], None]
NamedTotals = Callable[[], dict[str, TotalPrediction]]  # called after the last image


def image_dict(image: PhotoResult) -> dict[str, Any]:
    """Return plain values for JSON."""
    counts = {name: prediction.to_dict() for name, prediction in image.counts.items()}
    tiling = {} if image.tiling is None else {"tiles": image.tiling._asdict()}
    seconds = {} if image.seconds is None else {"seconds": image.seconds}
    return {"image": image.name, **seconds, "counts": counts, **tiling}


def json_text(images: Iterable[PhotoResult], sums: Mapping[str, TotalPrediction] | None) -> str:
    """Return one JSON object with the images, and the totals if wanted."""
    totals = {} if sums is None else {"totals": {name: total.to_dict() for name, total in sums.items()}}
    return json.dumps({"images": list(map(image_dict, images)), **totals}) + "\n"


@contextmanager
def json_output(totals: NamedTotals | None) -> Iterator[Write]:
    """Write one object to standard output."""
    images: list[PhotoResult] = []
    yield lambda image: images.append(replace(image, photo=None))
    sys.stdout.write(json_text(images, None if totals is None else totals()))


@contextmanager
def table_output(path: Path, totals: NamedTotals | None) -> Iterator[Write]:
    """Write a table with the columns of `TABLE_COLUMNS`, or JSON, by the file's suffix.

    An image in which nothing is counted has a row without a category. Totals, if wanted, are the last rows, of the
    image "total".
    """
    pandas = import_optional("pandas", needed_for=f"writing {path}", install="'tallybox[detections]'")
    images: list[PhotoResult] = []
    yield lambda image: images.append(replace(image, photo=None))
    sums = None if totals is None else totals()
    if path.suffix.lower() == ".json":
        write_text(path, json_text(images, sums))
    else:
        frame = pandas.DataFrame(_rows(images, sums or {}), columns=list(TABLE_COLUMNS), dtype=object)
        times = {image.name: image.seconds for image in images if image.seconds is not None}
        if times:
            frame.insert(1, "seconds", frame["image"].map(times))
        write_table(frame if path.suffix.lower() != ".parquet" else frame.convert_dtypes(), path)
    in_windows = sum(image.tiling is not None for image in images)
    echo_line(f"Wrote {path}: {len(images)} images{f', {in_windows} in windows' if in_windows else ''}", err=True)


def _rows(images: Iterable[PhotoResult], sums: Mapping[str, TotalPrediction]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table."""
    for image in images:
        if not image.counts:
            yield (image.name, None, 0, *[None] * (len(TABLE_COLUMNS) - 3))
        for category, p in image.counts.items():
            numbers = (p.count, p.most_probable, round(p.expected, 4), p.low, p.high)
            yield (image.name, category, *numbers, str(p.saturated).lower(), str(p.calibrated).lower())
    for category, total in sums.items():
        expected = (round(total.expected), None, round(total.expected, 2))
        yield ("total", category, *expected, total.low, total.high, None, str(total.calibrated).lower())


@contextmanager
def text_output(totals: NamedTotals | None = None, *, every: bool, as_lines: bool = False) -> Iterator[Write]:
    """Print a table for each photo, or ``as_lines``, a line for each image of a file, and a table of totals if wanted.

    With ``every``, categories that count 0 are in the table as well: the user named them.
    """
    console = Console(highlight=False)

    def write(image: PhotoResult) -> None:
        if image.path is not None and not as_lines:
            _print_table(console, image, every)
            return
        listed = [(category, p) for category, p in most_first(image.counts) if p.count > 0 or every]
        parts = [f"{named(str(p), category)} ({marked_interval(p)})" for category, p in listed]
        counted = " · ".join(parts) or "nothing counted"
        sys.stdout.write(printable(f"{image.name}{_windows_used(image)}  {counted}") + "\n")

    yield write
    if totals is not None:
        largest = sorted(totals().items(), key=lambda pair: -pair[1].expected)
        rows = [(category, f"{total.expected:.1f}", total) for category, total in largest]
        console.print(Text("all images together", "bold"))
        console.print(counts_table(("category", "expected total", "90 % interval"), rows))


@contextmanager
def report_output(path: Path, counter: PhotoCounter, categories: Categories) -> Iterator[Write]:
    """Write a page with the totals and every photo, outlined."""
    from tallybox.photos.report import Report

    report, totals = Report(counter), counter.estimator.totals(categories)

    def write(image: PhotoResult) -> None:
        if image.path is not None and image.predictions is not None:
            totals.add(image.predictions)
            report.add(image)

    yield write
    report.write(path, totals.compute())
    echo_line(f"Wrote {path}", err=True)


@contextmanager
def picture_output(
    folder: Path, counter: PhotoCounter, report: Callable[[InputError], None], *, all_boxes: bool = False
) -> Iterator[Write]:
    """Write each photo with its counted objects outlined, as ``NAME_counted.jpg`` in a folder."""
    from tallybox.photos.outlines import save_picture

    folder.mkdir(parents=True, exist_ok=True)
    written: set[str] = set()
    colours: dict[str, str] = {}  # of categories, the same in all pictures

    def write(image: PhotoResult) -> None:
        if image.path is None:
            return
        name = image.path.stem if image.seconds is None else image.path.name
        stem = os.fsencode(name)[:MAX_STEM].decode(errors="ignore")
        name, number = f"{stem}_counted.jpg", 2
        while name in written:  # photos of several folders may share their names
            name, number = f"{stem}_counted-{number}.jpg", number + 1
        try:
            save_picture(counter.draw(image, all_boxes=all_boxes, colours=colours), folder / name)
            written.add(name)
        except InputError as error:
            report(error)

    try:
        yield write
    finally:
        number = len(written)
        echo_line(f"Wrote {number} {'picture' if number == 1 else 'pictures'} to {folder}", err=True)


def _print_table(console: Console, image: PhotoResult, every: bool) -> None:
    size_wh = None if image.detections is None else image.detections.image_size
    size = "" if size_wh is None else f"  {size_wh[0]} x {size_wh[1]}"
    console.print(Text.assemble((printable(image.name), "bold"), (size + _windows_used(image), "dim")), soft_wrap=True)
    counted = {category: p for category, p in image.counts.items() if every or p.count > 0}
    perhaps = {category: p for category, p in image.counts.items() if category not in counted}
    if counted:
        rows = [(category, p, p) for category, p in most_first(counted)]
        console.print(counts_table(("category", "count", "90 % interval"), rows))
    else:
        console.print("  nothing counted")
    if perhaps:
        likely = sorted(perhaps.items(), key=lambda pair: -pair[1].probability_of_any)
        listed = ", ".join(f"{category} ({100 * p.probability_of_any:.0f} %)" for category, p in likely)
        console.print(Text(printable(f"  perhaps also: {listed}"), "dim"), soft_wrap=True)
    console.print()


def _windows_used(image: PhotoResult) -> str:
    return "" if image.tiling is None else f", {image.tiling.windows} windows in {image.tiling.seconds:.1f} s"


def counts_table(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """Return a table for people of names, a number, and the interval of the prediction that ends each row."""
    table = Table(*headers[:-2], box=None, padding=(0, 3, 0, 2), header_style="dim")
    table.add_column(headers[-2], justify="right")
    table.add_column(headers[-1])
    for *cells, prediction in rows:
        table.add_row(*(Text(printable(cell)) for cell in cells), marked_interval(prediction))
    return table
