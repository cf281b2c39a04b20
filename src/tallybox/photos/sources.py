"""What to count in: photos, folders of photos, patterns, and files of detections, distinguished by name."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tallybox.errors import InputError
from tallybox.files import suffix_without_gz
from tallybox.photos.images import SUFFIXES, is_outlined_copy

DETECTION_SUFFIXES = (".json", ".csv", ".parquet")

COUNTED_COPY = re.compile(r".+_counted(?:-\d+)?\.jpg")  # only such names are looked into


class Source(NamedTuple):
    """One photo, or one file (or folder, of Parquet) of detections."""

    path: Path
    is_photo: bool
    folder: Path | None = None  # that was named and in which this photo was found


def find_sources(paths: Iterable[str | Path]) -> list[Source]:
    """Return what paths, folders and patterns such as ``photos/*.jpg`` stand for, in order.

    Of a folder, all photos in it and below are taken by their suffixes, by name; hidden ones are left out, and outlined
    copies of the others (``NAME_counted.jpg``) that `tallybox count --save` wrote there. A folder of Parquet files is
    one file of detections. A file that is named itself is a photo unless its suffix says detections.
    """
    sources: list[Source] = []
    for given in paths:
        # Path.glob takes no absolute pattern.
        found = [given] if Path(given).exists() else sorted(glob.glob(str(given), recursive=True))  # noqa: PTH207
        if not found:
            raise InputError(f"PATH must be a file, a folder or a pattern that fits some, but got {str(given)!r}")
        for path in found:
            sources += _of_path(Path(path))
    return sources


def find_photos(paths: Iterable[str | Path]) -> dict[str, Path]:
    """Return the photos that paths, folders and patterns stand for by their ids, which must differ.

    The id of a photo in a folder is its path from that folder, with slashes; that of a photo named itself is its name.
    """
    photos: dict[str, Path] = {}
    for path, is_photo, folder in find_sources(paths):
        if not is_photo:
            if path.is_dir():  # Parquet files beside the photos, perhaps of an earlier run
                continue
            raise InputError(f"PHOTOS must be photos or folders of them, but got {path}")
        image_id = path.name if folder is None else path.relative_to(folder).as_posix()
        if photos.setdefault(image_id, path) != path:
            raise InputError(
                f"photos must have different ids, but {photos[image_id]} and {path} are both {image_id!r}; "
                "name one folder that holds both"
            )
    if not photos:
        raise InputError("PHOTOS must be photos or folders of them, but there is no photo among them")
    return photos


def _of_path(path: Path) -> list[Source]:
    if not path.is_dir():
        return [Source(path, suffix_without_gz(path) not in DETECTION_SUFFIXES)]
    found = ((file, file.relative_to(path).parts) for file in path.rglob("*"))
    inside = sorted(file for file, parts in found if not any(part.startswith(".") for part in parts))
    photos = [Source(file, True, path) for file in inside if file.suffix.lower() in SUFFIXES and file.is_file()]
    copies = [s for s in photos if COUNTED_COPY.fullmatch(s.path.name) and is_outlined_copy(s.path)]
    photos = [source for source in photos if source not in copies] or copies  # a folder of copies alone was meant
    tables = [Source(path, False)] if any(file.suffix.lower() == ".parquet" for file in inside) else []
    if not photos and not tables:
        raise InputError(f"{path} must hold photos or Parquet files of detections, but it holds neither")
    return tables + photos
