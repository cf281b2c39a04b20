"""Tables: detections in CSV files with the names of their categories, and true counts in CSV or Excel files.

Their columns are listed in docs/reference/file-formats.md. A long table of counts has a row for each image and category
(``image_id,category,count``), a wide one a row for each image and a column for each category (``image_id,dog,person``);
what `tallybox count --csv` writes can be corrected by hand and read.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from reprlib import repr as shortened

from tallybox.detections.category_names import COCO_CATEGORIES, find_category
from tallybox.detections.container import MAX_SIDE, Detections, ImageId, Size
from tallybox.detections.labels import TrueCounts
from tallybox.detections.rows import BOX_AND_SCORE, RowsByImage, image_key, image_size
from tallybox.detections.sheets import Row, read_header, read_rows
from tallybox.errors import InputError

# Unlike Python's, without underscores and digits outside of ASCII.
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+|nan|inf|infinity)(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
MAX_COUNT = 2**31 - 1
IMAGE_COLUMNS = ("image_id", "image", "photo", "file", "file_name", "filename")
LONG_COLUMNS = {"category", "category_id", "count"}
TOTAL = "total"  # the last row that `tallybox count --csv --total` adds


def read_csv_detections(path: Path, categories: Mapping[int, str]) -> Iterator[Detections]:
    """Yield the detections of each image, in the order in which images first appear."""
    found = RowsByImage(path, unit="line")
    category_ids: dict[str, int] = {}  # the few texts that stand for categories
    for row in read_rows(path, ("image_id", "category", *BOX_AND_SCORE)):
        image_id = row.image_id("image_id")
        category = row.get("category_id") or row.get("category", "")
        found.add_image(image_id, _size(row))
        texts = [row[name] for name in BOX_AND_SCORE]
        if not category and not any(texts):
            continue
        if category not in category_ids:
            category_ids[category] = row.category_id(category, categories)
        for name, text in zip(BOX_AND_SCORE, texts, strict=True):
            if not NUMBER.fullmatch(text):
                raise row.error(f"{name} must be a number, but got {shortened(text)}")
        found.add(row.line, image_id, category_ids[category], map(float, texts))
    yield from found.images()


def _size(row: Row) -> Size | None:
    if not (row.get("width") or row.get("height")):
        return None
    width, height = (row.whole_number(name, MAX_SIDE) if row.get(name) else None for name in ("width", "height"))
    return image_size(f"{row.path}, line {row.line}", width, height)


def read_csv_category_names(path: Path, known: Mapping[int, str] | None) -> Mapping[int, str]:
    """Return the names of categories in a CSV by their ids; empty where it has only ids.

    Ids are those of the column ``category_id``. Without it, they are the ids of ``known`` if all names are COCO's or
    those of an estimator; else names of one's own are numbered from 0 in alphabetical order.
    """
    columns = read_header(path)
    if "category" not in columns or (known is None and "category_id" not in columns):
        return {}
    names: dict[int, str] = {}
    own: set[str] = set()
    for row in read_rows(path, ("category",)):
        category, number = row["category"], row.get("category_id")
        if not category or isinstance(image_key(category), int):
            continue
        if not number:
            own.add(category)
            continue
        category_id = row.category_id(number, {})
        if names.setdefault(category_id, category) != category:
            both = f"{names[category_id]!r} and {category!r}"
            raise row.error(f"a category must have one name, but {category_id} is {both}")
    if names or known is None or not own:
        return names
    if known is not COCO_CATEGORIES or all(find_category(name, known) is not None for name in own):
        return known
    return dict(enumerate(sorted(own)))


def read_table_counts(path: Path, categories: Mapping[int, str], *, blank_is_zero: bool) -> TrueCounts:
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
    for image_id, row in _images(path, image_column, "category", "count"):
        category = row.get("category_id") or row.get("category")
        of_image = counts.setdefault(image_id, {})
        if not category and row["count"] == "0" and image_column == "image":  # of a photo in which nothing was counted
            continue
        if not category:
            raise row.error(f"category must be given, but got {list(row.values())}")
        category_id = row.category_id(category, categories)
        names_used |= bool(named) or isinstance(image_key(category), str)
        if category_id in of_image:
            raise row.error(f"image and category must come once, but {image_id},{category} came before")
        of_image[category_id] = row.whole_number("count", MAX_COUNT)
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
    first, rows = Row(path, 1), list(_images(path, image_column))
    columns: dict[str, int] = {}
    for name in header:
        if name == image_column or not name:
            continue
        try:
            category_id = first.category_id(name, categories)
        except InputError:
            if all(row[name].isdigit() for _, row in rows if row[name]):
                raise
            warnings.warn(f"{path}: column {name!r} holds text and is no category; it is left out", stacklevel=2)
            continue
        if category_id in columns.values():
            raise first.error(f"each category must have one column, but {name!r} comes twice, perhaps as a plural")
        columns[name] = category_id
    if not columns or not rows:
        raise InputError(
            f"{path} must have the columns image_id, category, count, or image_id and one for each category, and a "
            f"row for each image, but got {header} and {len(rows)} rows"
        )
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
    named = categories if any(isinstance(image_key(name), str) for name in columns) else {}
    labelled = frozenset(columns.values())
    return TrueCounts(counts, categories=named, unknown=frozenset(unknown), labelled=labelled)


def _images(path: Path, image_column: str, *columns: str) -> Iterator[tuple[ImageId, Row]]:
    """Yield the image and the row of each line but the total; ``columns`` must be there too."""
    for row in read_rows(path, (image_column, *columns)):
        image_id = row.image_id(image_column)
        if not (image_column == "image" and image_id == TOTAL):
            yield image_id, row
