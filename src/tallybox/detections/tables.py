"""CSV files: counts (``image_id,category,count``) and detections.

Detections have the columns ``image_id``, ``category_id`` or ``category`` (a name), ``x1``, ``y1``, ``x2``, ``y2``,
``score``. With both columns, the one names the ids of the other. ``width`` and ``height`` of the image may follow, any
other column is ignored. A row with an image id and nothing in category and box is an image in which nothing was
detected. The CSV of supervision's ``CSVSink`` is read too, if it has ``class_name`` and a column that names the image
(``image_id``, ``file_name``, ``frame_index`` …).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from reprlib import repr as shortened

from tallybox.detections.adapters import COLUMN_NAMES
from tallybox.detections.category_names import COCO_CATEGORIES, category_id_of, find_category
from tallybox.detections.container import MAX_SIDE, Detections, ImageId, Size
from tallybox.detections.labels import TrueCounts
from tallybox.detections.rows import RowsByImage, image_key, image_size
from tallybox.errors import InputError
from tallybox.files import open_text

BOX_AND_SCORE = ("x1", "y1", "x2", "y2", "score")
MAX_COUNT = 2**31 - 1
MAX_DIGITS = 1000  # of a whole number; Python converts up to 4,300
MAX_LINE = 1 << 20  # characters
# Unlike Python's, without underscores and digits outside of ASCII.
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+|nan|inf|infinity)(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


def read_csv_counts(path: Path, categories: Mapping[int, str] = COCO_CATEGORIES) -> TrueCounts:
    """Return true counts from ``image_id,category,count``; ``category`` is a name of ``categories`` or any id.

    With a column ``category_id`` beside it, ``category`` names these ids instead.

    Labelled are the categories that the file names. One without a row for an image that has others counts 0 there; an
    image without any object needs a row with a count of 0.
    """
    counts: dict[ImageId, dict[int, int]] = {}
    names_used = False
    named = read_csv_category_names(path, None)
    categories = named or categories
    for line, row in _rows(path, ("image_id", "category", "count")):
        image_id, category = row["image_id"], row.get("category_id") or row.get("category")
        if not image_id or not category:
            raise InputError(f"{path}, line {line}: image_id and category must be given, but got {list(row.values())}")
        category_id = _category_id(path, line, category, categories)
        names_used |= bool(named) or isinstance(image_key(category), str)
        of_image = counts.setdefault(image_key(image_id), {})
        if category_id in of_image:
            raise InputError(
                f"{path}, line {line}: image and category must come once, but {image_id},{category} came before"
            )
        of_image[category_id] = _whole_number(path, line, "count", row["count"], MAX_COUNT)
    if not counts:
        raise InputError(f"{path} must have a row for each image and category, but it has only a header")
    labelled = frozenset(category_id for of_image in counts.values() for category_id in of_image)
    outside = labelled - categories.keys()
    if names_used and outside:
        raise InputError(
            f"{path}: where categories are named, ids must be among the {len(categories)} known, but got {min(outside)}"
        )
    return TrueCounts(counts, categories=categories if names_used else {}, labelled=labelled)


def read_csv_detections(path: Path, categories: Mapping[int, str] = COCO_CATEGORIES) -> Iterator[Detections]:
    """Yield the detections of each image, in the order in which images first appear."""
    found = RowsByImage(path, unit="line")
    category_ids: dict[str, int] = {}  # the few texts that stand for categories
    for line, row in _rows(path, ("image_id", "category", *BOX_AND_SCORE)):
        if not row["image_id"]:
            raise InputError(f"{path}, line {line}: image_id must be given, but got {list(row.values())}")
        image_id = image_key(row["image_id"])
        category = row.get("category_id") or row.get("category", "")
        found.add_image(image_id, _size(path, line, row))
        texts = [row[name] for name in BOX_AND_SCORE]
        if not category and not any(texts):
            continue
        if category not in category_ids:
            category_ids[category] = _category_id(path, line, category, categories)
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
    if not {"category", "category_id"} <= (columns := _header(path)) and (known is None or "category" not in columns):
        return {}
    names: dict[int, str] = {}
    own: set[str] = set()
    for line, row in _rows(path, ("category",)):
        category, number = row["category"], row.get("category_id")
        if not category or isinstance(image_key(category), int):
            continue
        if not number:
            own.add(category)
            continue
        category_id = _category_id(path, line, number, {})
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


def _header(path: Path) -> set[str]:
    with open_text(path) as file:
        try:
            return set(_columns(next(csv.reader([file.readline(MAX_LINE)]), [])))
        except (csv.Error, UnicodeDecodeError):  # reported with its line when the rows are read
            return set()


def _columns(header: Sequence[str]) -> list[str]:
    """Return names of columns as they are called here, for the corners, scores and names of supervision's CSV too."""
    names = [name.strip() for name in header]
    if "x_min" not in names:
        return names
    new = [COLUMN_NAMES.get(name, name) for name in names]
    return [name if new.count(changed) > 1 else changed for name, changed in zip(names, new, strict=True)]


def _rows(path: Path, names: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield each row as a dict by column, with its line number; ``names`` are the columns that must be there.

    ``category`` may also be called ``category_id``.
    """
    with open_text(path) as file:
        lines = csv.reader(iter(partial(file.readline, MAX_LINE), ""))  # a longer line is an error, not kept in memory
        try:
            header = _columns(next(lines, []))
            present = {*header, "category"} if "category_id" in header else set(header)
            missing = [name for name in names if name not in present]
            if missing:
                how = "; add class_name, for class_id may be any numbering" if "class_id" in header else ""
                raise InputError(
                    f"{path} must have the columns {', '.join(names)}, but {missing[0]} is missing from {header}{how}"
                )
            for row in lines:
                if row and len(row) != len(header):
                    raise InputError(
                        f"{path}, line {lines.line_num}: must have the {len(header)} columns of the header, "
                        f"but got {len(row)}; the file may be cut short"
                    )
                if row:
                    yield lines.line_num, dict(zip(header, map(str.strip, row), strict=True))
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(f"{path}, line {lines.line_num}: must be CSV in UTF-8, but it is not: {error}") from None


def _category_id(path: Path, line: int, text: str, categories: Mapping[int, str]) -> int:
    key = image_key(text)
    if isinstance(key, int):
        return key
    try:
        return category_id_of(key, categories)
    except InputError as error:
        raise InputError(f"{path}, line {line}: {error}") from None


def _size(path: Path, line: int, row: Mapping[str, str]) -> Size | None:
    width, height = (
        _whole_number(path, line, name, row[name], MAX_SIDE) if row.get(name) else None for name in ("width", "height")
    )
    return image_size(f"{path}, line {line}", width, height) if width or height else None


def _whole_number(path: Path, line: int, name: str, text: str, maximum: int) -> int:
    if not (text.isascii() and text.isdigit()):
        expected = "a whole number of at least 0"
    elif len(text) > MAX_DIGITS or int(text) > maximum:
        expected = f"at most {maximum}"
    else:
        return int(text)
    raise InputError(f"{path}, line {line}: {name} must be {expected}, but got {shortened(text)}")
