"""CSV files: counts (``image_id,category,count``) and detections.

Detections have the columns ``image_id``, ``category_id`` or ``category`` (a name), ``x1``, ``y1``, ``x2``, ``y2``,
``score``; ``width`` and ``height`` of the image may follow, any other column is ignored. A row with an image id and
nothing in category and box is an image in which nothing was detected.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from tallybox.detections.category_names import COCO_CATEGORIES, category_id_of
from tallybox.detections.container import MAX_SIDE, Detections, ImageId
from tallybox.detections.labels import TrueCounts
from tallybox.detections.rows import RowsByImage, image_key, image_size
from tallybox.errors import InputError
from tallybox.files import open_text

COORDINATES = ("x1", "y1", "x2", "y2")
ROWS_AT_ONCE = 10_000
MAX_COUNT = 2**31 - 1
MAX_DIGITS = 1000  # of a whole number; Python converts up to 4,300
MAX_SHOWN = 40  # characters of a wrong cell
NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+|nan|inf|infinity)(?:e[+-]?\d+)?\s*", re.ASCII | re.IGNORECASE)

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
        columns = _columns(path, header, ("image_id", category_column, "count"))
        for number, row in rows:
            image_id, category, count = (row[column].strip() for column in columns)
            if not image_id or not category:
                raise InputError(f"{path}, line {number}: image_id and category must be given, but got {row}")
            category_id = _category_id(path, number, category, categories)
            names_used |= isinstance(image_key(category), str)
            of_image = counts.setdefault(image_key(image_id), {})
            if category_id in of_image:
                raise InputError(
                    f"{path}, line {number}: image and category must come once, but {image_id},{category} came before"
                )
            of_image[category_id] = _whole_number(path, number, "count", count, MAX_COUNT)
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
    found = RowsByImage(path, unit="line")
    with open_text(path) as file:
        header, rows = _table(path, file)
        category_name = "category_id" if "category_id" in header else "category"
        id_column, category_column, *numeric = _columns(
            path, header, ("image_id", category_name, *COORDINATES, "score")
        )
        size_columns = _columns(path, header, ("width", "height")) if "width" in header else ()
        category_ids: dict[str, int] = {}  # the few texts that stand for categories
        while numbered := list(islice(rows, ROWS_AT_ONCE)):
            detected = []
            for number, row in numbered:
                if not (image_id := row[id_column].strip()):
                    raise InputError(f"{path}, line {number}: image_id must be given, but got {row}")
                if size_columns:
                    sides = (_side(path, number, header[column], row[column]) for column in size_columns)
                    found.add_image(image_key(image_id), image_size(f"{path}, line {number}", *sides))
                category = row[category_column]
                if not category and not any(row[column] for column in numeric):
                    found.add_image(image_key(image_id))
                    continue
                if category not in category_ids:
                    category_ids[category] = _category_id(path, number, category, categories)
                detected.append((number, row))
            if not detected:
                continue
            numbers = _numbers(path, header, detected, numeric)  # [N, 5]
            found.add(
                [image_key(row[id_column].strip()) for _, row in detected],
                np.array([category_ids[row[category_column]] for _, row in detected], np.int64),
                numbers[:, :4],
                numbers[:, 4],
                [number for number, _ in detected],
            )
    yield from found.images()


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


def _columns(path: Path, header: Row, names: Sequence[str]) -> tuple[int, ...]:
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


def _whole_number(path: Path, number: int, name: str, text: str, maximum: int) -> int:
    if not (text.isascii() and text.isdigit()):
        expected = "a whole number of at least 0"
    elif len(text) > MAX_DIGITS or int(text) > maximum:
        expected = f"at most {maximum}"
    else:
        return int(text)
    raise InputError(f"{path}, line {number}: {name} must be {expected}, but got {_shortened(text)}")


def _side(path: Path, number: int, name: str, text: str) -> int | None:
    text = text.strip()
    return _whole_number(path, number, name, text, MAX_SIDE) if text else None


def _numbers(path: Path, header: Row, rows: list[tuple[int, Row]], columns: Sequence[int]) -> NDArray[np.float64]:
    """Return the numbers of some columns, ``[N, C]``; unlike Python, "2_0" is none, nor are digits outside of ASCII."""
    texts = [[row[column] for column in columns] for _, row in rows]
    joined = "".join(map("".join, texts))
    try:
        if "_" not in joined and joined.isascii():
            return np.array(texts, np.float64)
    except ValueError:
        pass
    for (number, row), of_row in zip(rows, texts, strict=True):
        for column, text in zip(columns, of_row, strict=True):
            if not NUMBER.fullmatch(text):
                raise InputError(
                    f"{path}, line {number}: {header[column]} must be a number, but got {_shortened(row[column])}"
                )
    return np.array(texts, np.float64)


def _shortened(text: str) -> str:
    """Return a text in quotes, its beginning where it is long."""
    return repr(text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…")
