"""What `tallybox count` writes: JSON, CSV, tables for people, and annotated photos.

Each output is a context manager that gives a function, which writes one image as soon as it is counted.
"""

import csv
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tallybox.cli.terminal import echo_line, printable
from tallybox.detections.detections import ImageId
from tallybox.errors import InputError, TallyboxError
from tallybox.estimator.prediction import CountPrediction
from tallybox.estimator.totals import TotalPrediction
from tallybox.files import atomic_writing
from tallybox.photos.counter import PhotoCounter
from tallybox.photos.pipeline import PhotoResult

CSV_COLUMNS = ("image", "category", "count", "most_probable", "expected", "low", "high", "at_least", "calibrated")
MAX_STEM = 200  # bytes of a photo's name that its picture keeps; a file name has at most 255


Write = Callable[[PhotoResult], None]
NamedTotals = Callable[[], dict[str, TotalPrediction]]  # called after the last image


@contextmanager
def json_output(totals: NamedTotals | None) -> Iterator[Write]:
    """Write one object to standard output, an image at a time so that any number fits, then totals if wanted.

    After a user's mistake nothing is there if it was found before the first image, else a whole object.
    """
    start = '{"images": [\n'

    def write(image: PhotoResult) -> None:
        nonlocal start
        counts = {name: prediction.to_dict() for name, prediction in image.counts.items()}
        tiling = {} if image.tiling is None else {"tiles": image.tiling.to_dict()}
        sys.stdout.write(start + json.dumps({"image": image.name, "counts": counts, **tiling}))
        start = ",\n"

    try:
        yield write
    except TallyboxError:
        if start == ",\n":
            sys.stdout.write("\n]}\n")
        raise
    end = "\n]" if start == ",\n" else '{"images": []'
    if totals is not None:
        end += f', "totals": {json.dumps({name: total.to_dict() for name, total in totals().items()})}'
    sys.stdout.write(end + "}\n")


@contextmanager
def csv_output(
    path: Path, totals: NamedTotals | None, report: Callable[[InputError], None], *, wide: bool = False
) -> Iterator[Write]:
    """Write a table with the columns of `CSV_COLUMNS`, to standard output for ``-``, else to a file, atomically.

    An image in which nothing is counted has a row without a category. With ``wide``, each image has one row, and each
    category one column with its count. Totals, if wanted, are the last rows, of the image "total".
    """
    images: list[tuple[ImageId | None, dict[str, int]]] = []  # of a wide table: its columns are known at the end
    with _csv_rows(path, report) as write_row:

        def write(image: PhotoResult) -> None:
            if wide:
                images.append((image.name, {category: p.count for category, p in image.counts.items()}))
                return
            if not image.counts:
                write_row(image.name, "", 0, *[""] * (len(CSV_COLUMNS) - 3))
            for category, p in image.counts.items():
                numbers = (p.count, p.most_probable, round(p.expected, 4), p.low, p.high, p.at_least)
                write_row(image.name, category, *numbers, str(p.calibrated).lower())

        if not wide:
            write_row(*CSV_COLUMNS)
        yield write
        sums = {} if totals is None else totals()
        if wide:
            categories = sorted({category for _, counts in images for category in counts} | sums.keys())
            write_row("image", *categories)
            for name, counts in images:
                write_row(name, *(counts.get(category, 0) for category in categories))
            if totals is not None:
                expected_sums = {category: round(total.expected) for category, total in sums.items()}
                write_row("total", *(expected_sums.get(category, 0) for category in categories))
            return
        for category, total in sums.items():
            expected, calibrated = round(total.expected, 2), str(total.calibrated).lower()
            write_row("total", category, round(expected), "", expected, total.low, total.high, "", calibrated)


@contextmanager
def _csv_rows(path: Path, report: Callable[[InputError], None]) -> Iterator[Callable[..., None]]:
    """Give a function that writes a row; a file that cannot be written is reported once, and other outputs go on."""
    # A name that is not UTF-8 is written as the bytes that it has.
    options = {"newline": "", "encoding": "utf-8", "errors": "surrogateescape"}
    failures: list[InputError] = []
    if path == Path("-") and (reconfigure := getattr(sys.stdout, "reconfigure", None)):
        reconfigure(errors="surrogateescape")
    try:
        with nullcontext(sys.stdout) if path == Path("-") else atomic_writing(path, "w", **options) as file:
            rows = csv.writer(file, lineterminator="\n")

            def write_row(*row: object) -> None:
                try:
                    if not failures:
                        rows.writerow(row)
                except UnicodeEncodeError:
                    report(InputError(f"{path}: image {row[0]!r} has a name that no file can hold; it is left out"))
                except BrokenPipeError:
                    raise
                except OSError as error:
                    failures.append(InputError(f"{path} must be a file that can be written, but: {error.strerror}"))
                    report(failures[0])

            yield write_row
            if failures:
                raise failures[0]  # so that the file does not take its name
    except InputError as error:
        if error not in failures:
            raise


@contextmanager
def text_output(totals: NamedTotals | None = None, *, every: bool) -> Iterator[Write]:
    """Print a table for each photo, a line for each image of a file of detections, and a table of totals if wanted.

    With ``every``, categories that count 0 are in the table as well: the user named them.
    """
    console = Console(highlight=False)

    def write(image: PhotoResult) -> None:
        if image.path is not None:
            _print_table(console, image, every)
            return
        parts = [f"{p} {category} ({_interval(p)})" for category, p in image.counts.items() if p.high > 0]
        sys.stdout.write(printable(f"{image.name}: {', '.join(parts) or 'nothing'}") + "\n")

    yield write
    if totals is not None:
        largest = sorted(totals().items(), key=lambda pair: -pair[1].expected)
        rows = [(category, f"{total.expected:.1f}", total) for category, total in largest]
        console.print(Text("all images together", "bold"))
        console.print(counts_table(("category", "expected total", "90 % interval"), rows))


@contextmanager
def picture_output(folder: Path, counter: PhotoCounter, report: Callable[[InputError], None]) -> Iterator[Write]:
    """Write each photo with its counted objects outlined, as ``NAME_counted.jpg`` in a folder."""
    from tallybox.photos.outlines import save_picture

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} must be a folder that can be written to, but: {error.strerror}") from error
    written: set[str] = set()

    def write(image: PhotoResult) -> None:
        if image.path is None:
            return
        stem = os.fsencode(image.path.stem)[:MAX_STEM].decode(errors="ignore")
        name, number = f"{stem}_counted.jpg", 2
        while name in written:  # photos of several folders may share their names
            name, number = f"{stem}_counted-{number}.jpg", number + 1
        try:
            save_picture(counter.draw(image), folder / name)
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
    if image.tiling is not None:
        size += f", {image.tiling.windows} windows in {image.tiling.seconds:.1f} s"
    console.print(Text.assemble((printable(image.name), "bold"), (size, "dim")), soft_wrap=True)
    counted = {category: p for category, p in image.counts.items() if every or p.count > 0}
    perhaps = {category: p for category, p in image.counts.items() if category not in counted}
    if counted:
        rows = [(category, p, p) for category, p in sorted(counted.items(), key=lambda pair: -pair[1].count)]
        console.print(counts_table(("category", "count", "90 % interval"), rows))
    else:
        console.print("  nothing counted")
    if perhaps:
        likely = sorted(perhaps.items(), key=lambda pair: -pair[1].probability_of_any)
        listed = ", ".join(f"{category} ({100 * p.probability_of_any:.0f} %)" for category, p in likely)
        console.print(Text(printable(f"  perhaps: {listed}"), "dim"), soft_wrap=True)
    console.print()


def counts_table(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """Return a table for people of names, a number, and the interval of the prediction that ends each row."""
    table = Table(*headers[:-2], box=None, padding=(0, 3, 0, 2), header_style="dim")
    table.add_column(headers[-2], justify="right")
    table.add_column(headers[-1])
    for *cells, prediction in rows:
        table.add_row(*(Text(printable(cell)) for cell in cells), _interval(prediction))
    return table


def _interval(prediction: CountPrediction | TotalPrediction) -> str:
    uncalibrated = "" if prediction.calibrated else ", uncalibrated"
    saturated = ", limit reached" if isinstance(prediction, CountPrediction) and prediction.saturated else ""
    return f"{prediction.low} to {prediction.high}{uncalibrated}{saturated}"
