"""Tables: data frames to `Detections` and to true counts, whatever their columns are called.

The column names are listed in docs/reference/file-formats.md. The index of a data frame holds the lines or rows of the
file, so that an error can name them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from tallybox.detections.categories import (
    ClassNames,
    categories_of_classes,
    category_id_of,
    is_own,
    names_by_class,
    number_categories,
)
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
from tallybox.detections.labels import TrueCounts, image_key
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
MAX_COUNT = 2**31 - 1
MAX_EXACT = 2**53  # whole numbers up to this are exact in float64


class CategoryColumn(NamedTuple):
    """The column with the category of each row, and what its values mean."""

    column: str
    is_named: bool  # its values are names, not numbers
    ids: Mapping[Any, int] | None  # category ids of its values; None if these are category ids
    names: Mapping[int, str] | None  # of categories, by id

    def ids_of(self, frame: pd.DataFrame, source: str) -> Integers:
        """Return the category id of each row, ``[N]``."""
        values = filled(frame[self.column], source)
        keys = _texts(values) if self.is_named else whole_numbers(values, source).tolist()
        return np.array(keys if self.ids is None else [self.ids[key] for key in keys], np.int64)


class TableLayout(NamedTuple):
    """What the columns of a table of detections are called and mean."""

    columns: Mapping[str, str]  # names in the table, by ours
    box_format: BoxFormat
    categories: CategoryColumn


def known_columns(names: Iterable[Any]) -> dict[str, str]:
    """Return the known columns of a table: our names to its own, in any case and with blanks for underscores.

    >>> known_columns(["File name", "Confidence", "note"])
    {'image_id': 'File name', 'score': 'Confidence'}
    """
    by_key = {str(name).strip().casefold().replace(" ", "_"): name for name in names}
    found = {ours: next((key for key in keys if key in by_key), None) for ours, keys in COLUMN_NAMES.items()}
    return {ours: by_key[key] for ours, key in found.items() if key is not None}


def table_layout(
    frame: pd.DataFrame, source: str, *, box_format: BoxFormat | None = None, category_names: ClassNames = None
) -> TableLayout:
    """Find the columns and the categories of a table; ``frame`` holds all its pairs of category and number."""
    if box_format not in (None, *get_args(BoxFormat)):
        raise InputError(f'Unknown box_format {box_format!r}; use "xyxy", "xywh" or "cxcywh"')
    columns = known_columns(frame.columns)
    if "score" not in columns:
        raise InputError(f"{source}: no column score (or confidence, conf) among {list(frame.columns)}")
    by_key = {str(name).strip().casefold(): name for name in frame.columns}
    named = next((names for names in BOX_COLUMNS if by_key.keys() >= set(names.split())), None)
    if named is None:
        raise InputError(
            f"{source}: no columns of boxes (x1 y1 x2 y2, x y width height or x_center y_center width height) among "
            f"{list(frame.columns)}"
        )
    columns |= {ours: by_key[name] for ours, name in zip(BOX, named.split(), strict=True)}
    if not {"width", "height"} & set(named.split()):  # else they are sizes of boxes
        columns = {f"image_{side}": by_key[side] for side in ("width", "height") if side in by_key} | columns
    categories = category_column(frame, source, columns, category_names)
    return TableLayout(columns, box_format or BOX_COLUMNS[named], categories)


def category_column(
    frame: pd.DataFrame, source: str, columns: Mapping[str, str], category_names: ClassNames = None
) -> CategoryColumn:
    """Find the column of categories: numbers that the caller names, ids, or names.

    What a column holds decides whether it has numbers or names, not what it is called.
    """
    stated = {key: columns[key] for key in ("category_id", "class_id", "category") if key in columns}
    numbered = [key for key, name in stated.items() if not np.isnan(_as_floats(frame[name].dropna())).any()]
    named = next((stated[key] for key in reversed(stated) if key not in numbered), None)
    given = None if category_names is None else names_by_class(category_names)
    if numbered and given is not None:
        column = stated[numbered[0]]
        numbers = sorted(set(whole_numbers(frame[column].dropna(), source).tolist()))
        ids, names = categories_of_classes(numbers, given)
        return CategoryColumn(column, False, dict(zip(numbers, ids, strict=True)), names)
    if numbered and numbered[0] != "class_id":
        column = stated[numbered[0]]
        own_names = None if named is None else _names_of_ids(frame, source, column, named)
        return CategoryColumn(column, False, None, own_names)
    if named is not None:
        texts = dict.fromkeys(_texts(frame[named].dropna()))
        names = number_categories(texts) if given is None else given
        return CategoryColumn(named, True, {name: category_id_of(name, names) for name in texts}, names)
    if numbered:
        raise InputError(
            f"{source}: class numbers without names; add a column class_name, or give the detector's names "
            "(category_names=, --names data.yaml)"
        )
    raise InputError(f"{source}: no column category or category_id among {list(frame.columns)}")


def _names_of_ids(frame: pd.DataFrame, source: str, id_column: str, name_column: str) -> dict[int, str]:
    """Return the names of the ids in a table that has both; an id must have one name."""
    pairs = frame[[id_column, name_column]].dropna().drop_duplicates()
    ids = whole_numbers(pairs[id_column], source).tolist()
    names: dict[int, str] = {}
    for line, category_id, name in zip(pairs.index, ids, _texts(pairs[name_column]), strict=True):
        if names.setdefault(category_id, name) != name:
            raise row_error(source, frame, line, f"category {category_id} is {names[category_id]!r} and {name!r}")
    return names


def _texts(column: pd.Series[Any]) -> list[str]:
    return [str(value).strip() for value in column]


def image_ids_of(frame: pd.DataFrame, column: str, source: str) -> tuple[list[ImageId], NDArray[np.intp]]:
    """Return the images of a table in the order of their first rows, and the index of each row's image ``[N]``."""
    codes, values = filled(frame[column], source).factorize()
    images: dict[ImageId, int] = {}  # "285" and 285 are one image
    numbers = [images.setdefault(image_key(value), len(images)) for value in values.tolist()]
    return list(images), np.array(numbers, np.intp)[codes]


def detections_in_frame(frame: pd.DataFrame, layout: TableLayout, source: str) -> Iterator[Detections]:
    """Check all rows and yield one `Detections` for each image, in the order of their first rows."""
    columns = layout.columns
    if "image_id" not in columns:
        raise InputError(f"{source}: no column image_id among {list(frame.columns)}")
    images, owners = image_ids_of(frame, columns["image_id"], source)
    values = [columns[key] for key in (*BOX, "score")]
    is_detected = frame[[layout.categories.column, *values]].notna().any(axis=1).to_numpy()
    detected = frame[is_detected]
    ids = layout.categories.ids_of(detected, source)
    sizes = _sizes(frame, columns, source, len(images), owners)
    owners = owners[is_detected]  # [N] index of the image of each box
    boxes = _boxes_xyxy(detected, layout, source, sizes[owners])
    scores = numbers(detected[columns["score"]], source).astype(np.float32)
    if problem := first_problem(boxes, scores) or first_outside(boxes, sizes[owners]):
        raise row_error(source, frame, detected.index[problem[0]], problem[1])
    order = np.argsort(owners, kind="stable")
    starts = np.searchsorted(owners[order], np.arange(len(images) + 1))
    for number, image_id in enumerate(images):
        of_image = order[starts[number] : starts[number + 1]]
        yield Detections.of_checked(
            boxes=boxes[of_image],
            scores=scores[of_image].clip(0, 1),
            category_ids=ids[of_image],
            image_size=tuple(sizes[number].tolist()) if sizes[number].all() else None,
            image_id=image_id,
            category_names=layout.categories.names,
        )


def _boxes_xyxy(frame: pd.DataFrame, layout: TableLayout, source: str, sizes: Integers) -> Floats:
    """Return boxes ``[N, 4]`` as x1 y1 x2 y2; ``sizes`` ``[N, 2]`` are those of their images, 0 if not known."""
    boxes = np.column_stack([numbers(frame[layout.columns[side]], source) for side in BOX])
    if layout.box_format == "cxcywh":
        if len(boxes) and sizes.all() and (boxes <= 1).all():  # YOLO's fractions of the image
            boxes = boxes * np.tile(sizes, 2)
        boxes[:, :2] -= boxes[:, 2:] / 2
    if layout.box_format != "xyxy":
        boxes[:, 2:] += boxes[:, :2]
    with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite, which is refused
        return boxes.astype(np.float32)


def _sizes(
    frame: pd.DataFrame, columns: Mapping[str, str], source: str, images: int, owners: NDArray[np.intp]
) -> Integers:
    """Return the sizes of images ``[I, 2]``, the largest that their rows state, 0 if not known."""
    sizes = np.zeros((images, 2), np.int64)
    for index, key in enumerate(("image_width", "image_height")):
        if key in columns:
            is_stated = frame[columns[key]].notna().to_numpy()
            sides = whole_numbers(frame[columns[key]][is_stated], source, low=0, high=MAX_SIDE)
            np.maximum.at(sizes[:, index], owners[is_stated], sides)
    return sizes


def counts_in_frame(frame: pd.DataFrame, source: str) -> TrueCounts:
    """Return true counts from a data frame with a row for each image and category, or with a column for each category.

    A category of the first kind of table counts 0 in an image that has rows of others only. A row without a category
    and with a count of 0 is an image without objects.
    """
    columns = known_columns(frame.columns)
    if "image_id" not in columns:
        raise InputError(f"{source}: no column image_id (or image, photo, file_name …) among {list(frame.columns)}")
    is_long = bool({"category", "category_id", "class_id"} & columns.keys())
    if is_long and "count" not in columns:
        raise InputError(f"{source}: no column count among {list(frame.columns)}")
    if not is_long and len(frame):
        frame = _melted(frame.dropna(axis=1, how="all"), source, columns["image_id"])
        columns = {"image_id": columns["image_id"], "category": "category", "count": "count"}
    if not len(frame):
        raise InputError(f"{source}: no counts")
    images, owners = image_ids_of(frame, columns["image_id"], source)
    categories, stated = category_column(frame, source, columns), frame[columns["count"]]
    is_named, is_counted = frame[categories.column].notna().to_numpy(), stated.notna().to_numpy()
    ids, numbers = np.full(len(frame), -1), np.full(len(frame), -1)
    ids[is_named] = categories.ids_of(frame[is_named], source)
    numbers[is_counted] = whole_numbers(stated[is_counted], source, low=0, high=MAX_COUNT)
    counts: dict[ImageId, dict[int, int]] = {image_id: {} for image_id in images}
    unknown: set[tuple[ImageId, int]] = set()
    rows = zip(frame.index, owners.tolist(), ids.tolist(), numbers.tolist(), is_named.tolist(), strict=True)
    for line, owner, category_id, number, has_category in rows:
        image_id = images[owner]
        if not has_category:
            if number != 0:
                raise row_error(source, frame, line, "category is missing")
        elif number < 0:
            unknown.add((image_id, category_id))
        elif category_id in counts[image_id]:
            raise row_error(source, frame, line, f"image {image_id!r} has two counts of category {category_id}")
        else:
            counts[image_id][category_id] = number
    return TrueCounts(
        counts,
        categories=categories.names or {},
        unknown=frozenset(unknown),
        labelled=frozenset(ids[is_named].tolist()),
        ids_are_arbitrary=categories.is_named and is_own(categories.names or {}),
    )


def _melted(frame: pd.DataFrame, source: str, image_column: str) -> pd.DataFrame:
    """Turn a table with a column for each category into one with a row for each image and category."""
    for name in frame.columns.drop(image_column):
        if str(name).isdecimal():
            raise InputError(f"{source}: column {name!r} is a number; name the category")
        whole_numbers(frame[name].dropna(), source, low=0, high=MAX_COUNT)
    long = frame.melt(image_column, var_name="category", value_name="count", ignore_index=False)
    return long.rename_axis(frame.index.name)


def filled(column: pd.Series[Any], source: str) -> pd.Series[Any]:
    """Return a column that has a value in each row; the error for a missing one names the line."""
    if column.isna().any():
        raise row_error(source, column, column.index[column.isna()][0], f"{column.name} is missing")
    return column


def numbers(column: pd.Series[Any], source: str) -> NDArray[np.float64]:
    """Return a column of numbers; the error for anything else names the line."""
    values = _as_floats(filled(column, source))
    if np.isnan(values).any():
        index = int(np.argmax(np.isnan(values)))
        text = repr(column.iloc[index])[:50]
        raise row_error(source, column, column.index[index], f"{column.name} {text} is not a number")
    return values


def whole_numbers(column: pd.Series[Any], source: str, *, low: int = -MAX_EXACT, high: int = MAX_EXACT) -> Integers:
    """Return a column of whole numbers within bounds."""
    values = numbers(column, source)
    is_wrong = (values != np.floor(values)) | (values < low) | (values > high)
    if is_wrong.any():
        index = int(np.argmax(is_wrong))
        message = f"{column.name} {values[index]:g} is not a whole number from {low} to {high}"
        raise row_error(source, column, column.index[index], message)
    return values.astype(np.int64)


def _as_floats(column: pd.Series[Any]) -> NDArray[np.float64]:
    """Return a column as numbers, NaN for anything else and infinity for numbers beyond float64."""
    import pandas as pd

    try:
        found = pd.to_numeric(column, errors="coerce")
    except OverflowError:  # whole numbers of more than 308 digits
        found = pd.to_numeric(column.astype(str), errors="coerce")
    values: NDArray[np.float64] = found.to_numpy(np.float64)
    return values


def row_error(source: str, frame: pd.DataFrame | pd.Series[Any], label: Any, problem: str) -> InputError:
    """Return an error that names the line of a file, or the row of a data frame."""
    return InputError(f"{source}, {frame.index.name or 'row'} {label}: {problem}")


def detections_of_frame(
    frame: pd.DataFrame,
    box_format: BoxFormat | None,
    class_names: ClassNames,
    image_size: Size | None = None,
    image_id: ImageId | None = None,
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
        raise InputError(f"These rows are of several images ({ids}); pass those of frame.groupby({own_column!r})")
    image = images[0] if images else Detections.empty(image_id, image_size)
    stated_id = image.image_id if image_id is None and own_column is not None else image_id
    return replace(image, image_id=stated_id, category_names=layout.categories.names)
