"""Rows of text from CSV files and from Excel sheets, under the names of their columns."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from reprlib import repr as shortened
from typing import Any
from zipfile import BadZipFile, ZipFile

from tallybox.detections.adapters import COLUMN_NAMES
from tallybox.detections.category_names import category_id_of
from tallybox.detections.container import ImageId
from tallybox.detections.rows import image_key
from tallybox.errors import InputError
from tallybox.files import first_line, import_optional, open_regular, open_text

MAX_DIGITS = 1000  # of a whole number; Python converts up to 4,300
MAX_LINE = 1 << 20  # characters
MAX_UNPACKED = 1 << 28  # bytes of an Excel file; a file of some kilobytes can claim any size
SEPARATORS = ",;\t"  # Excel writes semicolons where the comma stands in numbers


class Row(dict[str, str]):
    """The texts of a line by column, as numbers and ids where they must be such; errors say where the line is."""

    __slots__ = ("line", "path")

    def __init__(self, path: Path, line: int, cells: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__(cells)
        self.path, self.line = path, line

    def error(self, problem: str) -> InputError:
        """Return an error of this line."""
        return InputError(f"{self.path}, line {self.line}: {problem}")

    def image_id(self, column: str) -> ImageId:
        """Return the id of the image, which every line must name."""
        if not self[column]:
            raise self.error(f"{column} must be given, but got {list(self.values())}")
        return image_key(self[column])

    def category_id(self, text: str, categories: Mapping[int, str]) -> int:
        """Return the id of a category that the line names by its name or its id."""
        key = image_key(text)
        if isinstance(key, int):
            return key
        try:
            return category_id_of(key, categories)
        except InputError as error:
            raise self.error(str(error)) from None

    def whole_number(self, column: str, maximum: int) -> int:
        """Return a number, which must be written in ASCII digits."""
        text = self[column]
        if not (text.isascii() and text.isdigit()):
            expected = "a whole number of at least 0"
        elif len(text) > MAX_DIGITS or int(text) > maximum:
            expected = f"at most {maximum}"
        else:
            return int(text)
        raise self.error(f"{column} must be {expected}, but got {shortened(text)}")


def read_header(path: Path) -> list[str]:
    """Return the names of the columns."""
    return _column_names(next(_cells(path), (1, []))[1])


def read_rows(path: Path, names: Sequence[str]) -> Iterator[Row]:
    """Yield each row; ``names`` are the columns that must be there. ``category`` may also be called ``category_id``."""
    cells = _cells(path)
    header = _column_names(next(cells, (1, []))[1])
    present = {*header, "category"} if "category_id" in header else set(header)
    if missing := [name for name in names if name not in present]:
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
            yield Row(path, line, zip(header, map(str.strip, row), strict=True))


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
    line = 0
    try:
        with open_text(path) as file:
            first = file.readline(MAX_LINE)
            separator = next((mark for mark in SEPARATORS if mark in first), ",")
            rest = iter(partial(file.readline, MAX_LINE), "")  # a longer line is an error, not kept in memory
            lines = csv.reader(chain([first], rest), delimiter=separator)
            for row in lines:
                line = lines.line_num
                yield line, row
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path}, line {line + 1}: must be CSV in UTF-8, but it is not: {error}") from None


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
