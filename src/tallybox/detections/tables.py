"""Tables of detections: a data frame to `Detections`, whatever its columns are called.

The column names are listed in docs/reference/file-formats.md. The index of a data frame holds the lines or rows of the
file, so that an error can name them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from tallybox.detections.adapters import ClassNames, categories_of_numbers, names_by_class
from tallybox.detections.categories import category_id_of, number_categories
from tallybox.detections.detections import (
    MAX_SIDE,
    BoxFormat,
    Detections,
    Floats,
    ImageId,
    Integers,
    Size,
    first_outside,
    first_problem,
)
from tallybox.detections.labels import image_key
from tallybox.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

# Columns, and the names that other tools have for them; the first that a table has is taken.
COLUMN_NAMES = {
    "image_id": ("image_id", "image", "photo", "file", "file_name", "filename", "image_name", "frame_index", "frame"),
    "category_id": ("category_id",),
    "category": ("category", "class_name", "name"),
    "class_id": ("class_id", "class", "cls"),
    "score": ("score", "confidence", "conf"),
    "image_width": ("image_width",),
    "image_height": ("image_height",),
    "count": ("count",),
}
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
BOX = ("box0", "box1", "box2", "box3")  # the four columns of boxes, whatever they mean
MAX_EXACT = 2**53  # whole numbers up to this are exact in float64


class TableLayout(NamedTuple):
    """What the columns of a table of detections are called and mean."""

    columns: Mapping[str, str]  # names in the table, by ours
    box_format: BoxFormat
    category_ids: Mapping[str, int]  # of names; empty if the table has numbers
    class_ids: Mapping[int, int]  # category ids of class numbers; empty if the numbers are category ids
    category_names: Mapping[int, str] | None


def known_columns(names: Iterable[Any]) -> dict[str, str]:
    """Return the known columns of a table: our names to its own, in any case and with blanks for underscores.

    >>> known_columns(["File name", "Confidence", "note"])
    {'image_id': 'File name', 'score': 'Confidence'}
    """
    by_key = {str(name).strip().casefold().replace(" ", "_"): name for name in names}
    found = {ours: next((key for key in keys if key in by_key), None) for ours, keys in COLUMN_NAMES.items()}
    return {ours: by_key[key] for ours, key in found.items() if key is not None}


def table_layout(
    frame: pd.DataFrame,
    source: str,
    *,
    box_format: BoxFormat | None = None,
    category_names: ClassNames = None,
) -> TableLayout:
    """Find the columns and the categories of a table; ``frame`` holds all its pairs of category and number."""
    if box_format not in (None, *get_args(BoxFormat)):
        raise InputError(f'box_format is "xyxy", "xywh" or "cxcywh", but got {box_format!r}')
    columns = known_columns(frame.columns)
    if "score" not in columns:
        raise InputError(f"{source}: no column score (or confidence, conf) among {list(frame.columns)}")
    by_key = {str(name).strip().casefold(): name for name in frame.columns}
    named = next((names for names in BOX_COLUMNS if by_key.keys() >= set(names.split())), None)
    if named is not None:
        columns |= {ours: by_key[name] for ours, name in zip(BOX, named.split(), strict=True)}
        box_format = box_format or BOX_COLUMNS[named]
        if not {"width", "height"} & set(named.split()):  # else they are sizes of boxes
            sides = {f"image_{side}": by_key[side] for side in ("width", "height") if side in by_key}
            columns = sides | columns
    elif "bbox" not in by_key:
        raise InputError(
            f"{source}: no columns of boxes (x1 y1 x2 y2, x y width height or x_center y_center width height) among "
            f"{list(frame.columns)}"
        )
    elif box_format is None:
        raise InputError(f'{source}: a column bbox needs box_format="xyxy", "xywh" or "cxcywh" (--box-format)')
    else:
        columns["bbox"] = by_key["bbox"]
    return _with_categories(frame, source, columns, box_format, category_names)


def _with_categories(
    frame: pd.DataFrame,
    source: str,
    columns: dict[str, str],
    box_format: BoxFormat,
    category_names: ClassNames,
) -> TableLayout:
    """Find out what the categories are called: by names in the table, or by names that the caller gives."""
    columns = category_columns(frame, columns)
    given = None if category_names is None else names_by_class(category_names)
    number_column = columns.get("category_id", columns.get("class_id"))
    if number_column is not None and given is not None:
        numbers = sorted(set(whole_numbers(frame[number_column].dropna(), source, number_column).tolist()))
        ids, names = categories_of_numbers(numbers, given)
        layout = {key: name for key, name in columns.items() if key != "category"} | {"category_id": number_column}
        return TableLayout(layout, box_format, {}, dict(zip(numbers, ids.tolist(), strict=True)), names)
    if "category_id" in columns:
        names = names_of_ids(frame, source, columns) if "category" in columns else None
        return TableLayout(columns, box_format, {}, {}, names)
    if "category" in columns:
        stated = [str(name) for name in frame[columns["category"]].dropna().unique()]
        names = number_categories(stated) if given is None else given
        ids_of_names = {name: category_id_of(name, names) for name in stated}
        return TableLayout(columns, box_format, ids_of_names, {}, names)
    if "class_id" in columns:
        raise InputError(
            f"{source}: class numbers without names; add a column class_name, or give the detector's names "
            "(category_names=, --names data.yaml)"
        )
    raise InputError(f"{source}: no column category or category_id among {list(frame.columns)}")


def category_columns(frame: pd.DataFrame, columns: Mapping[str, str]) -> dict[str, str]:
    """Return the columns with numbers under ``category`` as ``category_id`` and with text ids as ``category``."""
    chosen = dict(columns)
    if "category" in chosen and "category_id" not in chosen and _holds_numbers(frame[chosen["category"]]):
        chosen["category_id"] = chosen.pop("category")
    for key in ("category_id", "class_id"):
        if key in chosen and not _holds_numbers(frame[chosen[key]]):
            name = chosen.pop(key)
            chosen.setdefault("category", name)
    return chosen


def _holds_numbers(column: pd.Series[Any]) -> bool:
    return not np.isnan(_as_floats(column.dropna())).any()


def _as_floats(column: pd.Series[Any]) -> NDArray[np.float64]:
    """Return a column as numbers, NaN for anything else and infinity for numbers beyond float64."""
    import pandas as pd

    try:
        found = pd.to_numeric(column, errors="coerce")
    except OverflowError:  # whole numbers of more than 308 digits
        found = pd.to_numeric(column.astype(str), errors="coerce")
    values: NDArray[np.float64] = found.to_numpy(np.float64)
    return values


def names_of_ids(frame: pd.DataFrame, source: str, columns: Mapping[str, str]) -> dict[int, str]:
    """Return the names of the ids in a table that has both; an id must have one name."""
    pairs = frame[[columns["category_id"], columns["category"]]].dropna().drop_duplicates()
    ids = whole_numbers(pairs[columns["category_id"]], source, "category_id").tolist()
    names: dict[int, str] = {}
    for line, category_id, name in zip(pairs.index, ids, pairs[columns["category"]].astype(str), strict=True):
        if names.setdefault(category_id, name) != name:
            raise row_error(source, frame, line, f"category {category_id} is {names[category_id]!r} and {name!r}")
    return names


def image_ids_of(frame: pd.DataFrame, column: str, source: str) -> tuple[list[ImageId], NDArray[np.intp]]:
    """Return the images of a table in the order of their first rows, and the index of each row's image ``[N]``."""
    if frame[column].isna().any():
        raise row_error(source, frame, frame.index[frame[column].isna()][0], f"{column} is missing")
    codes, values = frame[column].factorize()
    images: dict[ImageId, int] = {}  # "285" and 285 are one image
    numbers = [images.setdefault(image_key(value), len(images)) for value in values.tolist()]
    return list(images), np.array(numbers, np.intp)[codes]


def detections_in_frame(frame: pd.DataFrame, layout: TableLayout, source: str) -> Iterator[Detections]:
    """Check all rows and yield one `Detections` for each image, in the order of their first rows."""
    columns = layout.columns
    if "image_id" not in columns:
        raise InputError(f"{source}: no column image_id among {list(frame.columns)}")
    images, owners = image_ids_of(frame, columns["image_id"], source)
    values = [columns[key] for key in (*BOX, "bbox", "score") if key in columns]
    category = columns["category"] if layout.category_ids else columns["category_id"]
    is_detected = frame[[category, *values]].notna().any(axis=1).to_numpy()
    detected = frame[is_detected]
    for name in (category, *values):
        if detected[name].isna().any():
            line = detected.index[detected[name].isna()][0]
            raise row_error(source, frame, line, f"{name} is missing")
    if layout.category_ids:
        ids = np.array([layout.category_ids[str(name)] for name in detected[category]], np.int64)
    else:
        ids = whole_numbers(detected[category], source, category)
        ids = np.array([layout.class_ids[key] for key in ids.tolist()], np.int64) if layout.class_ids else ids
    sizes, row_sizes = _sizes(frame, columns, source, images, owners)
    row_sizes = row_sizes[is_detected]
    boxes = _boxes_xyxy(detected, layout, source, row_sizes)
    scores = numbers(detected[columns["score"]], source, columns["score"]).astype(np.float32)
    if problem := first_problem(boxes, scores) or first_outside(boxes, row_sizes):
        raise row_error(source, frame, detected.index[problem[0]], problem[1])
    scores = scores.clip(0, 1)
    owners = owners[is_detected]  # [N] index of the image of each box
    order = np.argsort(owners, kind="stable")
    starts = np.searchsorted(owners[order], np.arange(len(images) + 1))
    for number, image_id in enumerate(images):
        of_image = order[starts[number] : starts[number + 1]]
        width, height = sizes[number].tolist()
        size = (width, height) if width else None
        yield Detections.of_checked(
            boxes[of_image], scores[of_image], ids[of_image], size, image_id, layout.category_names
        )


def _boxes_xyxy(frame: pd.DataFrame, layout: TableLayout, source: str, sizes: Integers) -> Floats:
    """Return boxes ``[N, 4]`` as x1 y1 x2 y2; ``sizes`` ``[N, 2]`` are those of their images, 0 if not known."""
    columns = layout.columns
    if "bbox" in columns:
        try:
            boxes = np.array(frame[columns["bbox"]].tolist(), np.float64).reshape(len(frame), 4)
        except (TypeError, ValueError) as error:
            raise InputError(f"{source}: bbox must be four numbers each: {error}") from None
    else:
        boxes = np.column_stack([numbers(frame[columns[side]], source, columns[side]) for side in BOX])
    if layout.box_format == "cxcywh":
        if len(boxes) and sizes.all() and (boxes <= 1).all():  # YOLO's fractions of the image
            boxes = boxes * np.tile(sizes, 2)
        boxes[:, :2] -= boxes[:, 2:] / 2
    if layout.box_format != "xyxy":
        boxes[:, 2:] += boxes[:, :2]
    with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite, which is refused
        return boxes.astype(np.float32)


def _sizes(
    frame: pd.DataFrame, columns: Mapping[str, str], source: str, images: list[ImageId], owners: NDArray[np.intp]
) -> tuple[Integers, Integers]:
    """Return the sizes of images ``[I, 2]`` and of the images of rows ``[N, 2]``, 0 if not known."""
    rows = np.zeros((len(frame), 2), np.int64)
    for index, key in enumerate(("image_width", "image_height")):
        if key in columns:
            rows[:, index] = whole_numbers(frame[columns[key]].fillna(0), source, columns[key], maximum=MAX_SIDE)
    sizes = np.zeros((len(images), 2), np.int64)
    np.maximum.at(sizes, owners, rows)
    is_wrong = (rows != sizes[owners]).any(1) & rows.any(1) | ((rows == 0).any(1) & rows.any(1))
    if is_wrong.any():
        index = int(np.argmax(is_wrong))
        message = f"image {images[owners[index]]!r} has two sizes, or a width without a height"
        raise row_error(source, frame, frame.index[index], message)
    return sizes, sizes[owners]


def numbers(column: pd.Series[Any], source: str, name: str) -> NDArray[np.float64]:
    """Return a column of numbers; the error for anything else names the line."""
    values = _as_floats(column)
    if np.isnan(values).any():
        index = int(np.argmax(np.isnan(values)))
        text = repr(column.iloc[index])[:50]
        raise row_error(source, column, column.index[index], f"{name} {text} is not a number")
    return values


def whole_numbers(column: pd.Series[Any], source: str, name: str, *, maximum: int | None = None) -> Integers:
    """Return a column of whole numbers, from 0 to ``maximum`` if that is given."""
    values = numbers(column, source, name)
    low, high = (-MAX_EXACT, MAX_EXACT) if maximum is None else (0, maximum)
    is_wrong = (values != np.floor(values)) | (values < low) | (values > high)
    if is_wrong.any():
        index = int(np.argmax(is_wrong))
        expected = "a whole number" if maximum is None else f"a whole number from 0 to {maximum}"
        message = f"{name} {values[index]:g} is not {expected}"
        raise row_error(source, column, column.index[index], message)
    return values.astype(np.int64)


def row_error(source: str, frame: pd.DataFrame | pd.Series[Any], label: Any, problem: str) -> InputError:
    """Return an error that names the line of a file, or the row of a data frame."""
    return InputError(f"{source}, {frame.index.name or 'row'} {label}: {problem}")


def detections_of_frame(
    frame: pd.DataFrame,
    box_format: BoxFormat | None,
    image_size: Size | None,
    image_id: ImageId | None,
    class_names: ClassNames,
) -> Detections:
    """Return the detections of one image from a data frame of the caller's, as `Detections.from_dataframe` does."""
    source = "data frame"
    own_column = known_columns(frame.columns).get("image_id")
    if own_column is None or image_id is not None:
        frame = frame.assign(image_id=0 if image_id is None else image_id)
    if image_size is not None:
        frame = frame.assign(image_width=image_size[0], image_height=image_size[1])
    layout = table_layout(frame, source, box_format=box_format, category_names=class_names)
    images = list(detections_in_frame(frame, layout, source))
    if len(images) > 1:
        ids = [image.image_id for image in images[:3]]
        raise InputError(f"Expected the rows of one image, but got {ids}; pass those of frame.groupby({own_column!r})")
    image = images[0] if images else Detections.empty(image_id, image_size)
    stated_id = image.image_id if image_id is None and own_column is not None else image_id
    return replace(image, image_id=stated_id, category_names=layout.category_names)
