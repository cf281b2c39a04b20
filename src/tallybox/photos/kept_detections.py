"""Detections of photos that are kept in a folder, so that no photo goes through a detector twice.

The folder holds Parquet files of some photos each, written one after the other: detecting can be interrupted and goes
on where it was. A photo is detected again where its size or its time has changed, and where the detector is another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any

from tallybox.detections.container import Detections
from tallybox.errors import InputError
from tallybox.files import import_optional
from tallybox.photos.detector import categories_of
from tallybox.photos.pipeline import detect_each
from tallybox.photos.specs import DEFAULT_SPEC, detector_of

PHOTOS_PER_FILE = 32  # as many as are detected again, at most, after an interruption
METADATA_KEY = b"tallybox.photos"


def keep_detections(
    photos: Mapping[str, Path],
    folder: Path,
    *,
    spec: str = DEFAULT_SPEC,
    texts: Sequence[str] = (),
    on_failure: Callable[[InputError], None] = lambda error: None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Mapping[int, str], list[Detections]]:
    """Return the names of the categories, and what a detector finds in photos, by their ids; both from the folder.

    Photos that the folder does not hold yet are detected and added to it. One that cannot be read is given to
    ``on_failure`` and left out.
    """
    import_optional("pyarrow", needed_for="keeping detections", install="'tallybox[detections]'")
    from tallybox.detections.parquet_writer import write_parquet

    origin = {"detector": [spec, *texts], "model": _state(Path(spec.partition(":")[2]))}
    states = {image_id: _state(path) for image_id, path in photos.items()}
    categories, found = _read(folder, origin, states)
    missing = [image_id for image_id in photos if image_id not in found]
    on_progress(len(found), len(photos))
    if missing:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder} must be a folder for detections, but: {error.strerror}") from None
        detector = detector_of(spec, texts=texts)
        categories, done = categories_of(detector), len(found)
        names = (folder / f"{number:05}.parquet" for number in count(1))
        detected = zip(missing, detect_each((photos[image_id] for image_id in missing), detector), strict=True)
        while some := list(islice(detected, PHOTOS_PER_FILE)):
            images = []
            for image_id, one in some:
                if one.detections is not None:
                    images.append(replace(one.detections, image_id=image_id))
                elif one.error is not None:
                    on_failure(one.error)
            if images:
                stored = {**origin, "photos": {str(image.image_id): states[str(image.image_id)] for image in images}}
                path = next(name for name in names if not name.exists())
                write_parquet(images, path, categories=categories, metadata={METADATA_KEY: json.dumps(stored)})
            found.update((str(image.image_id), image) for image in images)
            done += len(some)
            on_progress(done, len(photos))
    if not found:
        raise InputError(f"there must be a photo that can be read, but none of {len(photos)} can")
    return categories, [found[image_id] for image_id in photos if image_id in found]


def _read(
    folder: Path, origin: Mapping[str, Any], states: Mapping[str, Any]
) -> tuple[Mapping[int, str], dict[str, Detections]]:
    """Return what the folder holds of photos as they are now."""
    from tallybox.detections.parquet import read_parquet, read_parquet_categories, read_parquet_metadata

    categories: Mapping[int, str] = {}
    found: dict[str, Detections] = {}
    for part in sorted(folder.glob("*.parquet")):
        stored = read_parquet_metadata(part, METADATA_KEY)
        if any(stored.get(key) != value for key, value in origin.items()):
            continue
        then = stored.get("photos", {})
        images: Iterable[Detections] = read_parquet(part)
        for image in images:
            image_id = str(image.image_id)
            if image_id in states and then.get(image_id) == states[image_id]:
                found[image_id] = replace(image, image_id=image_id)
        categories = read_parquet_categories(part)
    return categories, found


def _state(path: Path) -> list[Any] | None:
    """Return the size and the time of a file, or of the files in a folder; None where there is none."""
    try:
        if path.is_dir():
            return [[file.name, *(_state(file) or [])] for file in sorted(path.iterdir()) if file.is_file()]
        state = path.stat()
    except (OSError, ValueError):
        return None
    return [state.st_size, state.st_mtime_ns]
