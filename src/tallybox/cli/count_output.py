"""What `tallybox count` writes: JSON, CSV, tables for people, and annotated photos."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TextIO

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tallybox.detections.container import Detections, ImageId
from tallybox.errors import InputError, TallyboxError
from tallybox.estimator.estimator import CountEstimator
from tallybox.estimator.prediction import CountPrediction, ImagePredictions

CSV_COLUMNS = ("image", "category", "count", "most_probable", "expected", "low", "high", "at_least", "calibrated")


class CountedImage(NamedTuple):
    """One image and its counts; where it lies and what was detected if it is a photo."""

    image_id: ImageId | None
    predictions: ImagePredictions
    photo: Path | None = None
    detections: Detections | None = None


class Output:
    """Takes images one by one as they are counted; what it writes is finished when its block ends."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish(error)

    def write(self, counted: CountedImage) -> None:
        """Take one image."""
        raise NotImplementedError

    def finish(self, error: BaseException | None) -> None:
        """End what was written; ``error`` is why it ends early."""


class JsonOutput(Output):
    """One object, written an image at a time so that any number fits.

    A user's mistake that is found before the first image leaves nothing, a later one a whole object.
    """

    begun = False

    def write(self, counted: CountedImage) -> None:
        """Write one image."""
        counts = {name: prediction.to_dict() for name, prediction in counted.predictions.by_name().items()}
        text = json.dumps({"image": counted.image_id, "counts": counts})
        sys.stdout.write((",\n" if self.begun else '{"images": [\n') + text)
        self.begun = True

    def finish(self, error: BaseException | None) -> None:
        """Close the object, also when all images failed."""
        if self.begun and (error is None or isinstance(error, TallyboxError)):
            sys.stdout.write("\n]}\n")
        elif error is None:
            sys.stdout.write('{"images": []}\n')


class CsvOutput(Output):
    """A table with the columns of `CSV_COLUMNS`; a file is there whole or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = None if path == Path("-") else path
        self.unfinished = path.with_name(path.name + ".unfinished")
        self.file: TextIO = sys.stdout
        if self.path is not None:
            with _writing(self.path):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                # A name that is not UTF-8 is written as the bytes that it has.
                self.file = self.unfinished.open("w", newline="", encoding="utf-8", errors="surrogateescape")
        self.rows = csv.writer(self.file, lineterminator="\n")
        self.rows.writerow(CSV_COLUMNS)

    def write(self, counted: CountedImage) -> None:
        """Write a row for each category."""
        for name, p in counted.predictions.by_name().items():
            row = (name, p.count, p.most_probable, round(p.expected, 4), p.low, p.high, p.at_least)
            self.rows.writerow((counted.image_id, *row, "true" if p.calibrated else "false"))

    def finish(self, error: BaseException | None) -> None:
        """Put the file in its place."""
        if self.path is None:
            return
        self.file.close()
        if error is None:
            self.unfinished.replace(self.path)
        else:
            self.unfinished.unlink()


class TextOutput(Output):
    """A table for each photo, a line for each image of a file of detections."""

    def __init__(self, *, every: bool) -> None:
        self.every = every  # categories that were asked for are shown though there are none
        self.console = Console(highlight=False)

    def write(self, counted: CountedImage) -> None:
        """Print one image."""
        predictions = counted.predictions.by_name()
        if counted.photo is None:
            sys.stdout.write(f"{counted.image_id}: {_line(predictions)}\n")
        else:
            size_wh = None if counted.detections is None else counted.detections.image_size
            self._table(counted.photo, size_wh, predictions)

    def _table(self, photo: Path, size_wh: tuple[int, int] | None, predictions: dict[str, CountPrediction]) -> None:
        size = "" if size_wh is None else f"  {size_wh[0]} x {size_wh[1]}"
        self.console.print(Text.assemble((str(photo), "bold"), (size, "dim")), soft_wrap=True)
        shown = {name: p for name, p in predictions.items() if self.every or p.count > 0}
        perhaps = {name: p for name, p in predictions.items() if name not in shown}
        if shown:
            calibrated = all(p.calibrated for p in shown.values())
            table = Table("category", box=None, padding=(0, 3, 0, 2), header_style="dim")
            table.add_column("count", justify="right")
            table.add_column("90 % interval" if calibrated else "interval (uncalibrated)")
            for name, p in sorted(shown.items(), key=lambda pair: -pair[1].count):
                table.add_row(name, str(p), _interval(p))
            self.console.print(table)
        else:
            self.console.print("  nothing counted")
        if perhaps:
            likely = sorted(perhaps.items(), key=lambda pair: -pair[1].probability_of_any)
            listed = ", ".join(f"{name} ({100 * p.probability_of_any:.0f} %)" for name, p in likely)
            self.console.print(Text(f"  perhaps: {listed}", "dim"), soft_wrap=True)
        self.console.print()


class PictureOutput(Output):
    """Each photo with its counted objects outlined, as ``NAME_counted.jpg`` in a folder."""

    def __init__(self, folder: Path, estimator: CountEstimator, report: Callable[[InputError], None]) -> None:
        self.folder, self.estimator, self.report = folder, estimator, report
        with _writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self.written: set[str] = set()

    def write(self, counted: CountedImage) -> None:
        """Draw one photo; images of files have none."""
        if counted.photo is None or counted.detections is None:
            return
        from tallybox.photos.images import read_photo
        from tallybox.photos.outlines import draw_counts, save_picture

        explanations = self.estimator.explain(counted.detections, predictions=counted.predictions)
        named = {self.estimator.category_name(key): explanation for key, explanation in explanations.items()}
        try:
            picture = draw_counts(read_photo(counted.photo), counted.detections, named)
            save_picture(picture, self.folder / self._name(counted.photo))
        except InputError as error:
            self.report(error)

    def finish(self, error: BaseException | None) -> None:
        """Name the folder of the pictures."""
        number = len(self.written)
        click.echo(f"Wrote {number} {'picture' if number == 1 else 'pictures'} to {self.folder}", err=True)

    def _name(self, path: Path) -> str:
        """Return a name that no other photo of this run has: those of several folders may share theirs."""
        name, number = f"{path.stem}_counted.jpg", 2
        while name in self.written:
            name, number = f"{path.stem}_counted-{number}.jpg", number + 1
        self.written.add(name)
        return name


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Name a path that cannot be written, before anything is counted."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path} must be a place that can be written to, but: {error.strerror}") from error


def _line(predictions: dict[str, CountPrediction]) -> str:
    counted = [f"{p} {name} ({_interval(p)})" for name, p in predictions.items() if p.high > 0]
    return ", ".join(counted) or "nothing"


def _interval(p: CountPrediction) -> str:
    return f"{p.low} to {p.high}"
