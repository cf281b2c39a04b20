"""CSV files: counts (``image_id,category,count``) and detections.

Detections have the columns ``image_id``, ``category_id`` or ``category`` (a name), ``x1``, ``y1``, ``x2``, ``y2``,
``score``; ``width`` and ``height`` of the image may follow, any other column is ignored. A row with an image id and
nothing in category and box is an image in which nothing was detected.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from tallybox.detections.category_names import COCO_CATEGORIES, category_id_of
from tallybox.detections.columns import DetectionColumns, Size, image_key
from tallybox.detections.container import Detections, ImageId
from tallybox.detections.labels import TrueCounts
from tallybox.errors import InputError
from tallybox.files import open_text

COORDINATES = ("x1", "y1", "x2", "y2")
ROWS_AT_ONCE = 10_000

Row = list[str]


def read_csv_counts(path: Path, categories: Mapping[int, str] = COCO_CATEGORIES) -> TrueCounts:
    """Return true counts from ``image_id,category,count``; ``category`` is a name of ``categories`` or any id.

    A category that an image's rows leave out counts 0 there; an image without any object needs a row that says 0.
    """
    counts: dict[ImageId, dict[int, int]] = {}
    names_used = False
    with open_text(path) as file:
        header, rows = _table(path, file)
        category_column = "category" if "category" in header else "category_id"
        places = _places(path, header, ("image_id", category_column, "count"))
        for number, row in rows:
            image_id, category, count = (row[place].strip() for place in places)
            if not image_id or not category:
                raise InputError(f"{path}, line {number}: image_id and category must be given, but got {row}")
            category_id = _category_id(path, number, category, categories)
            names_used |= isinstance(image_key(category), str)
            of_image = counts.setdefault(image_key(image_id), {})
            if category_id in of_image:
                raise InputError(
                    f"{path}, line {number}: image and category must come once, but {image_id},{category} came before"
                )
            if not (count.isascii() and count.isdigit()):
                raise InputError(
                    f"{path}, line {number}: count must be a whole number of at least 0, but got {count!r}"
                )
            of_image[category_id] = int(count)
    if not counts:
        raise InputError(f"{path} must have a row for each image and category, but it has only a header")
    outside = {category_id for of_image in counts.values() for category_id in of_image} - categories.keys()
    if names_used and outside:
        raise InputError(
            f"{path}: where categories are named, ids must be among the {len(categories)} known, but got {min(outside)}"
        )
    return TrueCounts(counts, categories=categories if names_used else {})


def read_csv_detections(path: Path, categories: Mapping[int, str] = COCO_CATEGORIES) -> Iterator[Detections]:
    """Yield the detections of each image, in the order in which images first appear."""
    columns = DetectionColumns(path, unit="line")
    with open_text(path) as file:
        header, rows = _table(path, file)
        category_column = "category_id" if "category_id" in header else "category"
        places = _places(path, header, ("image_id", category_column, *COORDINATES, "score"))
        size_places = _places(path, header, ("width", "height")) if "width" in header else ()
        category_ids: dict[str, int] = {}  # the few texts that stand for categories
        while numbered := list(islice(rows, ROWS_AT_ONCE)):
            detected = []
            for number, row in numbered:
                image_id, category = row[places[0]].strip(), row[places[1]]
                if not image_id:
                    raise InputError(f"{path}, line {number}: image_id must be given, but got {row}")
                if size_places:
                    columns.add_image(image_key(image_id), _size(path, number, row, size_places))
                if not any(row[place] for place in places[1:]):
                    columns.add_image(image_key(image_id))
                    continue
                if category not in category_ids:
                    category_ids[category] = _category_id(path, number, category, categories)
                detected.append((number, row))
            if not detected:
                continue
            numbers = _numbers(path, header, detected, places[2:])  # [N, 5]
            columns.add(
                [image_key(row[places[0]].strip()) for _, row in detected],
                np.array([category_ids[row[places[1]]] for _, row in detected], np.int64),
                numbers[:, :4],
                numbers[:, 4],
                [number for number, _ in detected],
            )
    yield from columns.images()


def _table(path: Path, file: TextIO) -> tuple[Row, Iterator[tuple[int, Row]]]:
    """Return the header, and the rows with their line numbers; every row is as long as the header."""
    lines = csv.reader(file)

    def rows() -> Iterator[tuple[int, Row]]:
        try:
            for row in lines:
                if not row:
                    continue
                if len(row) != len(header):
                    raise InputError(
                        f"{path}, line {lines.line_num}: must have the {len(header)} columns of the header, "
                        f"but got {len(row)}; the file may be cut short"
                    )
                yield lines.line_num, row
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(f"{path}, line {lines.line_num}: must be CSV in UTF-8, but it is not: {error}") from None

    try:
        header = [name.strip() for name in next(lines, [])]
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path} must be CSV in UTF-8, but it is not: {error}") from None
    return header, rows()


def _places(path: Path, header: Row, names: Sequence[str]) -> tuple[int, ...]:
    missing = [name for name in names if name not in header]
    if missing:
        raise InputError(f"{path} must have the columns {', '.join(names)}, but {missing[0]} is missing from {header}")
    return tuple(header.index(name) for name in names)


def _category_id(path: Path, number: int, text: str, categories: Mapping[int, str]) -> int:
    key = image_key(text.strip())
    if isinstance(key, int):
        return key
    try:
        return category_id_of(key, categories)
    except InputError as error:
        raise InputError(f"{path}, line {number}: {error}") from None


def _size(path: Path, number: int, row: Row, places: tuple[int, ...]) -> Size | None:
    texts = [row[place].strip() for place in places]
    if not any(texts):
        return None
    if not all(text.isascii() and text.isdigit() and int(text) > 0 for text in texts):
        raise InputError(f"{path}, line {number}: width and height must be whole numbers above 0, but got {texts}")
    return int(texts[0]), int(texts[1])


def _numbers(path: Path, header: Row, rows: list[tuple[int, Row]], places: tuple[int, ...]) -> NDArray[np.float64]:
    try:
        return np.array([[row[place] for place in places] for _, row in rows], np.float64)
    except ValueError:
        for number, row in rows:
            for place in places:
                try:
                    float(row[place])
                except ValueError:
                    raise InputError(
                        f"{path}, line {number}: {header[place]} must be a number, but got {row[place]!r}"
                    ) from None
        raise
