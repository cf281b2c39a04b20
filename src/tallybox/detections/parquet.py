"""Detections in Parquet, the format for data sets that do not fit into memory.

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

import json
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tallybox.detections.box_checks import check_in_image, check_not_corners
from tallybox.detections.detections import Detections, ImageId, Size
from tallybox.detections.rows import BOX_AND_SCORE, check_boxes_and_scores, image_key, image_size, two_sizes
from tallybox.errors import InputError
from tallybox.files import atomic_writing, error_summary, open_regular

SIZE = ("width", "height")
CATEGORIES_KEY = b"tallybox.categories"
ROWS_AT_ONCE = 1 << 15  # of a batch, 1.5 MB of columns; a piece may read a batch beyond its end
ROWS_PER_GROUP = 1 << 17  # that the writer collects; also the minimum of a piece
BUFFER_BYTES = 1 << 20  # of each column

_Column = tuple[NDArray[np.generic], NDArray[np.bool_]]  # values [N], and which are not null [N]


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
    """Return pieces of about 131,072 rows that make up a data set, in order; each image belongs to one of them."""
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
    part, first_group, stop_group = piece
    with _open(part) as file:
        names = file.schema_arrow.names
        if missing := [name for name in ("image_id", "category_id", *BOX_AND_SCORE) if name not in names]:
            raise InputError(f"{part} must have a column {missing[0]}, but it has only {names}")
        columns = ["image_id", "category_id", *BOX_AND_SCORE, *(name for name in SIZE if name in names)]
        group_rows = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        first_row, stop_row = sum(group_rows[:first_group]), sum(group_rows[:stop_group])
        image_before = None  # the image in the last row before the piece
        for batch in _batches(part, file, ["image_id"], [g for g in range(first_group) if group_rows[g]][-1:]):
            image_before = _image_ids(part, batch)[0][-1]
        batches = _batches(part, file, columns, range(first_group, file.num_row_groups))
        for row, rows, size in _rows_by_image(part, batches, first_row):
            if row >= stop_row:
                return
            if row > first_row or rows.image_ids[0] != image_before:  # else the image started in an earlier piece
                yield _image(part, rows, size)


def _rows_by_image(
    part: Path, batches: Iterable[pa.RecordBatch], first_row: int
) -> Iterator[tuple[int, _Rows, Size | None]]:
    """Yield the number of each image's first row, its rows, which may lie in several batches, and its size."""
    unfinished: _Rows | None = None  # of an image that may go on in the next batch
    for batch in batches:
        rows = _rows_of(part, batch, first_row)
        if not rows.sizes.any():
            check_not_corners(rows.boxes_and_scores[rows.is_detected, :4], str(part))
        first_row += batch.num_rows
        if unfinished:
            rows = _Rows(*map(np.concatenate, zip(unfinished, rows, strict=True)))
        number = len(rows.image_ids)
        starts = [0, *(np.flatnonzero(rows.image_ids[1:] != rows.image_ids[:-1]) + 1).tolist()]
        sizes = _image_sizes(part, rows, starts)
        for (begin, end), size in zip(pairwise(starts), sizes, strict=False):
            yield first_row - number + begin, _Rows(*[column[begin:end] for column in rows]), size
        unfinished = _Rows(*[column[starts[-1] :] for column in rows])
    if unfinished:
        yield first_row - len(unfinished.image_ids), unfinished, sizes[-1]


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
        reason = error_summary(error)
    raise InputError(f"{part}: {key.decode()} must be a JSON object, but it is not: {reason}")


class SeenImages:
    """Notices an image that comes back, in 8 bytes for each image that was read while ids ascend."""

    def __init__(self) -> None:
        self._ascending = array("q")
        self._all: set[ImageId | None] | None = None

    def check(self, part: Path, image_id: ImageId | None) -> None:
        """Add an image of a file; raise where it was added before."""
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
    return InputError(f"{part} must be a whole Parquet file, but it is damaged: {error_summary(error)}")


def _batches(part: Path, file: pq.ParquetFile, columns: list[str], groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
    if not groups:  # pyarrow 19 would raise as for a damaged file
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
        raise InputError(f"{part}: {name} must be {kind}, but got {values.type}: {error_summary(error)}") from None
    is_valid = values.is_valid().to_numpy(zero_copy_only=False)
    if not is_valid.all():
        values = values.fill_null("" if kind == pa.string() else 0)
    return values.to_numpy(zero_copy_only=False), is_valid


def _image_ids(part: Path, batch: pa.RecordBatch) -> _Column:
    are_numbers = pa.types.is_integer(batch.schema.field("image_id").type)
    return _column(part, batch, "image_id", pa.int64() if are_numbers else pa.string())


def _rows_of(part: Path, batch: pa.RecordBatch, row_number: int) -> _Rows:
    """Check a batch; ``row_number`` is that of its first row in the file."""
    image_ids, is_valid = _image_ids(part, batch)
    _check_present(part, "image_id", is_valid, row_number)
    category_ids, is_detected = _column(part, batch, "category_id", pa.int64())
    boxes_and_scores = np.empty((batch.num_rows, 5), np.float32)
    for index, name in enumerate(BOX_AND_SCORE):
        boxes_and_scores[:, index], is_valid = _column(part, batch, name, pa.float32())
        _check_present(part, name, is_valid == is_detected, row_number)
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


def _check_present(part: Path, name: str, is_right: NDArray[np.bool_], row_number: int) -> None:
    if not is_right.all():
        raise InputError(
            f"{part}, record {row_number + int(np.argmin(is_right))}: {name} must be given, except for an image "
            "without detections, where all columns but image_id, width and height are null"
        )


def _image_sizes(part: Path, rows: _Rows, starts: list[int]) -> list[Size | None]:
    """Return the size of each image, whose rows begin at ``starts``, None where not known; it must have only one."""
    sizes = np.maximum.reduceat(rows.sizes, starts)  # [I, 2]
    ends = [*starts[1:], len(rows.sizes)]
    differs = rows.sizes != sizes.repeat(np.subtract(ends, starts), axis=0)
    wrong = (differs[:, 0] | differs[:, 1]) & (rows.sizes[:, 0] > 0)
    if wrong.any():
        image = bisect_right(starts, int(np.argmax(wrong))) - 1
        stated = [size for size in rows.sizes[starts[image] : ends[image]].tolist() if any(size)]
        other = next(size for size in stated if size != stated[0])
        raise two_sizes(part, rows.image_ids.item(starts[image]), stated[0], other)
    return [(width, height) if width else None for width, height in sizes.tolist()]


def _image(part: Path, rows: _Rows, size: Size | None) -> Detections:
    detected = np.flatnonzero(rows.is_detected)  # as indices they copy the columns, so that no batch is kept alive
    boxes, scores = rows.boxes_and_scores[detected, :4], rows.boxes_and_scores[detected, 4]
    image_id = image_key(rows.image_ids.item(0))
    check_in_image(boxes, size, f"{part}, image {image_id!r}")
    return Detections.of_checked(boxes, scores, rows.category_ids[detected], size, image_id)


def write_parquet(
    detections: Iterable[Detections],
    path: Path,
    *,
    categories: Mapping[int, str] | None = None,
    metadata: Mapping[bytes, str] | None = None,
) -> int:
    """Write detections of images that have an id and return how many images there were.

    Row groups end where images end. Pages have checksums, which `read_parquet` verifies.
    """
    images = 0
    groups = _row_groups(detections)
    first = next(groups, [])
    ids_are_texts = bool(first) and isinstance(first[0].image_id, str)
    fields = [("image_id", pa.string() if ids_are_texts else pa.int64()), ("category_id", pa.int64())]
    fields += [(name, pa.float32()) for name in BOX_AND_SCORE] + [(name, pa.int32()) for name in SIZE]
    names = {CATEGORIES_KEY: json.dumps({str(key): name for key, name in categories.items()})} if categories else {}
    schema = pa.schema(fields, metadata={**(metadata or {}), **names} or None)
    with atomic_writing(path) as file, pq.ParquetWriter(file, schema, write_page_checksum=True) as writer:
        for group in chain([first] if first else [], groups):
            writer.write_table(_table(group, schema))
            images += len(group)
    return images


def _row_groups(detections: Iterable[Detections]) -> Iterator[list[Detections]]:
    """Yield the images of one row group after another."""
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


def _table(group: list[Detections], schema: pa.Schema) -> pa.Table:
    rows = [max(len(image), 1) for image in group]
    owners = np.repeat(np.arange(len(group)), rows)  # [R] the image of each row
    is_empty = np.repeat([len(image) == 0 for image in group], rows)  # [R]
    detection = pa.array(np.cumsum(~is_empty) - 1, mask=is_empty)  # [R] index in the group, null in empty images
    try:
        image_ids = pa.array([image.image_id for image in group], schema.field("image_id").type)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise InputError(
            f"image ids must be all texts or all numbers of 64 bits, but are not: {error_summary(error)}"
        ) from None
    columns = {"image_id": image_ids.take(owners)}
    columns["category_id"] = pa.array(np.concatenate([image.category_ids for image in group])).take(detection)
    numbers = np.concatenate([np.column_stack((image.boxes, image.scores)) for image in group])  # [D, 5]
    for index, name in enumerate(BOX_AND_SCORE):
        columns[name] = pa.array(numbers[:, index]).take(detection)
    sizes = [image.image_size or (None, None) for image in group]
    for index, name in enumerate(SIZE):
        columns[name] = pa.array([size[index] for size in sizes], schema.field(name).type).take(owners)
    return pa.table(columns, schema)
