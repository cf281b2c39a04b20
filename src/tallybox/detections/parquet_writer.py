"""The Parquet writer. The schema is that of `tallybox.detections.parquet`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tallybox.detections.container import Detections
from tallybox.detections.parquet import CATEGORIES_KEY, ROWS_PER_GROUP, SIZE
from tallybox.detections.rows import BOX_AND_SCORE
from tallybox.errors import InputError
from tallybox.files import atomic_writing, first_line


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
    found = pa.array(np.cumsum(~is_empty) - 1, mask=is_empty)  # [R] the detection of each row, null in empty images
    try:
        image_ids = pa.array([image.image_id for image in group], schema.field("image_id").type)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise InputError(
            f"image ids must be all texts or all numbers of 64 bits, but are not: {first_line(error)}"
        ) from None
    columns = {"image_id": image_ids.take(owners)}
    columns["category_id"] = pa.array(np.concatenate([image.category_ids for image in group])).take(found)
    numbers = np.concatenate([np.column_stack((image.boxes, image.scores)) for image in group])  # [D, 5]
    for index, name in enumerate(BOX_AND_SCORE):
        columns[name] = pa.array(numbers[:, index]).take(found)
    sizes = [image.image_size or (None, None) for image in group]
    for index, name in enumerate(SIZE):
        columns[name] = pa.array([size[index] for size in sizes], schema.field(name).type).take(owners)
    return pa.table(columns, schema)
