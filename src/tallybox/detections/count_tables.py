"""Tables of true counts, CSV or Excel.

A long table has a row for each image and category (``image_id,category,count``), a wide one a row for each image and a
column for each category (``image_id,dog,person``). The column of images may also be called ``image``, ``photo``,
``file``, ``file_name`` or ``filename``, so that what `tallybox count --csv` writes can be corrected by hand and read.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

from tallybox.detections.category_names import COCO_CATEGORIES
from tallybox.detections.container import ImageId
from tallybox.detections.labels import TrueCounts
from tallybox.detections.rows import image_key
from tallybox.detections.sheets import read_header, read_rows
from tallybox.detections.tables import read_csv_category_names, row_category_id, whole_number
from tallybox.errors import InputError

MAX_COUNT = 2**31 - 1
IMAGE_COLUMNS = ("image_id", "image", "photo", "file", "file_name", "filename")
LONG_COLUMNS = {"category", "category_id", "count"}
TOTAL = "total"  # the last row that `tallybox count --csv --total` adds


def read_table_counts(
    path: Path, categories: Mapping[int, str] = COCO_CATEGORIES, *, blank_is_zero: bool = False
) -> TrueCounts:
    """Return true counts from a long or a wide table; categories are names of ``categories`` or any ids.

    Labelled are the categories that the table names. In a long one, a category without a row for an image that has
    others counts 0 there; an image without any object needs a row with a count of 0. With a column ``category_id``
    beside it, ``category`` names these ids instead. In a wide one, an empty cell is unknown unless ``blank_is_zero``.
    """
    header = read_header(path)
    image_column = next((name for name in IMAGE_COLUMNS if name in header), IMAGE_COLUMNS[0])
    if header and image_column in header and not LONG_COLUMNS & set(header):
        return _wide(path, header, image_column, categories, blank_is_zero)
    return _long(path, image_column, categories)


def _long(path: Path, image_column: str, categories: Mapping[int, str]) -> TrueCounts:
    counts: dict[ImageId, dict[int, int]] = {}
    names_used = False
    named = read_csv_category_names(path, None)
    categories = named or categories
    for line, image_id, row in _images(path, image_column, (image_column, "category", "count")):
        category = row.get("category_id") or row.get("category")
        of_image = counts.setdefault(image_key(image_id), {})
        if not category and row["count"] == "0" and image_column == "image":  # of a photo in which nothing was counted
            continue
        if not category:
            raise InputError(f"{path}, line {line}: category must be given, but got {list(row.values())}")
        category_id = row_category_id(path, line, category, categories)
        names_used |= bool(named) or isinstance(image_key(category), str)
        if category_id in of_image:
            raise InputError(
                f"{path}, line {line}: image and category must come once, but {image_id},{category} came before"
            )
        of_image[category_id] = whole_number(path, line, "count", row["count"], MAX_COUNT)
    if not counts:
        raise InputError(f"{path} must have a row for each image and category, but it has only a header")
    labelled = frozenset(category_id for of_image in counts.values() for category_id in of_image)
    outside = labelled - categories.keys()
    if names_used and outside:
        raise InputError(
            f"{path}: where categories are named, ids must be among the {len(categories)} known, but got {min(outside)}"
        )
    return TrueCounts(counts, categories=categories if names_used else {}, labelled=labelled)


def _wide(
    path: Path, header: list[str], image_column: str, categories: Mapping[int, str], blank_is_zero: bool
) -> TrueCounts:
    rows = list(_images(path, image_column, (image_column,)))
    columns: dict[str, int] = {}
    for name in header:
        if name == image_column or not name:
            continue
        try:
            category_id = row_category_id(path, 1, name, categories)
        except InputError:
            if all(row[name].isdigit() for _, _, row in rows if row[name]):
                raise
            warnings.warn(f"{path}: column {name!r} holds text and is no category; it is left out", stacklevel=2)
            continue
        if category_id in columns.values():
            raise InputError(
                f"{path}: each category must have one column, but {name!r} comes twice, perhaps as a plural"
            )
        columns[name] = category_id
    if not columns or not rows:
        raise InputError(
            f"{path} must have the columns image_id, category, count, or image_id and one for each category, and a "
            f"row for each image, but got {header} and {len(rows)} rows"
        )
    counts: dict[ImageId, dict[int, int]] = {}
    unknown: set[tuple[ImageId, int]] = set()
    for line, image_id, row in rows:
        key = image_key(image_id)
        if key in counts:
            raise InputError(f"{path}, line {line}: an image must have one row, but {image_id} came before")
        counts[key] = {}
        for name, category_id in columns.items():
            if row[name] or blank_is_zero:
                counts[key][category_id] = whole_number(path, line, name, row[name] or "0", MAX_COUNT)
            else:
                unknown.add((key, category_id))
    named = any(isinstance(image_key(name), str) for name in columns)
    return TrueCounts(
        counts,
        categories=categories if named else {},
        unknown=frozenset(unknown),
        labelled=frozenset(columns.values()),
    )


def _images(path: Path, image_column: str, names: tuple[str, ...]) -> Iterator[tuple[int, str, dict[str, str]]]:
    for line, row in read_rows(path, names):
        if not row[image_column]:
            raise InputError(f"{path}, line {line}: {image_column} must be given, but got {list(row.values())}")
        if not (image_column == "image" and row[image_column] == TOTAL):
            yield line, row[image_column], row
