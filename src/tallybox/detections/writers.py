"""Writers: detections to files, by their suffix."""

import gzip
import json
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from tallybox.detections.category_names import COCO_CATEGORIES
from tallybox.detections.detections import Detections
from tallybox.errors import InputError
from tallybox.files import atomic_writing, check_writable, import_optional, suffix_without_gz


def write_detections(detections: Iterable[Detections], path: Path, *, categories: Mapping[int, str]) -> int:
    """Write a ``.parquet`` file or COCO results (``.json``, ``.json.gz``) and return how many images there were.

    COCO results hold no names of categories, so that categories other than COCO's need Parquet.
    """
    check_can_be_written(path)
    if path.suffix.lower() == ".parquet":
        import_optional("pyarrow", needed_for=f"writing {path}", install="'tallybox[detections]'")
        from tallybox.detections.parquet import write_parquet

        return write_parquet(detections, path, categories=categories)
    for category_id, name in categories.items():
        if COCO_CATEGORIES.get(category_id) != name:
            raise InputError(
                f"{path} cannot hold names of categories, and {name!r} is none of COCO's; write a .parquet file"
            )
    return _write_coco_results(detections, path)


def check_can_be_written(path: Path) -> None:
    """Raise, before hours of detecting, where detections could not be written to a path; make its folder."""
    if path.suffix.lower() != ".parquet" and suffix_without_gz(path) != ".json":
        raise InputError(f"detections must be written to a .parquet, .json or .json.gz file, but got {path}")
    check_writable(path)


def _write_coco_results(detections: Iterable[Detections], path: Path) -> int:
    """Write COCO results, gzipped where the name ends in ``.gz``; an image without detections leaves no trace there."""
    images, separator = 0, b"["
    with atomic_writing(path) as plain:
        is_packed = path.suffix.lower() == ".gz"
        # Without the time and name of the file, the same detections give the same bytes.
        with gzip.GzipFile("", "wb", fileobj=plain, mtime=0) if is_packed else nullcontext(plain) as file:
            for image in detections:
                images += 1
                if image.image_id is None:
                    raise InputError("detections must have an image_id to be written, but got None")
                boxes_xywh = np.concatenate((image.boxes[:, :2], image.boxes[:, 2:] - image.boxes[:, :2]), axis=1)
                for category_id, box, score in zip(image.category_ids, boxes_xywh, image.scores, strict=True):
                    result: dict[str, Any] = {"image_id": image.image_id, "category_id": int(category_id)}
                    result["bbox"] = [round(float(side), 3) for side in box]
                    result["score"] = round(float(score), 6)
                    file.write(separator + json.dumps(result).encode())
                    separator = b",\n"
            file.write(b"]\n" if separator != b"[" else b"[]\n")
    return images
