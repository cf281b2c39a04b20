"""Readers: any table as a data frame; detections, true counts and category names from files, by their suffix."""

from __future__ import annotations

import collections
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

from tallybox.detections.categories import ClassNames, names_by_class
from tallybox.detections.detections import BoxFormat, Detections
from tallybox.detections.labels import TrueCounts
from tallybox.detections.tables import counts_in_frame, detections_in_frame
from tallybox.errors import InputError
from tallybox.files import error_summary, import_optional, open_regular, open_text, suffix_without_gz

if TYPE_CHECKING:
    import pandas as pd

MAX_UNPACKED = 1 << 28  # bytes of an Excel file; a file of some kilobytes can claim any size
MAX_LINE = 1 << 20  # characters of a header
CATEGORIES_KEY = b"tallybox.categories"  # in the metadata of a Parquet file: names as JSON, by id


def read_table(path: Path) -> pd.DataFrame:
    """Return a table (.csv, .tsv, .xlsx or .parquet) as a data frame; ``.csv`` and ``.tsv`` may be gzipped.

    Cells of a CSV are texts. The index holds lines of the file, or rows of a Parquet file, whose names of category ids
    are in ``attrs["categories"]``. Empty rows and columns without a name are left out.
    """
    pandas = _import("pandas", path)
    suffix = suffix_without_gz(path)
    if suffix == ".parquet":
        frame: pd.DataFrame = _read_parquet(path).to_pandas().rename_axis("row")
        names = read_parquet_metadata(path, CATEGORIES_KEY)
        frame.attrs = {"categories": {int(key): str(name) for key, name in names.items()}}
        return frame
    if suffix not in (".csv", ".tsv", ".xlsx"):
        raise InputError(f"{path}: not a table; expected .csv, .tsv, .xlsx or .parquet")
    cells = _read_excel(path, pandas) if suffix == ".xlsx" else _read_csv(path, pandas)
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
            return pandas.read_csv(text, sep=separator, **options)
    except UnicodeDecodeError:
        raise InputError(f'{path}: not UTF-8; in Excel, save it as "CSV UTF-8"') from None
    except (pandas.errors.ParserError, pandas.errors.EmptyDataError, OverflowError) as error:
        raise InputError(f"{path}: not a valid table: {error_summary(error)}") from None


def _read_excel(path: Path, pandas: Any) -> pd.DataFrame:
    """Return the cells of the first sheet, of as many columns as its header has; a row with more is an error."""
    openpyxl = _import("openpyxl", path)
    with open_regular(path) as file:
        try:
            if sum(entry.file_size for entry in ZipFile(file).infolist()) > MAX_UNPACKED:
                raise ValueError(f"it unpacks to more than {MAX_UNPACKED >> 20} MB; save it as CSV")
            sheet = openpyxl.load_workbook(file, read_only=True, data_only=True).worksheets[0]
            sheet.reset_dimensions()
            columns = len(next(sheet.values, ())) or 1
            rows = []
            for line, row in enumerate(sheet.values, start=1):
                if any(cell is not None for cell in row[columns:]):
                    raise ValueError(f"line {line} has more cells than the header")
                rows.append(row[:columns])
        except Exception as error:  # for a damaged file, openpyxl raises errors of any type
            raise InputError(f"{path}: not a valid .xlsx file: {error_summary(error)}") from None
    return pandas.DataFrame(rows, columns=range(columns), dtype=object)


def _read_parquet(path: Path, **options: Any) -> Any:
    """Return a file as a table of pyarrow; damage is noticed by the checksums of its pages."""
    _import("pyarrow", path)
    import pyarrow as pa
    import pyarrow.parquet as pq

    open_regular(path).close()
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            return file.read(**options)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: not a valid Parquet file: {error_summary(error)}") from None


def read_parquet_metadata(path: Path, key: bytes) -> dict[str, Any]:
    """Return the JSON object that the metadata of a Parquet file holds under a key, empty if there is none."""
    metadata = _read_parquet(path, columns=[]).schema.metadata or {}
    try:
        return dict(json.loads(metadata.get(key, "{}")))
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: {key.decode()} is not a JSON object: {error_summary(error)}") from None


def read_detections(
    path: str | Path, *, box_format: BoxFormat | None = None, category_names: ClassNames = None
) -> Iterator[Detections]:
    """Yield one `Detections` for each image of a file: COCO results (``.json``) or a table.

    ``box_format`` is what the box columns mean; by default their names decide. ``category_names`` are names for ids or
    class numbers without names. ``.json``, ``.csv`` and ``.tsv`` may be gzipped.

    >>> import json, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "results.json"
    ...     _ = file.write_text(json.dumps([{"image_id": 7, "category_id": 18, "bbox": [1, 2, 3, 4], "score": 0.5}]))
    ...     [(image.image_id, len(image)) for image in read_detections(file)]
    [(7, 1)]
    """
    path = Path(path)
    open_regular(path).close()  # an unreadable file is the first thing to report
    if suffix_without_gz(path) == ".json":
        _import("msgspec", path)
        from tallybox.detections.coco import read_coco_results

        frame = read_coco_results(path, _import("pandas", path))
    else:
        frame = read_table(path)
    yield from detections_in_frame(frame, str(path), box_format=box_format, category_names=category_names)


def read_counts(path: str | Path) -> TrueCounts:
    r"""Return the true counts of COCO instances (``.json``) or of a table (``.csv``, ``.xlsx`` …).

    A table has the columns ``image_id,category,count``, or one row for each image and one column for each category,
    whose empty cells are unknown. Categories may be your own: `CountEstimator.fit` matches
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
    return counts_in_frame(read_table(path), str(path))


def read_category_names(path: str | Path) -> dict[int, str]:
    """Return the names of classes in YOLO's ``data.yaml``, by number."""
    path = Path(path)
    yaml = _import("yaml", path, "pyyaml")
    with open_regular(path) as file:
        try:
            return names_by_class(yaml.safe_load(file)["names"])
        except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: no list of names as in YOLO's data.yaml: {error_summary(error)}") from None


def _import(module: str, path: Path, package: str | None = None) -> Any:
    return import_optional(module, needed_for=f"reading {path}", install="'tallybox[detections]'", package=package)
