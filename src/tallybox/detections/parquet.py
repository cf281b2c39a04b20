"""Detections in Parquet: the format for data sets that no memory holds.

| column | type | holds |
|---|---|---|
| ``image_id`` | int64 or string | the rows of one image stand together |
| ``category_id`` | int64 | null where nothing was detected in the image, as are all columns below |
| ``x1``, ``y1``, ``x2``, ``y2`` | float32 | corners of the box |
| ``score`` | float32 | in [0, 1] |
| ``width``, ``height`` | int32 | size of the image, or null; the columns may be missing |

Other columns are ignored. The names of the categories may stand in the file's metadata under ``tallybox.categories``,
as JSON from id to name. A folder of ``.parquet`` files is one data set, read by name. Row groups may end anywhere, also
within an image; a file may not. Where pages have checksums, they are verified.
"""

from __future__ import annotations

import json
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tallybox.detections.box_checks import check_in_image, check_not_corners
from tallybox.detections.container import Detections, ImageId, Size
from tallybox.detections.rows import BOX_AND_SCORE, check_boxes_and_scores, image_key, image_size, two_sizes
from tallybox.errors import InputError
from tallybox.files import first_line, open_regular

SIZE = ("width", "height")
CATEGORIES_KEY = b"tallybox.categories"
ROWS_AT_ONCE = 1 << 15  # 1.5 MB of columns; a piece may read so many rows beyond its end
ROWS_PER_GROUP = 1 << 17  # what the writer holds, and the minimum of a piece
BUFFER_BYTES = 1 << 20  # of each column

_Column = tuple[NDArray[np.generic], NDArray[np.bool_]]  # values [N], and which are given [N]


class ParquetPiece(NamedTuple):
    """Row groups of one file that are read independently of all others; by default all of them."""

    part: Path
    first_group: int = 0
    stop_group: int = sys.maxsize


class _Rows(NamedTuple):
    image_ids: NDArray[Any]  # [N] int64 or texts
    is_detected: NDArray[Any]  # [N] bool, False in the row of an image without detections
    category_ids: NDArray[Any]  # [N] int64
    boxes_and_scores: NDArray[Any]  # [N, 5] float32
    sizes: NDArray[Any]  # [N, 2] int64, 0 where not known


def read_parquet(path: Path) -> Iterator[Detections]:
    """Yield the detections of each image while reading, in memory that does not grow with the rows.

    An image that comes back after others is an error, since its first part was yielded before. `SeenImages` detects
    this in 8 bytes an image where ids are ascending numbers, else in a set of the ids.
    """
    seen = SeenImages()
    for part in _parts(path):
        for image in read_parquet_piece(ParquetPiece(part)):
            seen.check(part, image.image_id)
            yield image


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

    An image that comes back in another piece goes unnoticed: check with `SeenImages` where pieces come together.
    """
    part = piece.part
    with _open(part) as file:
        names = file.schema_arrow.names
        if missing := [name for name in ("image_id", "category_id", *BOX_AND_SCORE) if name not in names]:
            raise InputError(f"{part} must have a column {missing[0]}, but it has only {names}")
        columns = ["image_id", "category_id", *BOX_AND_SCORE, *(name for name in SIZE if name in names)]
        counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        row, stop = sum(counts[: piece.first_group]), sum(counts[: piece.stop_group])
        earlier = [group for group in range(piece.first_group) if counts[group]]
        begun = None  # the image in the last row before, which belongs to another piece
        for batch in _batches(part, file, ["image_id"], earlier[-1:]):
            begun = _image_ids(part, batch)[0][-1]
        rows: _Rows | None = None  # of an image that may go on in the next batch
        for batch in _batches(part, file, columns, range(piece.first_group, len(counts))):
            if row - (len(rows.image_ids) if rows else 0) >= stop:
                return
            new = _rows_of(part, batch, row)
            if not new.sizes.any():
                check_not_corners(new.boxes_and_scores[new.is_detected, :4], str(part))
            row += batch.num_rows
            if begun is not None:
                ours = np.logical_or.accumulate(new.image_ids != begun)
                if not ours.any():
                    continue
                new, begun = _Rows(*(column[ours] for column in new)), None
            rows = _Rows(*map(np.concatenate, zip(rows, new, strict=True))) if rows else new
            first_row = row - len(rows.image_ids)
            starts = [0, *(np.flatnonzero(rows.image_ids[1:] != rows.image_ids[:-1]) + 1).tolist()]
            sizes = _image_sizes(part, rows, starts)
            for (begin, end), size in zip(pairwise(starts), sizes, strict=False):  # the last image may go on
                if first_row + begin >= stop:
                    return
                yield _image(part, rows, begin, end, size)
            rows = _Rows(*(column[starts[-1] :] for column in rows))
        if rows and row - len(rows.image_ids) < stop:
            yield _image(part, rows, 0, len(rows.image_ids), sizes[-1])


def read_parquet_categories(path: Path) -> dict[int, str]:
    """Return the names of the categories that the file's metadata gives, which may be none."""
    first = _parts(path)[0]
    stored = read_parquet_metadata(first, CATEGORIES_KEY)
    try:
        return {int(category_id): str(name) for category_id, name in stored.items()}
    except ValueError as error:
        raise InputError(f"{first}: tallybox.categories must be JSON from id to name, but it is not: {error}") from None


def read_parquet_metadata(part: Path, key: bytes) -> dict[str, Any]:
    """Return the JSON object that a file's metadata holds under a key, empty where there is none."""
    with _open(part) as file:
        metadata = file.schema_arrow.metadata or {}
    try:
        stored = json.loads(metadata.get(key, "{}"))
        if isinstance(stored, dict):
            return stored
        reason = f"it is a {type(stored).__name__}"
    except (ValueError, RecursionError) as error:
        reason = first_line(error)
    raise InputError(f"{part}: {key.decode()} must be a JSON object, but it is not: {reason}")


class SeenImages:
    """The images of a data set that were read: 8 bytes each while their ids ascend."""

    def __init__(self) -> None:
        self._ascending = array("q")
        self._all: set[ImageId | None] | None = None

    def check(self, part: Path, image_id: ImageId | None) -> None:
        """Raise where an image of a file was there before."""
        if self._all is None:
            if isinstance(image_id, int) and (not self._ascending or image_id > self._ascending[-1]):
                self._ascending.append(image_id)
                return
            self._all = set(self._ascending)
        if image_id in self._all:
            raise InputError(
                f"{part}: the rows of an image must stand together, but image {image_id!r} comes back after others; "
                "sort the rows by image_id"
            )
        self._all.add(image_id)


def _parts(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    if not (parts := sorted(path.glob("*.parquet"))):
        raise InputError(f"{path} must hold .parquet files, but there is none")
    return parts


def _open(part: Path) -> pq.ParquetFile:
    open_regular(part).close()
    try:
        # Without the first two, the file or a whole row group is kept in memory.
        return pq.ParquetFile(part, pre_buffer=False, buffer_size=BUFFER_BYTES, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(part, error) from None


def _damaged(part: Path, error: Exception) -> InputError:
    return InputError(f"{part} must be a whole Parquet file, but it is damaged: {first_line(error)}")


def _batches(part: Path, file: pq.ParquetFile, columns: list[str], groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
    if not groups:  # pyarrow 19 takes that for damage
        return
    try:
        for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=list(groups), columns=columns):
            if batch.num_rows:
                yield batch
    except (pa.ArrowException, OSError) as error:
        raise _damaged(part, error) from None


def _column(part: Path, batch: pa.RecordBatch, name: str, kind: pa.DataType) -> _Column:
    """Return a column; its values are 0 or "" where null."""
    values = batch.column(name)
    try:
        values = values.cast(kind)
    except pa.ArrowException as error:
        raise InputError(f"{part}: {name} must be {kind}, but got {values.type}: {first_line(error)}") from None
    given = values.is_valid().to_numpy(zero_copy_only=False)
    if not given.all():
        values = values.fill_null("" if kind == pa.string() else 0)
    return values.to_numpy(zero_copy_only=False), given


def _image_ids(part: Path, batch: pa.RecordBatch) -> _Column:
    are_numbers = pa.types.is_integer(batch.schema.field("image_id").type)
    return _column(part, batch, "image_id", pa.int64() if are_numbers else pa.string())


def _rows_of(part: Path, batch: pa.RecordBatch, row_number: int) -> _Rows:
    """Check a batch; ``row_number`` is that of its first row in the file."""
    image_ids, is_given = _image_ids(part, batch)
    _check_given(part, "image_id", is_given, row_number)
    category_ids, is_detected = _column(part, batch, "category_id", pa.int64())
    boxes_and_scores = np.empty((batch.num_rows, 5), np.float32)
    for index, name in enumerate(BOX_AND_SCORE):
        boxes_and_scores[:, index], is_given = _column(part, batch, name, pa.float32())
        _check_given(part, name, is_given == is_detected, row_number)
    detected = np.flatnonzero(is_detected)
    check_boxes_and_scores(part, boxes_and_scores[detected, :4], boxes_and_scores[detected, 4], detected + row_number)
    boxes_and_scores[:, 4] = boxes_and_scores[:, 4].clip(0, 1)
    sizes = np.zeros((batch.num_rows, 2), np.int64)
    for index, name in enumerate(SIZE):
        if name in batch.schema.names:
            sizes[:, index] = _column(part, batch, name, pa.int64())[0]
    changes = sizes[1:] != sizes[:-1]
    for index in (0, *(np.flatnonzero(changes[:, 0] | changes[:, 1]) + 1).tolist()):
        image_size(f"{part}, record {row_number + index}", *sizes[index].tolist())
    return _Rows(image_ids, is_detected, category_ids, boxes_and_scores, sizes)


def _check_given(part: Path, name: str, is_right: NDArray[np.bool_], row_number: int) -> None:
    if not is_right.all():
        raise InputError(
            f"{part}, record {row_number + int(np.argmin(is_right))}: {name} must be given, except for an image "
            "without detections, where all columns but image_id, width and height are null"
        )


def _image_sizes(part: Path, rows: _Rows, starts: list[int]) -> list[Size]:
    """Return the size of each image, whose rows begin at ``starts``, (0, 0) where not known; it must have only one."""
    sizes = np.maximum.reduceat(rows.sizes, starts)  # [I, 2]
    ends = [*starts[1:], len(rows.sizes)]
    differs = rows.sizes != sizes.repeat(np.subtract(ends, starts), axis=0)
    wrong = (differs[:, 0] | differs[:, 1]) & (rows.sizes[:, 0] > 0)
    if wrong.any():
        image = bisect_right(starts, int(np.argmax(wrong))) - 1
        known = [size for size in rows.sizes[starts[image] : ends[image]].tolist() if any(size)]
        other = next(size for size in known if size != known[0])
        raise two_sizes(part, rows.image_ids.item(starts[image]), known[0], other)
    return [(width, height) for width, height in sizes.tolist()]


def _image(part: Path, rows: _Rows, begin: int, end: int, size: Size) -> Detections:
    found = np.flatnonzero(rows.is_detected[begin:end]) + begin  # copies the columns, so that no batch is kept alive
    boxes, scores = rows.boxes_and_scores[found, :4], rows.boxes_and_scores[found, 4]
    image_id, known_size = image_key(rows.image_ids.item(begin)), size if any(size) else None
    check_in_image(boxes, known_size, f"{part}, image {image_id!r}")
    return Detections.of_checked(boxes, scores, rows.category_ids[found], known_size, image_id)
