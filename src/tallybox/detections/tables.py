"""CSV files of detections, and the names of categories in them.

Detections have the columns ``image_id``, ``category_id`` or ``category`` (a name), ``x1``, ``y1``, ``x2``, ``y2``,
``score``. With both columns, the one names the ids of the other. ``width`` and ``height`` of the image may follow, any
other column is ignored. A row with an image id and nothing in category and box is an image in which nothing was
detected. The CSV of supervision's ``CSVSink`` is read too, if it has ``class_name`` and a column that names the image
(``image_id``, ``file_name``, ``frame_index`` …).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from reprlib import repr as shortened

from tallybox.detections.category_names import COCO_CATEGORIES, category_id_of, find_category
from tallybox.detections.container import MAX_SIDE, Detections, Size
from tallybox.detections.rows import RowsByImage, image_key, image_size
from tallybox.detections.sheets import read_header, read_rows
from tallybox.errors import InputError

BOX_AND_SCORE = ("x1", "y1", "x2", "y2", "score")
MAX_DIGITS = 1000  # of a whole number; Python converts up to 4,300
# Unlike Python's, without underscores and digits outside of ASCII.
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+|nan|inf|infinity)(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


def read_csv_detections(path: Path, categories: Mapping[int, str] = COCO_CATEGORIES) -> Iterator[Detections]:
    """Yield the detections of each image, in the order in which images first appear."""
    found = RowsByImage(path, unit="line")
    category_ids: dict[str, int] = {}  # the few texts that stand for categories
    for line, row in read_rows(path, ("image_id", "category", *BOX_AND_SCORE)):
        if not row["image_id"]:
            raise InputError(f"{path}, line {line}: image_id must be given, but got {list(row.values())}")
        image_id = image_key(row["image_id"])
        category = row.get("category_id") or row.get("category", "")
        found.add_image(image_id, _size(path, line, row))
        texts = [row[name] for name in BOX_AND_SCORE]
        if not category and not any(texts):
            continue
        if category not in category_ids:
            category_ids[category] = row_category_id(path, line, category, categories)
        for name, text in zip(BOX_AND_SCORE, texts, strict=True):
            if not NUMBER.fullmatch(text):
                raise InputError(f"{path}, line {line}: {name} must be a number, but got {shortened(text)}")
        found.add(line, image_id, category_ids[category], map(float, texts))
    yield from found.images()


def read_csv_category_names(path: Path, known: Mapping[int, str] | None = COCO_CATEGORIES) -> Mapping[int, str]:
    """Return the names of categories in a CSV by their ids; empty where it has only ids.

    Ids are those of the column ``category_id``. Without it, they are the ids of ``known`` if all names are COCO's or
    those of an estimator; else names of one's own are numbered from 0 in alphabetical order.
    """
    if not {"category", "category_id"} <= (columns := set(read_header(path))) and (
        known is None or "category" not in columns
    ):
        return {}
    names: dict[int, str] = {}
    own: set[str] = set()
    for line, row in read_rows(path, ("category",)):
        category, number = row["category"], row.get("category_id")
        if not category or isinstance(image_key(category), int):
            continue
        if not number:
            own.add(category)
            continue
        category_id = row_category_id(path, line, number, {})
        if names.setdefault(category_id, category) != category:
            raise InputError(
                f"{path}, line {line}: a category must have one name, but {category_id} is {names[category_id]!r} and "
                f"{category!r}"
            )
    if names or known is None or not own:
        return names
    if known is not COCO_CATEGORIES or all(find_category(name, known) is not None for name in own):
        return known
    return dict(enumerate(sorted(own)))


def row_category_id(path: Path, line: int, text: str, categories: Mapping[int, str]) -> int:
    """Return the id of a category that a table names by its name or its id."""
    key = image_key(text)
    if isinstance(key, int):
        return key
    try:
        return category_id_of(key, categories)
    except InputError as error:
        raise InputError(f"{path}, line {line}: {error}") from None


def _size(path: Path, line: int, row: Mapping[str, str]) -> Size | None:
    width, height = (
        whole_number(path, line, name, row[name], MAX_SIDE) if row.get(name) else None for name in ("width", "height")
    )
    return image_size(f"{path}, line {line}", width, height) if width or height else None


def whole_number(path: Path, line: int, name: str, text: str, maximum: int) -> int:
    """Return a number of a table, which must be written in ASCII digits."""
    if not (text.isascii() and text.isdigit()):
        expected = "a whole number of at least 0"
    elif len(text) > MAX_DIGITS or int(text) > maximum:
        expected = f"at most {maximum}"
    else:
        return int(text)
    raise InputError(f"{path}, line {line}: {name} must be {expected}, but got {shortened(text)}")
