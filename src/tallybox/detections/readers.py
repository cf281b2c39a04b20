"""Readers: detections, true counts and names of categories from files, by their suffix."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tallybox.detections.category_names import COCO_CATEGORIES, category_id_of, check_known_ids, check_same_names
from tallybox.detections.detections import Detections
from tallybox.detections.labels import TrueCounts
from tallybox.errors import InputError
from tallybox.files import import_optional, suffix_without_gz


def read_detections(path: str | Path, categories: Mapping[int, str] = COCO_CATEGORIES) -> Iterator[Detections]:
    """Yield one `Detections` for each image of COCO results (``.json``), a CSV, or a Parquet file or folder.

    ``categories`` names the category ids for a CSV without ids: COCO's, an estimator's, or the file's own, as
    `read_category_names` returns them.

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


def read_for_estimator(
    path: Path, estimator_names: Mapping[int, str]
) -> tuple[Mapping[int, str], Iterator[Detections]]:
    """Return the names that a file gives its categories, which may be none, and its images for an estimator to count.

    Names and ids must be those of the estimator's categories.
    """
    names = stored_category_names(path, estimator_names)
    check_same_names(estimator_names, names, str(path))
    images = read_detections(path, estimator_names)
    return names, images if names else with_known_ids(images, estimator_names, path)


def with_known_ids(
    images: Iterable[Detections], estimator_names: Mapping[int, str], path: Path
) -> Iterator[Detections]:
    """Yield the images of a file without names, each checked by `check_known_ids`."""
    for image in images:
        check_known_ids(estimator_names, image.category_ids.tolist(), f"{path}, image {image.image_id!r}")
        yield image


def read_counts(
    path: str | Path, categories: Mapping[int, str] | None = None, *, blank_is_zero: bool = False
) -> TrueCounts:
    r"""Return the true counts of COCO instances (``.json``) or of a table (``.csv``, ``.tsv``, ``.xlsx``).

    A table has the columns ``image_id,category,count``, or one row for each image and one column for each category,
    whose empty cells are unknown unless ``blank_is_zero``. ``categories`` are the names that it may use, by default
    COCO's. ``.json`` and ``.csv`` may be gzipped.

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
    if suffix_without_gz(path) in (".csv", ".tsv") or path.suffix.lower() == ".xlsx":
        from tallybox.detections.count_tables import read_table_counts

        return read_table_counts(path, categories, blank_is_zero=blank_is_zero)
    raise InputError(f"labels must be a .json, .json.gz, .csv, .csv.gz, .tsv or .xlsx file, but got {path}")


def with_counts(
    images: Iterable[Detections],
    names: Mapping[int, str],
    labels: str | Path,
    *,
    only: Sequence[str] = (),
    missing_is_zero: bool = False,
    are_photos: bool = False,
) -> tuple[Iterable[Detections], TrueCounts]:
    """Return detections and the true counts in a file, under the category ids of the detections.

    ``names`` are the names of the detections' categories, empty where they are not known. Labels are matched by these
    names: a table may use them, and COCO instances take the detector's ids. Boxes of categories that the labels do not
    name are kept, because `tallybox count` sees them too; such categories are not labelled, because their objects were
    not counted. ``only`` names the categories whose counts are kept. With
    ``missing_is_zero``, images without labels hold no objects of the labelled categories; otherwise they are
    unlabelled. With ``are_photos``, image ids are paths, and labels may name a photo without folder or suffix.
    """
    counts = read_counts(labels, names or None, blank_is_zero=missing_is_zero)
    if not names and counts.categories and counts.categories.items() <= COCO_CATEGORIES.items():
        names = COCO_CATEGORIES  # of which COCO instances may hold only some
    if names:
        counts = counts.with_categories_of(names)
        counts = replace(counts, categories=names, labelled=counts.labelled_ids())
    if only:
        counts = counts.of_categories(category_id_of(name, counts.categories or COCO_CATEGORIES) for name in only)
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


def stored_category_names(path: Path, categories: Mapping[int, str] = COCO_CATEGORIES) -> Mapping[int, str]:
    """Return the names of categories that a Parquet or CSV file holds; a CSV without ids may use ``categories``."""
    if suffix_without_gz(path) == ".csv":
        from tallybox.detections.tables import read_csv_category_names

        return read_csv_category_names(path, categories)
    if not is_parquet(path):
        return {}
    _need("pyarrow", path)
    from tallybox.detections.parquet import read_parquet_categories

    return read_parquet_categories(path)


def is_parquet(path: Path) -> bool:
    """Return whether a path names a Parquet file, or a folder, which may hold Parquet files."""
    return path.is_dir() or path.suffix.lower() == ".parquet"


def _need(package: str, path: Path) -> None:
    """Raise, with what to install, where the package that reads a file is missing."""
    import_optional(package, needed_for=f"reading {path}", install="'tallybox[detections]'")
