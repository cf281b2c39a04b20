"""Find the photos and the files of detections that paths, folders and patterns name."""

import collections
import glob
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tallybox.errors import InputError
from tallybox.files import suffix_without_gz
from tallybox.photos.images import SUFFIXES

DETECTION_SUFFIXES = (".json", ".csv", ".parquet")

THUMBNAILS = {"@eaDir", ".thumbnails", ".@__thumb"}  # folders of file servers and desktops
COUNTED_COPY = re.compile(r".+_counted(?:-\d+)?\.jpg")  # the pictures of `tallybox count --save`


class Source(NamedTuple):
    """One photo, or one file of detections."""

    path: Path
    is_photo: bool
    folder: Path | None = None  # the folder that was named, for a photo in it or below


def find_sources(paths: Iterable[str | Path], skipped: collections.Counter[str] | None = None) -> list[Source]:
    """Return the photos and files of paths, folders and patterns such as ``photos/*.jpg``, in order.

    A folder stands for all photos in it and below, known by their suffixes and sorted by name, without hidden files and
    without the pictures (``NAME_counted.jpg``) of `tallybox count --save`. A file that is named itself is a photo
    unless it has a suffix of detections.
    Duplicates are dropped. Files that are left out are counted in ``skipped``, by suffix.
    """
    sources: list[Source] = []
    skipped = collections.Counter[str]() if skipped is None else skipped
    for pattern in map(str, paths):
        if not pattern.strip():
            raise InputError("empty path")
        # Path.glob takes no absolute pattern.
        matches = [pattern] if Path(pattern).exists() else sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207
        if not matches:
            raise InputError(f"No such file or folder: {pattern}")
        sources += [source for path in matches for source in _of_path(Path(path), skipped)]
    by_path: dict[str, Source] = {}
    for source in sources:
        by_path.setdefault(os.path.abspath(source.path), source)  # noqa: PTH100 - Path.absolute keeps ".."
    return list(by_path.values())


def find_photos(paths: Iterable[str | Path]) -> dict[str, Path]:
    """Return the photos that paths, folders and patterns stand for by their ids, which must differ.

    The id of a photo in a folder is its path from that folder, with slashes; that of a photo named itself is its name.
    """
    photos: dict[str, Path] = {}
    for path, is_photo, folder in find_sources(paths):
        if not is_photo:
            raise InputError(f"{path} is not a photo or a folder of photos")
        image_id = path.name if folder is None else path.relative_to(folder).as_posix()
        if photos.setdefault(image_id, path) != path:
            raise InputError(
                f"{photos[image_id]} and {path} have the same id, {image_id!r}; name one folder that contains both"
            )
    if not photos:
        raise InputError("No photos found")
    return photos


def _of_path(path: Path, skipped: collections.Counter[str]) -> list[Source]:
    if not path.is_dir():
        return [Source(path, suffix_without_gz(path) not in DETECTION_SUFFIXES)]
    photos = []
    for file in sorted(file for file in path.rglob("*") if file.is_file()):
        parts, suffix = file.relative_to(path).parts, file.suffix.lower()
        if THUMBNAILS.intersection(parts):
            skipped["in thumbnail folders"] += 1
        elif any(part.startswith(".") for part in parts):
            continue
        elif COUNTED_COPY.fullmatch(file.name):
            skipped["_counted.jpg"] += 1
        elif suffix in SUFFIXES:
            photos.append(Source(file, True, path))
        else:
            skipped[suffix or "no suffix"] += 1
    if not photos:
        raise InputError(f"{path} has no photos")
    return photos
