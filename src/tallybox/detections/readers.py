"""Readers: any table as a data frame; detections, true counts and category names from files, by their suffix."""

from __future__ import annotations

import collections
import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from tallybox.detections.adapters import ClassNames
from tallybox.detections.categories import category_id_of, number_categories
from tallybox.detections.detections import BoxFormat, Detections, ImageId
from tallybox.detections.labels import TrueCounts, is_own
from tallybox.detections.tables import (
    TableLayout,
    category_columns,
    detections_in_frame,
    image_ids_of,
    known_columns,
    names_of_ids,
    row_error,
    table_layout,
    whole_numbers,
)
from tallybox.errors import InputError
from tallybox.files import error_summary, import_optional, open_regular, open_text, suffix_without_gz

if TYPE_CHECKING:
    import pandas as pd

MAX_COUNT = 2**31 - 1
MAX_UNPACKED = 1 << 28  # bytes of an Excel file; a file of some kilobytes can claim any size
MAX_LINE = 1 << 20  # characters of a header
ROWS_PER_BATCH = 1 << 16  # of Parquet that are held in memory at a time
CATEGORIES_KEY = b"tallybox.categories"  # in the metadata of a Parquet file: names as JSON, by id


def read_table(path: str | Path) -> pd.DataFrame:
    r"""Return a table (.csv, .tsv, .xlsx or .parquet) as a data frame; ``.csv`` and ``.tsv`` may be gzipped.

    Columns of ids and categories of a CSV are texts, others are as pandas infers them. The index holds lines of the
    file, or rows of a Parquet file. Two columns of one name are refused.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "counts.csv"
    ...     _ = file.write_text("image_id;dog\n007;3\n")
    ...     read_table(file).to_dict("list")
    {'image_id': ['007'], 'dog': [3]}
    """
    path = Path(path)
    pandas = _import("pandas", path)
    suffix = suffix_without_gz(path)
    if suffix in (".csv", ".tsv"):
        return _read_csv(path, pandas)
    if suffix == ".xlsx":
        return _read_excel(path, pandas)
    if suffix == ".parquet":
        with open_parquet(path) as file:
            frame: pd.DataFrame = file.read().to_pandas()
        return frame.rename_axis("row")
    raise InputError(f"{path}: not a table; expected .csv, .tsv, .xlsx or .parquet")


def _read_csv(path: Path, pandas: Any) -> pd.DataFrame:
    try:
        with open_text(path) as text:
            lines = text.readline(MAX_LINE), text.readline(MAX_LINE)
            separator = max(",;\t", key=lines[0].count)  # Excel writes semicolons where numbers have a decimal comma
            header, *first = list(csv.reader(lines, delimiter=separator)) or [[]]
            _check_header(path, header)
            if first and len(first[0]) > len(header):  # pandas would take the first column for an index
                raise InputError(f"{path}, line 2: {len(first[0])} cells, but the header has {len(header)}")
            text.seek(0)
            image_column = known_columns(header).get("image_id", "")
            options = {"keep_default_na": False, "na_values": [""], "skip_blank_lines": False, "low_memory": False}
            frame: pd.DataFrame = pandas.read_csv(text, sep=separator, dtype={image_column: str}, **options)
    except UnicodeDecodeError:
        raise InputError(f'{path}: not UTF-8; in Excel, save it as "CSV UTF-8"') from None
    except (pandas.errors.ParserError, csv.Error, OverflowError) as error:
        if row := re.search(r"EOF inside string starting at row (\d+)", str(error)):
            raise InputError(f"{path}, line {int(row[1]) + 1}: a quotation mark is not closed") from None
        raise InputError(f"{path}: not a valid table: {error_summary(error)}") from None
    frame = _tidy(frame)
    for name in frame.columns[[not pandas.api.types.is_numeric_dtype(kind) for kind in frame.dtypes]]:
        has_break = frame[name].astype(str).str.contains("\n", regex=False)
        if has_break.any():
            line = has_break.index[has_break.argmax()]
            raise row_error(str(path), frame, line, f"{name} contains a line break; is a quotation mark not closed?")
    return frame


def _read_excel(path: Path, pandas: Any) -> pd.DataFrame:
    """Read the first sheet; a cell far away in a sheet costs neither time nor memory, unlike in pandas."""
    openpyxl = _import("openpyxl", path)
    rows: list[Sequence[Any]] = []
    with open_regular(path) as file:
        try:
            if sum(entry.file_size for entry in ZipFile(file).infolist()) > MAX_UNPACKED:
                raise InputError(f"{path}: unpacks to more than {MAX_UNPACKED >> 20} MB; save it as CSV")
            file.seek(0)
            sheet = openpyxl.load_workbook(file, read_only=True, data_only=True).worksheets[0]
            sheet.reset_dimensions()
            for row in sheet.iter_rows(values_only=True):
                cells = row[: 1 + max((index for index, value in enumerate(row) if value is not None), default=-1)]
                if rows and len(cells) > len(rows[0]):
                    raise InputError(f"{path}, line {len(rows) + 1}: more cells than the header has")
                rows.append(cells)
        except InputError:
            raise
        except Exception as error:  # for a damaged file, openpyxl raises errors of any type
            reason = "" if isinstance(error, BadZipFile) else f": {error_summary(error)}"
            raise InputError(f"{path}: not a valid .xlsx file{reason}") from None
    header, *cells_by_row = rows or [()]
    named = {index: str(name) for index, name in enumerate(header) if name is not None}
    _check_header(path, list(named.values()))
    full = [[row[index] if index < len(row) else None for index in named] for row in cells_by_row if row]
    lines = [number for number, row in enumerate(cells_by_row) if row]
    return _tidy(pandas.DataFrame(full, index=lines, columns=list(named.values())))


def _tidy(frame: pd.DataFrame) -> pd.DataFrame:
    """Name columns without blanks around them, drop empty rows, and let the index hold lines of the file."""
    frame.columns = [str(name).strip() for name in frame.columns]
    frame.index = (frame.index + 2).rename("line")
    is_unnamed = [name == "" or name.startswith("Unnamed: ") for name in frame.columns]
    return frame.drop(columns=frame.columns[is_unnamed]).dropna(how="all")


def _check_header(path: Path, header: Sequence[str]) -> None:
    names = [name.strip() for name in header]
    if not any(names):
        raise InputError(f"{path}: no header with the names of columns")
    if repeated := [name for name, number in collections.Counter(names).items() if name and number > 1]:
        raise InputError(f"{path}: two columns are called {repeated[0]!r}")


def open_parquet(path: Path) -> Any:
    """Open a file with pyarrow so that damage is noticed and only a part of it is in memory."""
    _import("pyarrow", path)
    import pyarrow as pa
    import pyarrow.parquet as pq

    open_regular(path).close()
    try:
        return pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: not a valid Parquet file: {error_summary(error)}") from None


def read_parquet_metadata(path: Path, key: bytes) -> dict[str, Any]:
    """Return the JSON object that the metadata of a Parquet file holds under a key, empty if there is none."""
    with open_parquet(path) as file:
        metadata = file.schema_arrow.metadata or {}
    try:
        return dict(json.loads(metadata.get(key, "{}")))
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: {key.decode()} is not a JSON object: {error_summary(error)}") from None


def read_detections(
    path: str | Path, *, box_format: BoxFormat | None = None, category_names: ClassNames = None
) -> Iterator[Detections]:
    """Yield one `Detections` for each image of a file: COCO results (``.json``) or a table, or a folder of Parquet.

    ``box_format`` is what the box columns mean; by default their names decide. ``category_names`` are names for ids or
    class numbers without names. ``.json``, ``.csv`` and ``.tsv`` may be gzipped. Only Parquet is read in bounded
    memory, because in other files the rows of an image may be anywhere.

    >>> import json, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "results.json"
    ...     _ = file.write_text(json.dumps([{"image_id": 7, "category_id": 18, "bbox": [1, 2, 3, 4], "score": 0.5}]))
    ...     [(image.image_id, len(image)) for image in read_detections(file)]
    [(7, 1)]
    """
    path = Path(path)
    is_results = suffix_without_gz(path) == ".json"
    if is_parquet(path):
        return _read_parquet(path, box_format, category_names)
    if not is_results and suffix_without_gz(path) not in (".csv", ".tsv", ".xlsx"):
        raise InputError(f"{path}: not a file of detections; expected .json, .csv, .tsv, .xlsx or .parquet")
    return _read_whole(path, box_format, category_names)


def _read_whole(path: Path, box_format: BoxFormat | None, category_names: ClassNames) -> Iterator[Detections]:
    open_regular(path).close()  # an unreadable file is the first thing to report
    pandas = _import("pandas", path)
    if suffix_without_gz(path) == ".json":
        _import("msgspec", path)
        from tallybox.detections.coco import read_coco_results

        frame = pandas.DataFrame(read_coco_results(path)).rename_axis("record")
    else:
        frame = read_table(path)
    layout = table_layout(frame, str(path), box_format=box_format, category_names=category_names)
    yield from detections_in_frame(frame, layout, str(path))


def _read_parquet(path: Path, box_format: BoxFormat | None, category_names: ClassNames) -> Iterator[Detections]:
    """Yield the images of a Parquet file, or of all in a folder; the rows of an image stand together."""
    _import("pyarrow", path)
    import pyarrow as pa

    parts = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not parts:
        raise InputError(f"{path}: no .parquet files in this folder")
    seen: set[ImageId | None] = set()
    for part in parts:
        try:
            with open_parquet(part) as file:
                layout = _parquet_layout(part, file, box_format, category_names)
                for image in _images_of_batches(part, file, layout):
                    if image.image_id in seen:
                        raise InputError(
                            f"{part}: the rows of image {image.image_id!r} do not stand together; sort them"
                        )
                    seen.add(image.image_id)
                    yield image
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{part}: not a valid Parquet file: {error_summary(error)}") from None


def _parquet_layout(part: Path, file: Any, box_format: BoxFormat | None, category_names: ClassNames) -> TableLayout:
    """Find the columns and categories of a file; of names without ids, all must be known before the first image."""
    names = file.schema_arrow.names
    stored = {int(key): str(name) for key, name in read_parquet_metadata(part, CATEGORIES_KEY).items()}
    own = known_columns(names)
    needed = [own[key] for key in ("category", "category_id", "class_id") if key in own]
    is_large = "category_id" in own and "category" not in own  # ids of any number: no need to see them all
    pairs = file.schema_arrow.empty_table() if is_large and category_names is None else file.read(columns=needed)
    frame = pairs.select(needed).to_pandas().drop_duplicates().reindex(columns=names)
    layout = table_layout(frame, str(part), box_format=box_format, category_names=category_names)
    return layout if layout.category_names or not stored else layout._replace(category_names=stored)


def _images_of_batches(part: Path, file: Any, layout: TableLayout) -> Iterator[Detections]:
    import pandas as pd

    rest: pd.DataFrame | None = None  # rows of an image that may go on in the next batch
    first_row = 0
    for batch in file.iter_batches(ROWS_PER_BATCH, columns=list(layout.columns.values())):
        frame = batch.to_pandas()
        frame.index = pd.RangeIndex(first_row, first_row + len(frame), name="row")
        first_row += len(frame)
        frame = frame if rest is None else pd.concat((rest, frame)).rename_axis("row")
        _, owners = image_ids_of(frame, layout.columns.get("image_id", "image_id"), str(part))
        if (np.diff(owners) < 0).any():
            raise InputError(f"{part}: the rows of an image do not stand together; sort them by image_id")
        is_last = owners == owners[-1]
        rest = frame[is_last]
        yield from detections_in_frame(frame[~is_last], layout, str(part))
    if rest is not None:
        yield from detections_in_frame(rest, layout, str(part))


def read_counts(
    path: str | Path, *, category_names: Mapping[int, str] | None = None, blank_is_zero: bool = False
) -> TrueCounts:
    r"""Return the true counts of COCO instances (``.json``) or of a table (``.csv``, ``.xlsx`` …).

    A table has the columns ``image_id,category,count``, or one row for each image and one column for each category,
    whose empty cells are unknown unless ``blank_is_zero``. Categories may be your own: `CountEstimator.fit` matches
    them with those of the detections by name. ``category_names`` restricts the names to these, with their ids.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "counts.csv"
    ...     _ = file.write_text("image_id,bolt,nut\n7,3,0\n")
    ...     labels = read_counts(file)
    >>> labels.categories, labels.count(7, "bolt")
    ({0: 'bolt', 1: 'nut'}, 3)
    """
    path = Path(path)
    if suffix_without_gz(path) == ".json":
        _import("msgspec", path)
        from tallybox.detections.coco import read_coco_instances

        return read_coco_instances(path)
    return counts_in_frame(read_table(path), str(path), category_names, blank_is_zero=blank_is_zero)


def counts_in_frame(
    frame: pd.DataFrame, source: str, category_names: Mapping[int, str] | None = None, *, blank_is_zero: bool = False
) -> TrueCounts:
    """Return true counts from a data frame with a row for each image and category, or with a column for each category.

    A category of the first kind of table counts 0 in an image that has rows of others only. A row without a category
    and with a count of 0 is an image without objects.
    """
    columns = known_columns(frame.columns)
    if "image_id" not in columns:
        raise InputError(f"{source}: no column image_id (or image, photo, file_name …) among {list(frame.columns)}")
    if not len(frame):
        raise InputError(f"{source}: no rows")
    is_long = bool({"category", "category_id"} & columns.keys())
    if is_long and "count" not in columns:
        raise InputError(f"{source}: no column count among {list(frame.columns)}")
    if not is_long:
        frame = _melted(frame, source, columns["image_id"], blank_is_zero)
        columns = {"image_id": columns["image_id"], "category": "category", "count": "count"}
    if not len(frame):
        raise InputError(f"{source}: no columns of categories")
    return _counts_in_long(frame, source, category_columns(frame, columns), category_names)


def _melted(frame: pd.DataFrame, source: str, image_column: str, blank_is_zero: bool) -> pd.DataFrame:
    """Turn a table with a column for each category into one with a row for each image and category."""
    if len(image_ids_of(frame, image_column, source)[0]) < len(frame):
        raise InputError(f"{source}: an image has two rows")
    for name in frame.columns.drop(image_column):
        if str(name).isdecimal():
            raise InputError(f"{source}: column {name!r} is a number; name the category")
        whole_numbers(frame[name].dropna(), source, f"column {name}:", maximum=MAX_COUNT)
    frame = frame.fillna(0) if blank_is_zero else frame.dropna(axis=1, how="all")
    long = frame.melt(image_column, var_name="category", value_name="count", ignore_index=False)
    return long.rename_axis(frame.index.name)


def _counts_in_long(
    frame: pd.DataFrame, source: str, columns: Mapping[str, str], category_names: Mapping[int, str] | None
) -> TrueCounts:
    import pandas

    images, owners = image_ids_of(frame, columns["image_id"], source)
    is_named = "category_id" not in columns
    category = frame[columns["category" if is_named else "category_id"]]
    if is_named:
        category = category.astype("string").str.strip()
        own = category.dropna().unique().tolist()
        names = dict(category_names or number_categories(own))
        category = category.map({name: category_id_of(name, names) for name in own})
    else:
        names = names_of_ids(frame, source, columns) if "category" in columns else dict(category_names or {})
        whole_numbers(category.dropna(), source, "category_id")
    stated = frame[columns["count"]]
    whole_numbers(stated.dropna(), source, "count", maximum=MAX_COUNT)
    counts: dict[ImageId, dict[int, int]] = {image_id: {} for image_id in images}
    unknown: set[tuple[ImageId, int]] = set()
    ids, numbers = (pandas.to_numeric(column).to_numpy(np.float64, na_value=np.nan) for column in (category, stated))
    for line, owner, number, count in zip(frame.index, owners.tolist(), ids.tolist(), numbers.tolist(), strict=True):
        image_id = images[owner]
        if np.isnan(number):
            if count != 0:
                raise row_error(source, frame, line, "category is missing")
        elif np.isnan(count):
            unknown.add((image_id, int(number)))
        elif int(number) in counts[image_id]:
            raise row_error(source, frame, line, f"image {image_id!r} has two counts of category {int(number)}")
        else:
            counts[image_id][int(number)] = int(count)
    labelled = frozenset(ids[~np.isnan(ids)].astype(int).tolist())
    is_arbitrary = is_named and category_names is None and is_own(names)
    return TrueCounts(
        counts, categories=names, unknown=frozenset(unknown), labelled=labelled, ids_are_arbitrary=is_arbitrary
    )


def read_category_names(path: str | Path) -> dict[int, str]:
    """Return the names of classes in YOLO's ``data.yaml``, by number.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "data.yaml"
    ...     _ = file.write_text("names: [nut, bolt]")
    ...     read_category_names(file)
    {0: 'nut', 1: 'bolt'}
    """
    path = Path(path)
    yaml = _import("yaml", path, "pyyaml")
    with open_regular(path) as file:
        try:
            content = yaml.safe_load(file)
            names = content["names"]
            return {
                int(key): str(name) for key, name in (names.items() if isinstance(names, dict) else enumerate(names))
            }
        except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: no list of names as in YOLO's data.yaml: {error_summary(error)}") from None


def is_parquet(path: Path) -> bool:
    """Return whether a path names a Parquet file, or a folder, which may hold Parquet files."""
    return path.is_dir() or path.suffix.lower() == ".parquet"


def _import(module: str, path: Path, package: str | None = None) -> Any:
    return import_optional(module, needed_for=f"reading {path}", install="'tallybox[detections]'", package=package)
