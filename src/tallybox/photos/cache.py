"""Detections on the disk: a file for `tallybox fit` and `tallybox count`, and a folder that survives interruptions.

The folder holds Parquet files of 32 photos each, so that an interrupted run resumes and no photo is detected twice. A
photo is detected again if its size, its time or the detector has changed.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tallybox.concurrency import in_batches
from tallybox.detections.detections import Detections
from tallybox.detections.writers import check_can_be_written, write_detections
from tallybox.errors import InputError
from tallybox.files import import_optional
from tallybox.photos.detector import categories_of
from tallybox.photos.pipeline import OnFailure, OnProgress, PhotoResult, detect_each
from tallybox.photos.specs import DEFAULT_SPEC, detector_of

PHOTOS_PER_FILE = 32  # of a folder: at most so many are detected again after an interruption
METADATA_KEY = b"tallybox.photos"

Engine = Literal["local", "ray"]


class DetectionSummary(NamedTuple):
    """The numbers of photos and boxes that were written."""

    photos: int
    boxes: int


def unfinished_folder(out: Path) -> Path:
    """Return the folder beside an output that keeps detections until the output is complete."""
    return out.with_name(f"{out.name}.unfinished")


def detect_to_file(
    photos: Mapping[str, Path],
    out: Path,
    *,
    spec: str = DEFAULT_SPEC,
    texts: Sequence[str] = (),
    engine: Engine = "local",
    on_failure: OnFailure = lambda error: None,
    on_progress: OnProgress = lambda done, total: None,
) -> DetectionSummary:
    """Write the detections of photos, by their ids, to a file, which appears when all of them are done.

    The same call resumes after an interruption. A photo that cannot be read is given to ``on_failure``.
    """
    check_can_be_written(out)
    folder = unfinished_folder(out)
    categories, images = cached_detections(
        photos, folder, spec=spec, texts=texts, engine=engine, on_failure=on_failure, on_progress=on_progress
    )
    write_detections(images, out, categories=categories)
    shutil.rmtree(folder)
    return DetectionSummary(len(images), sum(map(len, images)))


def cached_detections(
    photos: Mapping[str, Path],
    folder: Path,
    *,
    spec: str = DEFAULT_SPEC,
    texts: Sequence[str] = (),
    engine: Engine = "local",
    check: Callable[[Mapping[int, str]], None] = lambda categories: None,
    on_failure: OnFailure = lambda error: None,
    on_progress: OnProgress = lambda done, total: None,
    photos_per_file: int = PHOTOS_PER_FILE,
) -> tuple[Mapping[int, str], list[Detections]]:
    """Return the names of a detector's categories and its detections in photos, under the photos' ids.

    They come from the folder. Photos that are not in it yet are detected and added. Before that, ``check`` gets the
    names and may raise. A photo that cannot be read is given to ``on_failure`` and left out.
    """
    import_optional("pyarrow", needed_for="keeping detections", install="'tallybox[detections]'")
    from tallybox.detections.writers import write_parquet

    origin = {"detector": [spec, *texts], "model": file_state(Path(spec.partition(":")[2]))}
    states = {image_id: file_state(path) for image_id, path in photos.items()}
    categories, kept = _read(folder, origin, states)
    missing = {image_id: path for image_id, path in photos.items() if image_id not in kept}
    done = len(kept)
    on_progress(done, len(photos))
    if missing:
        detector = detector_of(spec, texts=texts)
        categories = categories_of(detector)
        check(categories)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"Cannot create the folder {folder}: {error.strerror}") from None
        if engine == "ray":
            from tallybox.photos.distributed import detect_each_with_ray

            detected = detect_each_with_ray(spec, texts, missing.values())
        else:
            detected = detect_each(missing.values(), detector)
        names = (folder / f"{number:05}.parquet" for number in count(1))
        for batch in in_batches(zip(missing, detected, strict=True), photos_per_file):
            new = {str(image.image_id): image for image in _detections(batch, on_failure)}
            if new:
                stored = json.dumps({**origin, "photos": {image_id: states[image_id] for image_id in new}})
                path = next(name for name in names if not name.exists())
                write_parquet(new.values(), path, categories=categories, metadata={METADATA_KEY: stored})
            kept |= new
            done += len(batch)
            on_progress(done, len(photos))
    if not kept:
        raise InputError(f"None of {len(photos)} photos can be read")
    return categories, [kept[image_id] for image_id in photos if image_id in kept]


def _detections(detected: Iterable[tuple[str, PhotoResult]], on_failure: OnFailure) -> Iterator[Detections]:
    """Yield the detections of the photos that could be read, under their ids."""
    for image_id, photo in detected:
        if photo.detections is not None:
            yield replace(photo.detections, image_id=image_id)
        elif photo.error is not None:
            on_failure(photo.error)


def _read(
    folder: Path, origin: Mapping[str, Any], states: Mapping[str, Any]
) -> tuple[Mapping[int, str], dict[str, Detections]]:
    """Return the detections in the folder of photos that have not changed since."""
    from tallybox.detections.readers import CATEGORIES_KEY, read_detections, read_parquet_metadata

    categories: Mapping[int, str] = {}
    kept: dict[str, Detections] = {}
    for part in sorted(folder.glob("*.parquet")):
        stored = read_parquet_metadata(part, METADATA_KEY)
        if any(stored.get(key) != value for key, value in origin.items()):
            continue
        stored_states = stored.get("photos", {})
        for image in read_detections(part):
            image_id = str(image.image_id)
            if image_id in states and stored_states.get(image_id) == states[image_id]:
                kept[image_id] = replace(image, image_id=image_id)
        categories = {int(key): name for key, name in read_parquet_metadata(part, CATEGORIES_KEY).items()}
    return categories, kept


def file_state(path: Path) -> list[Any] | None:
    """Return the size and the time of a file, or of the files in a folder; None if there is none."""
    try:
        if path.is_dir():
            return [[file.name, *(file_state(file) or [])] for file in sorted(path.iterdir()) if file.is_file()]
        state = path.stat()
    except (OSError, ValueError):
        return None
    return [state.st_size, state.st_mtime_ns]
