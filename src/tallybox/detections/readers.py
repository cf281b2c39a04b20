"""Readers: any table as a data frame; detections, true counts and category names from files, by their suffix."""

from __future__ import annotations

import collections
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

from tallybox.detections.categories import ClassNames, names_by_class
from tallybox.detections.detections import BoxFormat, Detections, ImageId
from tallybox.detections.labels import TrueCounts
from tallybox.detections.tables import (
    TableLayout,
    counts_in_frame,
    detections_in_frame,
    image_ids_of,
    known_columns,
    table_layout,
)
from tallybox.errors import InputError
from tallybox.files import error_summary, import_optional, open_regular, open_text, suffix_without_gz

if TYPE_CHECKING:
    import pandas as pd

MAX_UNPACKED = 1 << 28  # bytes of an Excel file; a file of some kilobytes can claim any size
MAX_LINE = 1 << 20  # characters of a header
ROWS_PER_BATCH = 1 << 16  # of Parquet that are held in memory at a time
CATEGORIES_KEY = b"tallybox.categories"  # in the metadata of a Parquet file: names as JSON, by id


def read_table(path: str | Path) -> pd.DataFrame:
    r"""Return a table (.csv, .tsv, .xlsx or .parquet) as a data frame; ``.csv`` and ``.tsv`` may be gzipped.

    Cells of a CSV are texts. The index holds lines of the file, or rows of a Parquet file. Empty rows and columns
    without a name are left out.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "counts.csv"
    ...     _ = file.write_text("image_id;dog\n007;3\n")
    ...     read_table(file).to_dict("list")
    {'image_id': ['007'], 'dog': ['3']}
    """
    path = Path(path)
    pandas = _import("pandas", path)
    suffix = suffix_without_gz(path)
    if suffix == ".parquet":
        with open_parquet(path) as file:
            frame: pd.DataFrame = file.read().to_pandas()
        return frame.rename_axis("row")
    if suffix not in (".csv", ".tsv", ".xlsx"):
        raise InputError(f"{path}: not a table; expected .csv, .tsv, .xlsx or .parquet")
    cells = pandas.DataFrame(_read_excel(path)) if suffix == ".xlsx" else _read_csv(path, pandas)
    header = ["" if pandas.isna(name) else str(name).strip() for name in cells[:1].to_numpy().ravel()]
    if not any(header):
        raise InputError(f"{path}: no header with the names of columns")
    if repeated := [name for name, number in collections.Counter(header).items() if name and number > 1]:
        raise InputError(f"{path}: two columns are called {repeated[0]!r}")
    frame = cells[1:].set_axis(header, axis=1).set_axis(cells.index[1:] + 1).rename_axis("line")
    return frame.loc[:, [name != "" for name in header]].dropna(how="all")


def _read_csv(path: Path, pandas: Any) -> pd.DataFrame:
    options = {"header": None, "dtype": str, "keep_default_na": False, "na_values": [""], "skip_blank_lines": False}
    try:
        with open_text(path) as text:
            header = text.readline(MAX_LINE)
            text.seek(0)
            separator = max(",;\t", key=header.count)  # Excel writes semicolons if numbers have a decimal comma
            frame: pd.DataFrame = pandas.read_csv(text, sep=separator, **options)
            return frame
    except UnicodeDecodeError:
        raise InputError(f'{path}: not UTF-8; in Excel, save it as "CSV UTF-8"') from None
    except (pandas.errors.ParserError, pandas.errors.EmptyDataError, OverflowError) as error:
        raise InputError(f"{path}: not a valid table: {error_summary(error)}") from None


def _read_excel(path: Path) -> list[list[Any]]:
    """Return the cells of the first sheet; one far away costs neither time nor memory, unlike in pandas."""
    openpyxl = _import("openpyxl", path)
    rows: list[list[Any]] = []
    with open_regular(path) as file:
        try:
            if sum(entry.file_size for entry in ZipFile(file).infolist()) > MAX_UNPACKED:
                raise InputError(f"{path}: unpacks to more than {MAX_UNPACKED >> 20} MB; save it as CSV")
            sheet = openpyxl.load_workbook(file, read_only=True, data_only=True).worksheets[0]
            sheet.reset_dimensions()
            for row in sheet.iter_rows(values_only=True):
                cells = list(row)
                while cells and cells[-1] is None:
                    cells.pop()
                if rows and len(cells) > len(rows[0]):
                    raise InputError(f"{path}, line {len(rows) + 1}: more cells than the header has")
                rows.append(cells)
        except InputError:
            raise
        except Exception as error:  # for a damaged file, openpyxl raises errors of any type
            raise InputError(f"{path}: not a valid .xlsx file: {error_summary(error)}") from None
    return [row + [None] * (len(rows[0]) - len(row)) for row in rows]


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """Open a file with pyarrow so that damage is noticed and only a part of it is in memory."""
    _import("pyarrow", path)
    import pyarrow as pa
    import pyarrow.parquet as pq

    open_regular(path).close()
    try:
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True) as file:
            yield file
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
    if path.is_dir() or path.suffix.lower() == ".parquet":
        return _read_parquet(path, box_format, category_names)
    if suffix_without_gz(path) not in (".json", ".csv", ".tsv", ".xlsx"):
        raise InputError(f"{path}: not a file of detections; expected .json, .csv, .tsv, .xlsx or .parquet")
    return _read_whole(path, box_format, category_names)


def _read_whole(path: Path, box_format: BoxFormat | None, category_names: ClassNames) -> Iterator[Detections]:
    open_regular(path).close()  # an unreadable file is the first thing to report
    if suffix_without_gz(path) == ".json":
        _import("msgspec", path)
        from tallybox.detections.coco import read_coco_results

        frame = read_coco_results(path, _import("pandas", path))
    else:
        frame = read_table(path)
    layout = table_layout(frame, str(path), box_format=box_format, category_names=category_names)
    yield from detections_in_frame(frame, layout, str(path))


def _read_parquet(path: Path, box_format: BoxFormat | None, category_names: ClassNames) -> Iterator[Detections]:
    """Yield the images of a Parquet file, or of all in a folder; the rows of an image stand together."""
    parts = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not parts:
        raise InputError(f"{path}: no .parquet files in this folder")
    seen: set[ImageId | None] = set()
    for part in parts:
        with open_parquet(part) as file:
            layout = _parquet_layout(part, file, box_format, category_names)
            for image in _images_of_batches(part, file, layout):
                if image.image_id in seen:
                    raise InputError(f"{part}: the rows of image {image.image_id!r} do not stand together; sort them")
                seen.add(image.image_id)
                yield image


def _parquet_layout(part: Path, file: Any, box_format: BoxFormat | None, category_names: ClassNames) -> TableLayout:
    """Find the columns and categories of a file; of names without ids, all must be known before the first image."""
    names = file.schema_arrow.names
    own = known_columns(names)
    needed = [own[key] for key in ("category", "category_id", "class_id") if key in own]
    frame = file.read(columns=needed).to_pandas().drop_duplicates().reindex(columns=names)
    layout = table_layout(frame, str(part), box_format=box_format, category_names=category_names)
    if layout.categories.names:
        return layout
    stored = {int(key): str(name) for key, name in read_parquet_metadata(part, CATEGORIES_KEY).items()}
    return layout._replace(categories=layout.categories._replace(names=stored or None))


def _images_of_batches(part: Path, file: Any, layout: TableLayout) -> Iterator[Detections]:
    import pandas as pd

    rest: pd.DataFrame | None = None  # rows of an image that may go on in the next batch
    first_row = 0
    for batch in file.iter_batches(ROWS_PER_BATCH, columns=[*layout.columns.values()]):
        frame = batch.to_pandas()
        frame.index = pd.RangeIndex(first_row, first_row + len(frame), name="row")
        first_row += len(frame)
        frame = frame if rest is None else pd.concat((rest, frame)).rename_axis("row")
        _, owners = image_ids_of(frame, layout.columns.get("image_id", "image_id"), str(part))
        is_last = owners == owners[-1]
        rest = frame[is_last]
        yield from detections_in_frame(frame[~is_last], layout, str(part))
    if rest is not None:
        yield from detections_in_frame(rest, layout, str(part))


def read_counts(path: str | Path, *, blank_is_zero: bool = False) -> TrueCounts:
    r"""Return the true counts of COCO instances (``.json``) or of a table (``.csv``, ``.xlsx`` …).

    A table has the columns ``image_id,category,count``, or one row for each image and one column for each category,
    whose empty cells are unknown unless ``blank_is_zero``. Categories may be your own: `CountEstimator.fit` matches
    them with those of the detections by name.

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
    return counts_in_frame(read_table(path), str(path), blank_is_zero=blank_is_zero)


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
            return names_by_class(yaml.safe_load(file)["names"])
        except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: no list of names as in YOLO's data.yaml: {error_summary(error)}") from None


def _import(module: str, path: Path, package: str | None = None) -> Any:
    return import_optional(module, needed_for=f"reading {path}", install="'tallybox[detections]'", package=package)
