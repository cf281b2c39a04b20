"""Tables: data frames to `Detections` and to true counts, whatever their columns are called.

The column names are listed in docs/reference/file-formats.md. The index of a data frame holds the lines or rows of the
file, so that an error can name them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from tallybox.detections.categories import ClassNames, categories_of_classes, category_id_of, number_categories
from tallybox.detections.detections import MAX_SIDE, BoxFormat, Detections, ImageId, Integers, first_problem
from tallybox.detections.labels import TrueCounts, image_key
from tallybox.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

# Columns, and the names that other tools have for them; the first that a table has is taken.
COLUMN_NAMES = {
    "image_id": ("image_id", "image", "photo", "file", "file_name", "filename", "image_name", "frame_index", "frame"),
    "category_id": ("category_id",),
    "class_id": ("class_id", "class", "cls"),
    "category": ("category", "class_name", "name"),
    "score": ("score", "confidence", "conf"),
    "image_width": ("image_width", "width"),
    "image_height": ("image_height", "height"),
    "count": ("count",),
}
CATEGORY_COLUMNS = ("category_id", "class_id", "category")
BOX_COLUMNS: dict[str, BoxFormat] = {
    "x1 y1 x2 y2": "xyxy",
    "xmin ymin xmax ymax": "xyxy",
    "x_min y_min x_max y_max": "xyxy",
    "left top right bottom": "xyxy",
    "x y width height": "xywh",
    "x y w h": "xywh",
    "left top width height": "xywh",
    "x_center y_center width height": "cxcywh",
    "xcenter ycenter width height": "cxcywh",
    "cx cy w h": "cxcywh",
}
MAX_COUNT = 2**31 - 1
MAX_EXACT = 2**53  # whole numbers up to this are exact in float64


def detections_in_frame(
    frame: pd.DataFrame, source: str, *, box_format: BoxFormat | None = None, category_names: ClassNames = None
) -> Iterator[Detections]:
    """Check all rows and yield one `Detections` for each image, in the order of their first rows."""
    if box_format not in (None, *get_args(BoxFormat)):
        raise InputError(f'Unknown box_format {box_format!r}; use "xyxy", "xywh" or "cxcywh"')
    by_key = _by_key(frame)
    named = next((names for names in BOX_COLUMNS if by_key.keys() >= set(names.split())), None)
    if named is None:
        usual = "x1 y1 x2 y2, x y width height or x_center y_center width height"
        raise InputError(f"{source}: no columns of boxes ({usual}) among {list(frame.columns)}")
    sides = frame[[by_key[name] for name in named.split()]]
    table = _under_our_names(frame.drop(columns=sides.columns), source, "image_id", "score")
    images, owners = _image_ids(table["image_id"], source)
    sizes = _sizes(table, source, owners, len(images))
    stated = table.reindex(columns=[*CATEGORY_COLUMNS, "score"])
    is_detected = (stated.notna().any(axis=1) | sides.notna().any(axis=1)).to_numpy()
    table, sides, owners = table[is_detected], sides[is_detected], owners[is_detected]
    ids, names, _ = _categories(table, source, category_names)
    stated_boxes = np.column_stack([numbers(sides[name], source) for name in sides])
    boxes = _corners(stated_boxes, box_format or BOX_COLUMNS[named], sizes[owners])
    scores = numbers(table["score"], source).astype(np.float32)
    if problem := first_problem(boxes, scores, sizes[owners]):
        raise _row_error(source, table, *problem)
    ends = np.bincount(owners, minlength=len(images)).cumsum()
    rows_of_images = np.split(np.argsort(owners, kind="stable"), ends)  # the last one is of no image
    for image_id, size, rows in zip(images, sizes.tolist(), rows_of_images, strict=False):
        yield Detections.of_checked(
            boxes=boxes[rows],
            scores=scores[rows].clip(0, 1),
            category_ids=ids[rows],
            image_size=tuple(size) if all(size) else None,
            image_id=image_id,
            category_names=names or frame.attrs.get("categories") or None,
        )


def counts_in_frame(frame: pd.DataFrame, source: str) -> TrueCounts:
    """Return true counts from a data frame with a row for each image and category, or with a column for each category.

    A category of the first kind of table counts 0 in an image that has rows of others only. A row without a category
    and with a count of 0 is an image without objects.
    """
    table = _under_our_names(frame, source, "image_id")
    if not any(name in table for name in CATEGORY_COLUMNS):
        table = _melted(frame, source)
    elif "count" not in table:
        raise InputError(f"{source}: no column count among {list(frame.columns)}")
    if not len(table):
        raise InputError(f"{source}: no counts")
    images, owners = _image_ids(table["image_id"], source)
    has_category = table.reindex(columns=CATEGORY_COLUMNS).notna().any(axis=1).to_numpy()
    is_wrong = ~has_category & (_as_floats(table["count"]) != 0)
    if is_wrong.any():
        raise _row_error(source, table, int(is_wrong.argmax()), "category is missing")
    table, owners = table[has_category], owners[has_category]
    ids, names, are_stated = _categories(table, source, None)
    is_counted = table["count"].notna().to_numpy()
    counted = np.full(len(table), -1)
    counted[is_counted] = whole_numbers(table["count"][is_counted], source, 0, MAX_COUNT)
    counts: dict[ImageId, dict[int, int]] = {image_id: {} for image_id in images}
    unknown: set[tuple[ImageId, int]] = set()
    for row, (owner, category_id, number) in enumerate(zip(owners, ids.tolist(), counted.tolist(), strict=True)):
        image_id = images[owner]
        if number < 0:
            unknown.add((image_id, category_id))
        elif category_id in counts[image_id]:
            raise _row_error(source, table, row, f"image {image_id!r} has two counts of category {category_id}")
        else:
            counts[image_id][category_id] = number
    labelled, not_counted = frozenset(ids.tolist()), frozenset(unknown)
    return TrueCounts(
        counts, categories=names, unknown=not_counted, labelled=labelled, ids_are_arbitrary=not are_stated
    )


def known_columns(frame: pd.DataFrame) -> dict[str, Any]:
    """Return our names of the columns that a table has and its own, in any case and with blanks for underscores."""
    by_key = _by_key(frame)
    found = {ours: [by_key[key] for key in keys if key in by_key] for ours, keys in COLUMN_NAMES.items()}
    return {ours: names[0] for ours, names in found.items() if names}


def _by_key(frame: pd.DataFrame) -> dict[str, Any]:
    return {str(name).strip().casefold().replace(" ", "_"): name for name in frame.columns}


def _under_our_names(frame: pd.DataFrame, source: str, *needed: str) -> pd.DataFrame:
    """Return the known columns of a table."""
    names = known_columns(frame)
    for ours in needed:
        if ours not in names:
            others = ", ".join(COLUMN_NAMES[ours][1:3])
            raise InputError(f"{source}: no column {ours} (or {others} …) among {list(frame.columns)}")
    return frame[list(names.values())].set_axis(list(names), axis=1)


def _melted(frame: pd.DataFrame, source: str) -> pd.DataFrame:
    """Turn a table with a column for each category into one with a row for each image and category."""
    image_column = known_columns(frame)["image_id"]
    categories = frame.drop(columns=image_column).dropna(axis=1, how="all").columns
    for name in categories:
        if str(name).isdecimal():
            raise InputError(f"{source}: column {name!r} is a number; name the category")
        whole_numbers(frame[name].dropna(), source, 0, MAX_COUNT)
    long = frame[[image_column, *categories]].melt(
        image_column, var_name="category", value_name="count", ignore_index=False
    )
    return long.rename(columns={image_column: "image_id"}).rename_axis(frame.index.name)


def _image_ids(column: pd.Series[Any], source: str) -> tuple[list[ImageId], NDArray[np.intp]]:
    """Return the images of a table in the order of their first rows, and the index of each row's image ``[N]``."""
    codes, values = _filled(column, source).factorize()
    images: dict[ImageId, int] = {}  # "285" and 285 are one image
    numbers = [images.setdefault(image_key(value), len(images)) for value in values.tolist()]
    return list(images), np.array(numbers, np.intp)[codes]


def _categories(table: pd.DataFrame, source: str, given: ClassNames) -> tuple[Integers, Mapping[int, str], bool]:
    """Return the category id of each row ``[N]``, the known names of ids, and whether the table states the ids.

    What a column holds decides whether it has numbers or names, not what it is called. Numbers that the caller names
    come first, then ids, then names.
    """
    stated = [name for name in CATEGORY_COLUMNS if name in table]
    numbered = [name for name in stated if not np.isnan(_as_floats(table[name].dropna())).any()]
    named = next((name for name in reversed(stated) if name not in numbered), None)
    if numbered and given is not None:
        ids, names = categories_of_classes(whole_numbers(table[numbered[0]], source).tolist(), given)
        return np.array(ids, np.int64), names, True
    if numbered and numbered[0] != "class_id":
        category_ids = whole_numbers(table[numbered[0]], source)
        return category_ids, {} if named is None else _names_of_ids(table, source, category_ids, named), True
    if named is not None:
        texts = _texts(_filled(table[named], source))
        names = number_categories(texts, given)
        id_of = {text: category_id_of(text, names) for text in dict.fromkeys(texts)}
        return np.array([id_of[text] for text in texts], np.int64), names, False
    if numbered:
        remedy = "add a column class_name, or give the detector's names (category_names=, --names data.yaml)"
        raise InputError(f"{source}: class numbers without names; {remedy}")
    raise InputError(f"{source}: no column category or category_id")


def _names_of_ids(table: pd.DataFrame, source: str, ids: Integers, named: str) -> dict[int, str]:
    """Return the names of the ids ``[N]`` in a table that has both; an id must have one name."""
    pairs = table.assign(category_id=ids)[["category_id", named]].dropna().drop_duplicates()
    names: dict[int, str] = {}
    for row, (category_id, name) in enumerate(zip(pairs["category_id"].tolist(), _texts(pairs[named]), strict=True)):
        if names.setdefault(category_id, name) != name:
            raise _row_error(source, pairs, row, f"category {category_id} is {names[category_id]!r} and {name!r}")
    return names


def _texts(column: pd.Series[Any]) -> list[str]:
    return [str(value).strip() for value in column]


def _corners(boxes: NDArray[np.float64], box_format: BoxFormat, sizes: Integers) -> NDArray[np.float32]:
    """Return boxes ``[N, 4]`` as x1 y1 x2 y2; ``sizes`` ``[N, 2]`` are those of their images, 0 if not known."""
    if box_format == "cxcywh":
        if len(boxes) and sizes.all() and (boxes <= 1).all():  # YOLO's fractions of the image
            boxes = boxes * np.tile(sizes, 2)
        boxes[:, :2] -= boxes[:, 2:] / 2
    if box_format != "xyxy":
        boxes[:, 2:] += boxes[:, :2]
    with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite, which is refused
        return boxes.astype(np.float32)


def _sizes(table: pd.DataFrame, source: str, owners: NDArray[np.intp], images: int) -> Integers:
    """Return the sizes of images ``[I, 2]``, the largest that their rows state, 0 if not known."""
    sizes = np.zeros((images, 2), np.int64)
    for index, name in enumerate(("image_width", "image_height")):
        if name in table:
            is_stated = table[name].notna().to_numpy()
            sides = whole_numbers(table[name][is_stated], source, 0, MAX_SIDE)
            np.maximum.at(sizes[:, index], owners[is_stated], sides)
    return sizes


def _filled(column: pd.Series[Any], source: str) -> pd.Series[Any]:
    """Return a column that has a value in each row; the error for a missing one names the line."""
    is_missing = column.isna().to_numpy()
    if is_missing.any():
        raise _row_error(source, column, int(is_missing.argmax()), f"{column.name} is missing")
    return column


def numbers(column: pd.Series[Any], source: str, whole: tuple[int, int] | None = None) -> NDArray[np.float64]:
    """Return a column of numbers, or of ``whole`` ones within bounds; the error for anything else names the line."""
    values = _as_floats(_filled(column, source))
    is_wrong, expected = np.isnan(values), "a number"
    if whole is not None:
        is_wrong |= (values != np.floor(values)) | (values < whole[0]) | (values > whole[1])
        expected = f"a whole number from {whole[0]} to {whole[1]}"
    if is_wrong.any():
        row = int(is_wrong.argmax())
        raise _row_error(source, column, row, f"{column.name} {repr(column.iloc[row])[:50]} is not {expected}")
    return values


def whole_numbers(column: pd.Series[Any], source: str, low: int = -MAX_EXACT, high: int = MAX_EXACT) -> Integers:
    """Return a column of whole numbers within bounds."""
    return numbers(column, source, whole=(low, high)).astype(np.int64)


def _as_floats(column: pd.Series[Any]) -> NDArray[np.float64]:
    """Return a column as numbers, NaN for anything else and infinity for numbers beyond float64."""
    import pandas as pd

    try:
        found = pd.to_numeric(column, errors="coerce")
    except OverflowError:  # whole numbers of more than 308 digits
        found = pd.to_numeric(column.astype(str), errors="coerce")
    values: NDArray[np.float64] = found.to_numpy(np.float64)
    return values


def _row_error(source: str, table: pd.DataFrame | pd.Series[Any], row: int, problem: str) -> InputError:
    """Return an error that names the line of a file, or the row of a data frame."""
    return InputError(f"{source}, {table.index.name or 'row'} {table.index[row]}: {problem}")
