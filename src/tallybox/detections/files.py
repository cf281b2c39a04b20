"""Reading by file name: detections, true counts and names of categories, whatever they are stored in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tallybox.detections.category_names import COCO_CATEGORIES
from tallybox.detections.compressed import plain_suffix
from tallybox.detections.container import Detections
from tallybox.detections.labels import TrueCounts
from tallybox.errors import InputError, TallyboxError


def read_detections(path: str | Path) -> Iterator[Detections]:
    """Yield one `Detections` for each image of COCO results (``.json``), a CSV, or a Parquet file or folder.

    ``.json`` and ``.csv`` may be gzipped. Parquet is read in bounded memory; the others hold 40 bytes a box, since
    the boxes of an image may stand anywhere in them.

    >>> import json, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "results.json"
    ...     _ = file.write_text(json.dumps([{"image_id": 7, "category_id": 18, "bbox": [1, 2, 3, 4], "score": 0.5}]))
    ...     [(image.image_id, len(image)) for image in read_detections(file)]
    [(7, 1)]
    """
    path = Path(path)
    if is_parquet(path):
        with _extra(path):
            from tallybox.detections.parquet import read_parquet

        return read_parquet(path)
    if plain_suffix(path) == ".json":
        with _extra(path):
            from tallybox.detections.coco import read_coco_results

        return read_coco_results(path)
    if plain_suffix(path) == ".csv":
        from tallybox.detections.tables import read_csv_detections

        return read_csv_detections(path)
    raise InputError(f"detections must be a .json, .json.gz, .csv, .csv.gz or .parquet file, but got {path}")


def read_counts(path: str | Path) -> TrueCounts:
    r"""Return the true counts of COCO instances (``.json``) or of a CSV ``image_id,category,count``, gzipped or not.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "counts.csv"
    ...     _ = file.write_text("image_id,category,count\n7,dog,3\n")
    ...     read_counts(file).count(7, 18)
    3
    """
    path = Path(path)
    if plain_suffix(path) == ".json":
        with _extra(path):
            from tallybox.detections.coco import read_coco_instances

        return read_coco_instances(path)
    if plain_suffix(path) == ".csv":
        from tallybox.detections.tables import read_csv_counts

        return read_csv_counts(path)
    raise InputError(f"labels must be a .json, .json.gz, .csv or .csv.gz file, but got {path}")


def read_category_names(path: str | Path) -> Mapping[int, str]:
    """Return the names that a file of detections gives its categories, else those of COCO."""
    path = Path(path)
    if is_parquet(path):
        with _extra(path):
            from tallybox.detections.parquet import read_parquet_categories

        return read_parquet_categories(path) or COCO_CATEGORIES
    return COCO_CATEGORIES


def is_parquet(path: Path) -> bool:
    """Return whether a path names a Parquet file or a folder, which may hold some."""
    return path.is_dir() or path.suffix.lower() == ".parquet"


@contextmanager
def _extra(path: Path) -> Iterator[None]:
    """Say how to install what reading a file needs, where importing it fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in ("msgspec", "pyarrow"):
            raise
        raise TallyboxError(
            f"reading {path} needs the package {error.name}, which is not installed; pip install 'tallybox[detections]'"
        ) from None
