"""Tables of true counts, in CSV or Excel files.

A long table has a row for each image and category (``image_id,category,count``), a wide one a row for each image and a
column for each category (``image_id,dog,person``). What `tallybox count --csv` writes can be corrected and read.
"""

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

from tallybox.detections.adapters import IMAGE_COLUMNS
from tallybox.detections.category_names import COCO_CATEGORIES, LISTED, find_category
from tallybox.detections.detections import ImageId
from tallybox.detections.labels import TrueCounts
from tallybox.detections.tables import (
    LONG_COLUMNS,
    TableRow,
    is_number,
    read_csv_category_names,
    read_header,
    read_rows,
)
from tallybox.errors import InputError

MAX_COUNT = 2**31 - 1
NAMES_ARE_COCOS = (
    "where detections name no categories, names must be COCO's: add a column category_id to the labels, or names to "
    "the detections"
)
FORMS = "the columns image_id, category, count, or image_id and one for each category"
TOTAL = "total"  # the last row that `tallybox count --csv --total` adds


def read_table_counts(path: Path, categories: Mapping[int, str] | None, *, blank_is_zero: bool) -> TrueCounts:
    """Return true counts from a long or a wide table, whose categories are names of ``categories`` or any ids.

    Without ``categories``, the names are COCO's. The categories that the table names are labelled. In a long table, a
    category without a row for an image that has other rows counts 0 there; an image without any object needs a row with
    a count of 0. With both columns, ``category`` names the ids in ``category_id``. In a wide table, an empty cell is
    unknown unless ``blank_is_zero``.
    """
    header = read_header(path)
    image_column = next((name for name in IMAGE_COLUMNS if name in header), None)
    long_columns = LONG_COLUMNS & set(header)
    is_long = "count" in long_columns and len(long_columns) > 1
    if image_column is None or (long_columns and not is_long):
        raise InputError(
            f"{path} must have {FORMS}, but got {header}; image_id may also be called {', '.join(IMAGE_COLUMNS[1:])}"
        )
    if is_long:
        return _long(path, image_column, categories)
    return _wide(path, header, image_column, categories, blank_is_zero)


def _long(path: Path, image_column: str, categories: Mapping[int, str] | None) -> TrueCounts:
    counts: dict[ImageId, dict[int, int]] = {}
    numbers: set[int] = set()  # in the column of names
    names_used = False
    named = read_csv_category_names(path, None)
    categories = named or categories
    known = COCO_CATEGORIES if categories is None else categories
    for image_id, row in _images(path, image_column, "category", "count"):
        number = row.get("category_id")
        category = number or row.get("category")
        of_image = counts.setdefault(image_id, {})
        if not category and row["count"] and not row.whole_number("count", MAX_COUNT):  # a photo of nothing
            continue
        if not category:
            raise row.error(f"category must be given, but got {list(row.values())}")
        is_id = is_number(category) and (number or find_category(category, known) is None)
        category_id = row.category_id(category, known) if number or is_id else _category_id(row, category, categories)
        names_used |= bool(named) or not is_id
        if is_id and not number:
            numbers.add(category_id)
        if category_id in of_image:
            raise row.error(f"image and category must come once, but {image_id},{category} came before")
        of_image[category_id] = row.whole_number("count", MAX_COUNT)
    if not counts:
        raise InputError(f"{path} must have a row for each image and category, but it has only a header")
    if with_names := numbers & known.keys():
        meaning = f"{min(with_names)} as {known[min(with_names)]!r}"
        warnings.warn(
            f"{path}: numbers in the column category are taken as ids of the detections, {meaning}; class numbers of a "
            "detector are others: write names instead",
            stacklevel=2,
        )
    labelled = frozenset(category_id for of_image in counts.values() for category_id in of_image)
    outside = labelled - known.keys()
    if names_used and outside:
        raise InputError(
            f"{path}: where categories are named, ids must be among the {len(known)} known, but got {min(outside)}"
        )
    return TrueCounts(counts, categories=known if names_used else {}, labelled=labelled)


def _wide(
    path: Path, header: list[str], image_column: str, categories: Mapping[int, str] | None, blank_is_zero: bool
) -> TrueCounts:
    first, rows = TableRow(path, 1), list(_images(path, image_column))
    columns: dict[str, int] = {}
    for name in header:
        if name == image_column or not name:
            continue
        try:
            category_id = _category_id(first, name, categories)
        except InputError as error:
            if any(is_number(row[name]) for _, row in rows):
                remedy = "" if str(error).endswith("?") else f"; rename or remove the column: a table has {FORMS}"
                raise InputError(f"{error}{remedy}") from None
            what = "holds text" if any(row[name] for _, row in rows) else "is empty"
            warnings.warn(f"{path}: column {name!r} {what} and is no category; it is left out", stacklevel=2)
            continue
        if category_id in columns.values():
            raise first.error(f"each category must have one column, but {name!r} comes twice, perhaps as a plural")
        columns[name] = category_id
    if not columns or not rows:
        raise InputError(f"{path} must have {FORMS}, and a row for each image, but got {header} and {len(rows)} rows")
    counts: dict[ImageId, dict[int, int]] = {}
    unknown: set[tuple[ImageId, int]] = set()
    for image_id, row in rows:
        if image_id in counts:
            raise row.error(f"an image must have one row, but {image_id} came before")
        counts[image_id] = {}
        for name, category_id in columns.items():
            if row[name] or blank_is_zero:
                counts[image_id][category_id] = row.whole_number(name, MAX_COUNT) if row[name] else 0
            else:
                unknown.add((image_id, category_id))
    labelled = frozenset(columns.values())
    known = COCO_CATEGORIES if categories is None else categories
    return TrueCounts(counts, categories=known, unknown=frozenset(unknown), labelled=labelled)


def _category_id(row: TableRow, name: str, categories: Mapping[int, str] | None) -> int:
    """Return the id of a category by its name; a number is no name, because class 16 of YOLO is category 18 of COCO."""
    known = COCO_CATEGORIES if categories is None else categories
    if is_number(name) and find_category(name, known) is None:
        raise row.error(
            f"category must be a name, but got {name!r}, and detectors number categories differently; write the name, "
            "or the id that the detections have (COCO's: dog is 18) in a column category_id of a long table"
        )
    return row.category_named(name, known, remedy=LISTED if categories is not None else NAMES_ARE_COCOS)


def _images(path: Path, image_column: str, *columns: str) -> Iterator[tuple[ImageId, TableRow]]:
    """Yield the image id and the row of each line except the total; the table must have ``columns``."""
    for row in read_rows(path, (image_column, *columns)):
        image_id = row.image_id(image_column)
        if not (image_column == "image" and image_id == TOTAL):
            yield image_id, row
