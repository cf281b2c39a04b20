"""What `tallybox count` writes: JSON, CSV, tables for people, and annotated photos."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TextIO

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tallybox.detections.container import Detections
from tallybox.errors import InputError, TallyboxError
from tallybox.estimator.estimator import CountEstimator
from tallybox.estimator.prediction import CountPrediction


class CountedImage(NamedTuple):
    """One image, its counts by category id, and where it lies if it is a photo."""

    detections: Detections
    predictions: dict[int, CountPrediction]
    photo: Path | None = None


class Output:
    """Takes images one by one as they are counted; what it writes is finished when its block ends."""

    def __init__(self, estimator: CountEstimator) -> None:
        self.estimator = estimator

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
        said = {self.estimator.category_name(key): p.to_dict() for key, p in counted.predictions.items()}
        text = json.dumps({"image": counted.detections.image_id, "counts": said})
        sys.stdout.write((",\n" if self.begun else '{"images": [\n') + text)
        self.begun = True

    def finish(self, error: BaseException | None) -> None:
        """Close the object, also when all images failed."""
        if self.begun and (error is None or isinstance(error, TallyboxError)):
            sys.stdout.write("\n]}\n")
        elif error is None:
            sys.stdout.write('{"images": []}\n')


class CsvOutput(Output):
    """A table ``image,category,count,expected,low,high,at_least``; a file is there whole or not at all."""

    def __init__(self, estimator: CountEstimator, path: Path) -> None:
        super().__init__(estimator)
        self.path = None if path == Path("-") else path
        self.unfinished = path.with_name(path.name + ".unfinished")
        self.file: TextIO = sys.stdout
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.file = self.unfinished.open("w", newline="")
        self.rows = csv.writer(self.file, lineterminator="\n")
        self.rows.writerow(("image", "category", "count", "expected", "low", "high", "at_least"))

    def write(self, counted: CountedImage) -> None:
        """Write a row for each category."""
        for key, p in counted.predictions.items():
            name = self.estimator.category_name(key)
            row = (name, p.count, round(p.expected, 4), p.low, p.high, p.at_least)
            self.rows.writerow((counted.detections.image_id, *row))

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

    def __init__(self, estimator: CountEstimator, *, every: bool) -> None:
        super().__init__(estimator)
        self.every = every  # categories that were asked for are shown though there are none
        self.console = Console(highlight=False)

    def write(self, counted: CountedImage) -> None:
        """Print one image."""
        if counted.photo is None:
            sys.stdout.write(f"{counted.detections.image_id}: {self._line(counted.predictions)}\n")
        else:
            self._table(counted)

    def _line(self, predictions: dict[int, CountPrediction]) -> str:
        shown = {key: p for key, p in predictions.items() if p.high > 0}
        said = [f"{p.said} {self.estimator.category_name(key)} ({_interval(p)})" for key, p in shown.items()]
        return ", ".join(said) or "nothing"

    def _table(self, counted: CountedImage) -> None:
        predictions = counted.predictions
        width, height = counted.detections.image_size or (0, 0)
        title = Text.assemble((str(counted.photo), "bold"), (f"  {width} x {height}", "dim"))
        self.console.print(title, soft_wrap=True)
        shown = {key: p for key, p in predictions.items() if self.every or p.count > 0}
        perhaps = {key: p for key, p in predictions.items() if key not in shown and p.high > 0}
        if shown:
            table = Table("category", box=None, padding=(0, 3, 0, 2), header_style="dim")
            table.add_column("count", justify="right")
            table.add_column("90 % interval")
            for key, p in sorted(shown.items(), key=lambda pair: -pair[1].count):
                table.add_row(self.estimator.category_name(key), p.said, _interval(p))
            self.console.print(table)
        else:
            self.console.print("  nothing counted")
        if perhaps:
            said = ", ".join(f"{self.estimator.category_name(key)} ({_interval(p)})" for key, p in perhaps.items())
            self.console.print(Text(f"  perhaps: {said}", "dim"), soft_wrap=True)
        self.console.print()


class PictureOutput(Output):
    """Each photo with its counted objects outlined, as ``NAME_counted.jpg`` in a folder."""

    def __init__(
        self, estimator: CountEstimator, folder: Path, ids: list[int] | None, report: Callable[[InputError], None]
    ) -> None:
        super().__init__(estimator)
        self.folder, self.ids, self.report = folder, ids, report
        self.written: set[str] = set()

    def write(self, counted: CountedImage) -> None:
        """Draw one photo; images of files have none."""
        if counted.photo is None:
            return
        from tallybox.photos.images import read_photo
        from tallybox.photos.outlines import draw_counts, save_picture

        path, image = counted.photo, counted.detections
        explanations = self.estimator.explain(image, self.ids)
        named = {self.estimator.category_name(key): explanation for key, explanation in explanations.items()}
        try:
            save_picture(draw_counts(read_photo(path), image, named), self.folder / self._name(path))
        except InputError as error:
            self.report(error)

    def finish(self, error: BaseException | None) -> None:
        """Say where the pictures are."""
        number = len(self.written)
        click.echo(f"Wrote {number} {'picture' if number == 1 else 'pictures'} to {self.folder}", err=True)

    def _name(self, path: Path) -> str:
        """Return a name that no other photo of this run has: those of several folders may share theirs."""
        name, number = f"{path.stem}_counted.jpg", 2
        while name in self.written:
            name, number = f"{path.stem}_counted-{number}.jpg", number + 1
        self.written.add(name)
        return name


def _interval(p: CountPrediction) -> str:
    return f"{p.low} to {p.high}"
