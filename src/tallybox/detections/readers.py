"""Readers: detections, true counts and names of categories from files, by their suffix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tallybox.detections.category_names import COCO_CATEGORIES, category_id_of
from tallybox.detections.container import Detections
from tallybox.detections.labels import TrueCounts
from tallybox.errors import InputError
from tallybox.files import import_optional, suffix_without_gz


def read_detections(path: str | Path, categories: Mapping[int, str] = COCO_CATEGORIES) -> Iterator[Detections]:
    """Yield one `Detections` for each image of COCO results (``.json``), a CSV, or a Parquet file or folder.

    ``categories`` are the names, with their ids, that a CSV without ids uses: those of COCO, of an estimator, or its
    own, as `read_category_names` returns them.

    ``.json`` and ``.csv`` may be gzipped. Only Parquet is read in bounded memory: in the others, the boxes of an image
    may stand anywhere. They take 60 bytes a box, and JSON 150 more while it is read.

    >>> import json, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "results.json"
    ...     _ = file.write_text(json.dumps([{"image_id": 7, "category_id": 18, "bbox": [1, 2, 3, 4], "score": 0.5}]))
    ...     [(image.image_id, len(image)) for image in read_detections(file)]
    [(7, 1)]
    """
    path = Path(path)
    if is_parquet(path):
        _need("pyarrow", path)
        from tallybox.detections.parquet import read_parquet

        return read_parquet(path)
    if suffix_without_gz(path) == ".json":
        _need("msgspec", path)
        from tallybox.detections.coco import read_coco_results

        return read_coco_results(path)
    if suffix_without_gz(path) == ".csv":
        from tallybox.detections.tables import read_csv_detections

        return read_csv_detections(path, stored_category_names(path, categories) or categories)
    raise InputError(f"detections must be a .json, .json.gz, .csv, .csv.gz or .parquet file, but got {path}")


def read_counts(
    path: str | Path, categories: Mapping[int, str] = COCO_CATEGORIES, *, blank_is_zero: bool = False
) -> TrueCounts:
    r"""Return the true counts of COCO instances (``.json``) or of a table (``.csv``, ``.xlsx``).

    A table has the columns ``image_id,category,count``, or one row for each image and one column for each category.
    ``categories`` are the names that it may use. Empty cells of the latter are unknown unless ``blank_is_zero``.
    ``.json`` and ``.csv`` may be gzipped.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "counts.csv"
    ...     _ = file.write_text("image_id,category,count\n7,dog,3\n")
    ...     read_counts(file).count(7, 18)
    3
    """
    path = Path(path)
    if suffix_without_gz(path) == ".json":
        _need("msgspec", path)
        from tallybox.detections.coco import read_coco_instances

        return read_coco_instances(path)
    if suffix_without_gz(path) == ".csv" or path.suffix.lower() == ".xlsx":
        from tallybox.detections.tables import read_table_counts

        return read_table_counts(path, categories, blank_is_zero=blank_is_zero)
    raise InputError(f"labels must be a .json, .json.gz, .csv, .csv.gz or .xlsx file, but got {path}")


def with_counts(
    images: Iterable[Detections],
    names: Mapping[int, str],
    labels: str | Path,
    *,
    only: Sequence[str] = (),
    missing_is_zero: bool = False,
    are_photos: bool = False,
) -> tuple[Iterable[Detections], TrueCounts]:
    """Return detections and the true counts in a file, with the detections' category ids.

    ``names`` are those of the detections' categories, as far as they are known. Then labels go by these names: a table
    may use them, and those of COCO instances take the detector's ids. Boxes of categories that the labels do not name
    are left out, since nobody counted such objects. ``only`` names the categories to keep the counts of. With
    ``missing_is_zero``, images without labels hold no objects of the labelled categories; otherwise they are
    unlabelled. Labels find photos, whose ids are paths, also by the name with or without its suffix.
    """
    counts = read_counts(labels, names or COCO_CATEGORIES, blank_is_zero=missing_is_zero)
    counts = counts.with_categories_of(names) if names else counts
    if names and not counts.categories.keys() >= names.keys():
        images = (image.of_categories(counts.categories) for image in images)
    if only:
        known = counts.categories or COCO_CATEGORIES
        counts = counts.of_categories(category_id_of(name, known) for name in only)
    if are_photos or missing_is_zero:
        images = list(images)
    if are_photos:
        counts = counts.of_photos([str(image.image_id) for image in images])
    if missing_is_zero:
        counts = counts.with_zeros(images)
    return images, counts


def read_category_names(path: str | Path) -> Mapping[int, str]:
    """Return the names that a file of detections gives its categories, else those of COCO."""
    return stored_category_names(Path(path)) or COCO_CATEGORIES


def stored_category_names(path: Path, known: Mapping[int, str] = COCO_CATEGORIES) -> Mapping[int, str]:
    """Return the names that a file of detections carries: Parquet, or a CSV, whose names may be ``known`` ones."""
    if suffix_without_gz(path) == ".csv":
        from tallybox.detections.tables import read_csv_category_names

        return read_csv_category_names(path, known)
    if not is_parquet(path):
        return {}
    _need("pyarrow", path)
    from tallybox.detections.parquet import read_parquet_categories

    return read_parquet_categories(path)


def is_parquet(path: Path) -> bool:
    """Return whether a path names a Parquet file or a folder, which may hold some."""
    return path.is_dir() or path.suffix.lower() == ".parquet"


def _need(package: str, path: Path) -> None:
    """Raise what to install where a package that reads a file is missing."""
    import_optional(package, needed_for=f"reading {path}", install="'tallybox[detections]'")
