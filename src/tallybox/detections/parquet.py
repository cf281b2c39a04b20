"""Detections in Parquet: the form for data sets that no memory holds.

| column | type | holds |
|---|---|---|
| ``image_id`` | int64 or string | the rows of one image stand together |
| ``category_id`` | int64 | null where nothing was detected in the image, as are all columns below |
| ``x1``, ``y1``, ``x2``, ``y2`` | float32 | corners of the box |
| ``score`` | float32 | in [0, 1] |
| ``width``, ``height`` | int32 | size of the image, or null; the columns may be missing |

Other columns are ignored. The names of the categories may stand in the file's metadata under ``tallybox.categories``,
as JSON from id to name. A folder of ``.parquet`` files is one data set, read by name. Row groups may end anywhere, also
within an image; a file may not.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tallybox.detections.columns import check_rows, image_key
from tallybox.detections.container import Detections, ImageId
from tallybox.errors import InputError

BOX_AND_SCORE = ("x1", "y1", "x2", "y2", "score")
SIZE = ("width", "height")
CATEGORIES_KEY = b"tallybox.categories"
ROWS_AT_ONCE = 1 << 16  # 3 MB of columns
ROWS_PER_GROUP = 1 << 17  # what a writer holds, and what a piece has at least
ROWS_BEYOND = 1 << 10  # read at once to find the end of a piece's last image
BUFFER_BYTES = 1 << 20  # of each column


def read_parquet(path: Path) -> Iterator[Detections]:
    """Yield the detections of each image while reading, in memory that does not grow with the rows.

    That an image comes back after others is an error, since its first part has been given away by then. To notice it
    takes 8 bytes an image where ids are ascending numbers, else a set of the ids.
    """
    seen = SeenImages()
    for part in _parts(path):
        with _open(part) as file:
            for image in _images(part, file, range(file.num_row_groups)):
                seen.check(part, image.image_id)
                yield image


class ParquetPiece(NamedTuple):
    """Row groups of one file that are read apart from all others."""

    part: Path
    first_group: int
    stop_group: int


def parquet_pieces(path: Path) -> list[ParquetPiece]:
    """Return pieces of about 131,072 rows that make up a data set, in order; an image belongs to one of them."""
    pieces = []
    for part in _parts(path):
        with _open(part) as file:
            first, rows = 0, 0
            for group in range(file.num_row_groups):
                rows += file.metadata.row_group(group).num_rows
                if rows >= ROWS_PER_GROUP or group == file.num_row_groups - 1:
                    pieces.append(ParquetPiece(part, first, group + 1))
                    first, rows = group + 1, 0
    return pieces


def read_parquet_piece(piece: ParquetPiece) -> Iterator[Detections]:
    """Yield the images that start in a piece, the last of which may end beyond it.

    That an image comes back in another piece goes unnoticed: check with `SeenImages` where pieces come together.
    """
    with _open(piece.part) as file:
        yield from _images(piece.part, file, range(piece.first_group, piece.stop_group))


def read_parquet_categories(path: Path) -> dict[int, str]:
    """Return the names of the categories that the file's metadata gives, which may be none."""
    first = _parts(path)[0]
    with _open(first) as file:
        metadata = file.schema_arrow.metadata or {}
    try:
        return {
            int(category_id): str(name) for category_id, name in json.loads(metadata.get(CATEGORIES_KEY, "{}")).items()
        }
    except (ValueError, AttributeError) as error:
        raise InputError(f"{first}: tallybox.categories must be JSON from id to name, but it is not: {error}") from None


def write_parquet(detections: Iterable[Detections], path: Path, *, categories: Mapping[int, str] | None = None) -> int:
    """Write detections of images that have an id, in the schema above, and return how many images there were.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "detections.parquet"
    ...     images = write_parquet([Detections([[1, 2, 3, 4]], [0.5], [18], image_id=7), Detections.empty(9)], file)
    ...     images, [(image.image_id, len(image)) for image in read_parquet(file)]
    (2, [(7, 1), (9, 0)])
    """
    unfinished = path.with_name(path.name + ".unfinished")
    images = 0
    groups = _groups(detections)
    first = next(groups, [])
    try:
        with pq.ParquetWriter(unfinished, _schema(first, categories)) as writer:
            for group in chain([first] if first else [], groups):
                writer.write_table(_table(group, writer.schema))
                images += len(group)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return images


@dataclass(frozen=True)
class _Rows:
    """Rows of a file as numpy columns."""

    image_ids: NDArray[np.int64] | NDArray[np.object_]  # [N]
    detected: NDArray[np.bool_]  # [N], False for the row of an image without detections
    category_ids: NDArray[np.int64]  # [N]
    boxes_and_scores: NDArray[np.float32]  # [N, 5]
    sizes: NDArray[np.int64]  # [N, 2], 0 where not known

    def __len__(self) -> int:
        return len(self.image_ids)

    def columns(self) -> tuple[NDArray[np.generic], ...]:
        return self.image_ids, self.detected, self.category_ids, self.boxes_and_scores, self.sizes

    def part(self, begin: int, end: int) -> _Rows:
        return _Rows(*(column[begin:end] for column in self.columns()))  # type: ignore[arg-type]  # same columns, same types

    def followed_by(self, later: _Rows) -> _Rows:
        return _Rows(*(np.concatenate(both) for both in zip(self.columns(), later.columns(), strict=True)))

    def image_starts(self) -> list[int]:
        """Return where each image starts, and the end of the last."""
        changes = np.flatnonzero(self.image_ids[1:] != self.image_ids[:-1]) + 1
        return [0, *changes.tolist(), len(self.image_ids)]

    def image(self, begin: int, end: int) -> Detections:
        chosen = np.flatnonzero(self.detected[begin:end]) + begin  # copies: an image that is kept keeps no batch
        width, height = self.sizes[begin].tolist()
        boxes, scores = self.boxes_and_scores[chosen, :4], self.boxes_and_scores[chosen, 4]
        size = (width, height) if width and height else None
        image_id = image_key(self.image_ids.item(begin))
        return Detections.of_checked(boxes, scores, self.category_ids[chosen], size, image_id)


class SeenImages:
    """Which images of a data set there were: 8 bytes each while their ids ascend."""

    def __init__(self) -> None:
        self._ascending = array("q")
        self._all: set[ImageId] | None = None

    def check(self, part: Path, image_id: ImageId | None) -> None:
        """Raise where an image of a file was there before."""
        assert image_id is not None
        if not self._add(image_id):
            raise InputError(
                f"{part}: the rows of an image must stand together, but image {image_id!r} comes back after others; "
                "sort the rows by image_id"
            )

    def _add(self, image_id: ImageId) -> bool:
        """Return whether the image is new."""
        if self._all is None:
            if isinstance(image_id, int) and (not self._ascending or image_id > self._ascending[-1]):
                self._ascending.append(image_id)
                return True
            self._all = set(self._ascending)
        is_new = image_id not in self._all
        self._all.add(image_id)
        return is_new


def _images(part: Path, file: pq.ParquetFile, groups: range) -> Iterator[Detections]:
    """Yield the images that start in some row groups of a file; the last is read to its end beyond them."""
    names = file.schema_arrow.names
    missing = [name for name in ("image_id", "category_id", *BOX_AND_SCORE) if name not in names]
    if missing:
        raise InputError(f"{part} must have a column {missing[0]}, but it has only {names}")
    columns = ["image_id", "category_id", *BOX_AND_SCORE, *(name for name in SIZE if name in names)]
    sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    row_number, stop = sum(sizes[: groups.start]), sum(sizes[: groups.stop])
    earlier = [group for group in range(groups.start) if sizes[group]]
    begun = _last_image_id(part, file, earlier[-1]) if earlier else None  # before these row groups: not ours
    beyond = range(groups.stop, file.num_row_groups)
    carried: _Rows | None = None  # the last image of a batch may go on in the next
    for batch in chain(
        _batches(part, file, columns, groups, ROWS_AT_ONCE), _batches(part, file, columns, beyond, ROWS_BEYOND)
    ):
        if row_number - (len(carried) if carried else 0) >= stop:  # the next image is not ours
            return
        rows = _rows_of(part, batch, row_number)
        row_number += batch.num_rows
        if begun is not None:
            ours = rows.image_ids != begun
            if not ours.any():
                continue
            rows, begun = rows.part(int(ours.argmax()), len(rows)), None
        rows = rows if carried is None else carried.followed_by(rows)
        starts = rows.image_starts()
        for begin, end in pairwise(starts[:-1]):
            if row_number - len(rows) + begin >= stop:
                return
            yield rows.image(begin, end)
        carried = rows.part(starts[-2], starts[-1])
    if carried is not None and row_number - len(carried) < stop:
        yield carried.image(0, len(carried))


def _last_image_id(part: Path, file: pq.ParquetFile, group: int) -> ImageId | None:
    """Return the id in the last row of a row group, as `_Rows` has it."""
    last = None
    for batch in _batches(part, file, ["image_id"], range(group, group + 1), ROWS_AT_ONCE):
        last = _image_ids(part, batch)[0].item(-1)
    return last


def _batches(
    part: Path, file: pq.ParquetFile, columns: list[str], groups: range, rows: int
) -> Iterator[pa.RecordBatch]:
    try:
        for batch in file.iter_batches(rows, row_groups=list(groups), columns=columns):
            if batch.num_rows:
                yield batch
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{part} must be a whole Parquet file, but it is damaged: {_first_line(error)}") from None


def _column(
    part: Path, batch: pa.RecordBatch, name: str, kind: pa.DataType
) -> tuple[NDArray[np.generic], NDArray[np.bool_]]:
    """Return a column's values, anything where null, and where it is given."""
    values = batch.column(name)
    try:
        values = values.cast(kind)
    except pa.ArrowException as error:
        raise InputError(f"{part}: {name} must be {kind}, but got {values.type}: {_first_line(error)}") from None
    given = values.is_valid().to_numpy(zero_copy_only=False)
    if not given.all():
        values = values.fill_null("" if kind == pa.string() else 0)
    return values.to_numpy(zero_copy_only=False), given


def _image_ids(part: Path, batch: pa.RecordBatch) -> tuple[NDArray[np.generic], NDArray[np.bool_]]:
    are_numbers = pa.types.is_integer(batch.schema.field("image_id").type)
    return _column(part, batch, "image_id", pa.int64() if are_numbers else pa.string())


def _rows_of(part: Path, batch: pa.RecordBatch, row_number: int) -> _Rows:
    column = partial(_column, part, batch)
    image_ids, ids_given = _image_ids(part, batch)
    category_ids, detected = column("category_id", pa.int64())
    numbers, numbers_given = zip(*(column(name, pa.float32()) for name in BOX_AND_SCORE), strict=True)
    for name, good in (
        ("image_id", ids_given),
        *zip(BOX_AND_SCORE, (g == detected for g in numbers_given), strict=True),
    ):
        if not good.all():
            wrong = row_number + int(np.argmin(good))
            raise InputError(
                f"{part}, record {wrong}: {name} must be given, except for an image without detections, "
                "where all columns but image_id, width and height are null"
            )
    boxes_and_scores = np.stack(numbers, axis=1)  # [N, 5]
    in_use = np.flatnonzero(detected)
    check_rows(part, boxes_and_scores[in_use, :4], boxes_and_scores[in_use, 4], in_use + row_number)
    boxes_and_scores[:, 4] = boxes_and_scores[:, 4].clip(0, 1)
    sizes = [column(name, pa.int64())[0] for name in SIZE if name in batch.schema.names]
    both = np.stack(sizes, axis=1) if len(sizes) == 2 else np.zeros((len(image_ids), 2), np.int64)
    return _Rows(image_ids, detected, category_ids, boxes_and_scores, both)  # type: ignore[arg-type]  # as cast above


def _open(part: Path) -> pq.ParquetFile:
    if not part.exists():
        raise InputError(f"{part} must be a file, but there is none; check the path")
    if part.stat().st_size == 0:
        raise InputError(f"{part} must hold data, but it is empty")
    try:
        # Without these two, the file or a whole row group is kept in memory.
        return pq.ParquetFile(part, pre_buffer=False, buffer_size=BUFFER_BYTES)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{part} must be a whole Parquet file, but it is damaged: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _parts(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    parts = sorted(path.glob("*.parquet"))
    if not parts:
        raise InputError(f"{path} must hold .parquet files, but there is none")
    return parts


def _groups(detections: Iterable[Detections]) -> Iterator[list[Detections]]:
    """Yield images in lists of about a row group."""
    group: list[Detections] = []
    rows = 0
    for image in detections:
        if image.image_id is None:
            raise InputError("detections must have an image_id to be written, but got None")
        group.append(image)
        rows += max(len(image), 1)
        if rows >= ROWS_PER_GROUP:
            yield group
            group, rows = [], 0
    if group:
        yield group


def _schema(group: list[Detections], categories: Mapping[int, str] | None) -> pa.Schema:
    ids_are_texts = bool(group) and isinstance(group[0].image_id, str)
    fields = [("image_id", pa.string() if ids_are_texts else pa.int64()), ("category_id", pa.int64())]
    fields += [(name, pa.float32()) for name in BOX_AND_SCORE] + [(name, pa.int32()) for name in SIZE]
    named = {CATEGORIES_KEY: json.dumps({str(key): name for key, name in categories.items()})} if categories else None
    return pa.schema(fields, metadata=named)


def _table(group: list[Detections], schema: pa.Schema) -> pa.Table:
    rows = np.array([max(len(image), 1) for image in group])
    absent = np.repeat([len(image) == 0 for image in group], rows)
    take = np.where(absent, 0, np.cumsum(~absent) - 1)  # which detection stands in a row
    numbers = np.concatenate([np.column_stack((image.boxes, image.scores)) for image in group])
    category_ids = np.concatenate([image.category_ids for image in group])
    if not len(numbers):
        numbers, category_ids = np.zeros((1, 5), np.float32), np.zeros(1, np.int64)
    columns = {"category_id": pa.array(category_ids[take], mask=absent)}
    columns |= {name: pa.array(numbers[take, i], mask=absent) for i, name in enumerate(BOX_AND_SCORE)}
    per_image = {"image_id": [image.image_id for image in group]}
    per_image |= {
        name: [image.image_size[i] if image.image_size else None for image in group] for i, name in enumerate(SIZE)
    }
    try:
        columns |= {
            name: pa.array(values, schema.field(name).type).take(np.repeat(np.arange(len(group)), rows))
            for name, values in per_image.items()
        }
    except (pa.ArrowException, TypeError) as error:
        raise InputError(f"image ids must be all numbers or all texts, but are not: {_first_line(error)}") from None
    return pa.table([columns[name] for name in schema.names], schema=schema)
