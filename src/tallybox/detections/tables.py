"""Tables: the rows of CSV and Excel files, and detections in CSV files with the names of their categories.

Their columns are listed in docs/reference/file-formats.md.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from reprlib import repr as shortened
from typing import Any
from zipfile import BadZipFile, ZipFile

from tallybox.detections.adapters import COLUMN_NAMES, IMAGE_COLUMNS
from tallybox.detections.category_names import COCO_CATEGORIES, LISTED, category_id_of, find_category
from tallybox.detections.detections import MAX_SIDE, Detections, ImageId, Size
from tallybox.detections.rows import BOX_AND_SCORE, RowsByImage, image_key, image_size
from tallybox.errors import InputError
from tallybox.files import error_summary, import_optional, open_regular, open_text

# Unlike float(), it accepts no underscores and only ASCII digits.
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+|nan|inf|infinity)(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
WHOLE_OR_POINT_ZERO = re.compile(r"(\d+)(?:\.0*)?", re.ASCII)  # pandas writes 3.0 where a column has empty cells
LONG_COLUMNS = {"category", "category_id", "count"}
COLUMNS = {*IMAGE_COLUMNS, *LONG_COLUMNS, *BOX_AND_SCORE, "width", "height"}
MAX_DIGITS = 1000  # of a whole number; Python converts up to 4,300
MAX_LINE = 1 << 20  # characters
MAX_UNPACKED = 1 << 28  # bytes of an Excel file; a file of some kilobytes can claim any size
SEPARATORS = ",;\t"  # Excel writes semicolons where numbers have a decimal comma


class TableRow(dict[str, str]):
    """The texts of a line by column; methods return some as numbers and ids, with errors that name file and line."""

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
        match = WHOLE_OR_POINT_ZERO.fullmatch(text)
        key = image_key(match[1] if match else text)
        if isinstance(key, int):
            return key
        return self.category_named(key, categories)

    def category_named(self, name: str, categories: Mapping[int, str], remedy: str = LISTED) -> int:
        """Return the id of a category that the line names, as `category_id_of` does."""
        try:
            return category_id_of(name, categories, remedy=remedy)
        except InputError as error:
            raise self.error(str(error)) from None

    def whole_number(self, column: str, maximum: int) -> int:
        """Return a number, which must be written in ASCII digits."""
        text = self[column]
        if not (match := WHOLE_OR_POINT_ZERO.fullmatch(text)):
            expected = "a whole number of at least 0"
        elif len(match[1]) > MAX_DIGITS or int(match[1]) > maximum:
            expected = f"at most {maximum}"
        else:
            return int(match[1])
        raise self.error(f"{column} must be {expected}, but got {shortened(text)}")


def is_number(text: str) -> bool:
    """Return whether a text is a finite number."""
    return bool(NUMBER.fullmatch(text)) and not text.lstrip("+-").isalpha()


def read_csv_detections(path: Path, categories: Mapping[int, str]) -> Iterator[Detections]:
    """Yield the detections of each image, in the order in which images first appear."""
    rows = RowsByImage(path, unit="line")
    category_ids: dict[str, int] = {}  # by the text in the table; there are few
    for row in read_rows(path, ("image_id", "category", *BOX_AND_SCORE)):
        image_id = row.image_id("image_id")
        category = row.get("category_id") or row.get("category", "")
        rows.add_image(image_id, _size(row))
        texts = [row[name] for name in BOX_AND_SCORE]
        if not category and not any(texts):
            continue
        if category not in category_ids:
            category_ids[category] = row.category_id(category, categories)
        for name, text in zip(BOX_AND_SCORE, texts, strict=True):
            if not NUMBER.fullmatch(text):
                raise row.error(f"{name} must be a number, but got {shortened(text)}")
        rows.add(row.line, image_id, category_ids[category], map(float, texts))
    yield from rows.images()


def _size(row: TableRow) -> Size | None:
    if not (row.get("width") or row.get("height")):
        return None
    width, height = (row.whole_number(name, MAX_SIDE) if row.get(name) else None for name in ("width", "height"))
    return image_size(f"{row.path}, line {row.line}", width, height)


def read_csv_category_names(path: Path, categories: Mapping[int, str] | None) -> Mapping[int, str]:
    """Return the names of categories in a CSV by their ids; empty where it has only ids.

    Ids are those of the column ``category_id``. Without it, they are the ids of ``categories`` if these are an
    estimator's, or if all names are COCO's; other names are numbered from 0 in alphabetical order.
    """
    columns = read_header(path)
    if "category" not in columns or (categories is None and "category_id" not in columns):
        return {}
    names: dict[int, str] = {}
    without_id: set[str] = set()
    for row in read_rows(path, ("category",)):
        category, number = row["category"], row.get("category_id")
        if not category or isinstance(image_key(category), int):
            continue
        if not number:
            without_id.add(category)
            continue
        category_id = row.category_id(number, {})
        if names.setdefault(category_id, category) != category:
            both = f"{names[category_id]!r} and {category!r}"
            raise row.error(f"a category must have one name, but {category_id} is {both}")
    if names or categories is None or not without_id:
        return names
    if categories is not COCO_CATEGORIES or all(find_category(name, categories) is not None for name in without_id):
        return categories
    return dict(enumerate(sorted(without_id)))


def read_header(path: Path) -> list[str]:
    """Return the names of the columns."""
    return _column_names(next(_cells(path), (1, []))[1])


def read_rows(path: Path, names: Sequence[str]) -> Iterator[TableRow]:
    """Yield each row; the columns ``names`` must be there. ``category_id`` may stand for ``category``."""
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
            yield TableRow(path, line, zip(header, map(str.strip, row), strict=True))


def _column_names(header: Sequence[str]) -> list[str]:
    """Return the names of columns; "File name" and those of supervision's CSV get the names used here."""
    names = _renamed([name.strip() for name in header], {name: name for name in COLUMNS})
    return _renamed(names, COLUMN_NAMES) if "x_min" in names else names


def _renamed(names: Sequence[str], new_names: Mapping[str, str]) -> list[str]:
    """Return names with the known ones, in any case, replaced by new ones, unless two would be the same."""
    renamed = [new_names.get(name.casefold().replace(" ", "_"), name) for name in names]
    return [name if renamed.count(new) > 1 else new for name, new in zip(names, renamed, strict=True)]


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
        cure = '; in Excel, save it as "CSV UTF-8"' if isinstance(error, UnicodeDecodeError) else ""
        raise InputError(f"{path}, line {line + 1}: must be CSV in UTF-8, but it is not: {error}{cure}") from None


def _excel_cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of the first sheet as texts, as many as the first row has; empty rows are left out."""
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
            books = [openpyxl.load_workbook(file, read_only=True, data_only=is_value) for is_value in (True, False)]
            sheets = [book.worksheets[0].iter_rows(values_only=True) for book in books]
            width = None
            for line, (values, formulas) in enumerate(zip(*sheets, strict=True), 1):
                if without := [f for value, f in zip(values, formulas, strict=True) if value is None and f is not None]:
                    raise InputError(
                        f"{path}, line {line}: a formula must have a stored value, but {shortened(without[0])} has "
                        "none; open the file in a spreadsheet program and save it"
                    )
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
        except Exception as error:  # for a damaged file, openpyxl raises errors of any type
            raise InputError(f"{path} must be an Excel file (.xlsx), but: {error_summary(error)}") from None


def _text(value: Any) -> str:
    """Return a cell's value as Excel shows it: whole numbers without a decimal point."""
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
