"""Writers: data frames and detections to files, by their suffix."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tallybox.detections.categories import COCO_CATEGORIES
from tallybox.detections.detections import Detections, ImageId
from tallybox.detections.readers import CATEGORIES_KEY
from tallybox.errors import InputError
from tallybox.files import atomic_writing, check_writable, error_summary, import_optional, is_special, suffix_without_gz

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("image_id", "category_id", "x1", "y1", "x2", "y2", "score", "width", "height")


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a data frame without its index, atomically, as .csv, .tsv, .xlsx or .parquet by the path's suffix.

    Devices and pipes without a suffix get CSV.
    """
    suffix = path.suffix.lower() or (".csv" if is_special(path) else "")
    with atomic_writing(path) as file:
        if suffix in (".csv", ".tsv"):
            frame.to_csv(file, index=False, sep="," if suffix == ".csv" else "\t", errors="surrogateescape")
        elif suffix == ".xlsx":
            import_optional("openpyxl", needed_for=f"writing {path}", install="'tallybox[detections]'")
            frame.to_excel(file, index=False, engine="openpyxl")
        elif suffix == ".parquet":
            frame.to_parquet(file, index=False)
        else:
            raise InputError(f"{path}: not a table; expected .csv, .tsv, .xlsx or .parquet")


def write_detections(detections: Iterable[Detections], path: Path, *, categories: Mapping[int, str]) -> None:
    """Write a ``.parquet`` file or COCO results (``.json``, ``.json.gz``).

    COCO results hold no names of categories, so that categories other than COCO's need Parquet. An image without
    detections leaves no trace in them.
    """
    check_can_be_written(path)
    if path.suffix.lower() == ".parquet":
        write_parquet(detections, path, categories=categories)
        return
    for category_id, name in categories.items():
        if COCO_CATEGORIES.get(category_id) != name:
            raise InputError(f"{path}: JSON has no names of categories, and {name!r} is not COCO's; write .parquet")
    images, results = list(detections), list[dict[str, Any]]()
    for image_id, image in zip(_ids_of(images), images, strict=True):
        boxes_xywh = np.concatenate((image.boxes[:, :2], image.boxes[:, 2:] - image.boxes[:, :2]), axis=1).tolist()
        for category_id, box, score in zip(image.category_ids.tolist(), boxes_xywh, image.scores.tolist(), strict=True):
            result: dict[str, Any] = {"image_id": image_id, "category_id": category_id}
            results.append(result | {"bbox": [round(side, 3) for side in box], "score": round(score, 6)})
    content = json.dumps(results).encode()
    with atomic_writing(path) as file:  # without the time, the same detections give the same bytes
        file.write(gzip.compress(content, mtime=0) if path.suffix.lower() == ".gz" else content)


def check_can_be_written(path: Path) -> None:
    """Raise, before hours of detecting, if detections cannot be written to a path; make its folder."""
    if path.suffix.lower() != ".parquet" and suffix_without_gz(path) != ".json":
        raise InputError(f"{path}: detections can be written as .parquet, .json or .json.gz")
    check_writable(path)


def _ids_of(images: list[Detections]) -> list[ImageId]:
    if any(image.image_id is None for image in images):
        raise InputError("Detections need an image_id to be written")
    return [image.image_id for image in images if image.image_id is not None]


def write_parquet(
    detections: Iterable[Detections],
    path: Path,
    *,
    categories: Mapping[int, str] | None = None,
    metadata: Mapping[bytes, str] | None = None,
) -> None:
    """Write detections of images that have an id.

    There is a row for each box, and one of nulls for an image without boxes. Pages have checksums, which
    `read_detections` verifies.
    """
    import_optional("pyarrow", needed_for=f"writing {path}", install="'tallybox[detections]'")
    import pyarrow as pa
    import pyarrow.parquet as pq

    images = list(detections)
    ids, empty = _ids_of(images), np.full((1, 6), np.nan)
    boxes = [np.column_stack((i.category_ids, i.boxes, i.scores)) if len(i) else empty for i in images]  # [N, 6]
    owners = np.repeat(np.arange(len(images)), [len(rows) for rows in boxes])  # [R] the image of each row
    sizes = np.array([image.image_size or (np.nan, np.nan) for image in images]).reshape(-1, 2)[owners]  # [R, 2]
    numbers = np.column_stack((np.concatenate([empty[:0], *boxes]), sizes)).T  # [8, R]
    try:
        image_ids = pa.array(ids, pa.string() if ids and isinstance(ids[0], str) else pa.int64())
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise InputError(f"Image ids must be all texts or all numbers of 64 bits: {error_summary(error)}") from None
    columns = [image_ids.take(owners), *(pa.array(column, from_pandas=True) for column in numbers)]  # NaN is null
    types = [image_ids.type, pa.int64(), *[pa.float32()] * 5, *[pa.int32()] * 2]
    names = {CATEGORIES_KEY: json.dumps({str(key): name for key, name in categories.items()})} if categories else {}
    schema = pa.schema(zip(COLUMNS, types, strict=True), metadata={**(metadata or {}), **names} or None)
    with atomic_writing(path) as file:
        pq.write_table(pa.table(columns, list(COLUMNS)).cast(schema), file, write_page_checksum=True)
