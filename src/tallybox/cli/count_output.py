"""Outputs of `tallybox count`: JSON, tables, lines for people, and outlined photos."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tallybox.cli.terminal import echo_line, printable
from tallybox.detections.categories import named
from tallybox.detections.writers import write_table
from tallybox.errors import InputError
from tallybox.estimator.prediction import CountPrediction, TotalPrediction, marked_interval, most_first
from tallybox.files import import_optional, write_text
from tallybox.photos.counter import PhotoCounter
from tallybox.photos.pipeline import PhotoResult

COLUMNS = ("image", "category", "count", "most_probable", "expected", "low", "high", "saturated", "calibrated")
MAX_STEM = 200  # bytes of a photo's name that its picture keeps; a file name has at most 255

Totals = Mapping[str, TotalPrediction]


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
