"""Rows of text from CSV files and from Excel sheets, under the names of their columns."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from tallybox.detections.adapters import COLUMN_NAMES
from tallybox.errors import InputError
from tallybox.files import first_line, import_optional, open_regular, open_text

MAX_LINE = 1 << 20  # characters
MAX_UNPACKED = 1 << 28  # bytes of an Excel file; a file of some kilobytes can claim any size
SEPARATORS = ",;\t"  # Excel writes semicolons where the comma stands in numbers


def read_header(path: Path) -> list[str]:
    """Return the names of the columns; none where they cannot be read, which reading the rows reports."""
    try:
        return _column_names(next(_cells(path), (1, []))[1])
    except (csv.Error, UnicodeDecodeError):
        return []


def read_rows(path: Path, names: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield each row as a dict by column, with its line number; ``names`` are the columns that must be there.

    ``category`` may also be called ``category_id``.
    """
    line, cells = 0, _cells(path)
    try:
        line, first = next(cells, (1, []))
        header = _column_names(first)
        present = {*header, "category"} if "category_id" in header else set(header)
        missing = [name for name in names if name not in present]
        if missing:
            how = "; add class_name, for class_id may be any numbering" if "class_id" in header else ""
            raise InputError(
                f"{path} must have the columns {', '.join(names)}, but {missing[0]} is missing from {header}{how}"
            )
        for line, row in cells:
            if row and len(row) != len(header):
                raise InputError(
                    f"{path}, line {line}: must have the {len(header)} columns of the header, "
                    f"but got {len(row)}; the file may be cut short"
                )
            if row:
                yield line, dict(zip(header, map(str.strip, row), strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path}, line {line + 1}: must be CSV in UTF-8, but it is not: {error}") from None


def _column_names(header: Sequence[str]) -> list[str]:
    """Return names of columns as they are called here, for the corners, scores and names of supervision's CSV too."""
    names = [name.strip() for name in header]
    if "x_min" not in names:
        return names
    new = [COLUMN_NAMES.get(name, name) for name in names]
    return [name if new.count(changed) > 1 else changed for name, changed in zip(names, new, strict=True)]


def _cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the texts of each line with its number."""
    if path.suffix.lower() == ".xlsx":
        yield from _excel_cells(path)
        return
    with open_text(path) as file:
        first = file.readline(MAX_LINE)
        separator = next((mark for mark in SEPARATORS if mark in first), ",")
        rest = iter(partial(file.readline, MAX_LINE), "")  # a longer line is an error, not kept in memory
        lines = csv.reader(_chained(first, rest), delimiter=separator)
        for row in lines:
            yield lines.line_num, row


def _chained(first: str, rest: Iterator[str]) -> Iterator[str]:
    if first:
        yield first
    yield from rest


def _excel_cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of the first sheet as texts; the width is that of the first row, and empty rows are left out."""
    openpyxl = import_optional("openpyxl", needed_for=f"reading {path}", install="openpyxl, or save the sheet as CSV")
    with open_regular(path) as file:
        try:
            with ZipFile(file) as packed:
                if (unpacked := sum(entry.file_size for entry in packed.infolist())) > MAX_UNPACKED:
                    raise InputError(
                        f"{path} must unpack to at most {MAX_UNPACKED >> 20} MB, but claims {unpacked >> 20}; save "
                        "the sheet as CSV"
                    )
            file.seek(0)
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
            width = None
            for line, values in enumerate(book.worksheets[0].iter_rows(values_only=True), 1):
                row = [_text(value) for value in values]
                while row and not row[-1]:
                    row.pop()
                width = len(row) if width is None else width
                if row:
                    yield line, row + [""] * (width - len(row))
        except InputError:
            raise
        except BadZipFile:
            raise InputError(f"{path} must be an Excel file (.xlsx), but it is none, or damaged") from None
        except Exception as error:  # readers of damaged files raise whatever their parsing stumbles on
            raise InputError(f"{path} must be an Excel file (.xlsx), but: {first_line(error)}") from None


def _text(value: Any) -> str:
    """Return what a cell shows: whole numbers without a point."""
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
