"""From photos to detections on the disk: a file that `tallybox fit` and `tallybox count` read, or a folder.

The folder holds Parquet files of some photos each, written one after the other, so that an interrupted run goes on
where it was and no photo goes through a detector twice. A photo is detected again if its size, its time or the detector
has changed.
"""

import json
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
from tallybox.photos.pipeline import DetectedPhoto, OnFailure, OnProgress, detect_each
from tallybox.photos.specs import DEFAULT_SPEC, detector_of

PHOTOS_PER_FILE = 32  # of a folder: as many as are detected again, at most, after an interruption
METADATA_KEY = b"tallybox.photos"


class DetectionSummary(NamedTuple):
    """What was written."""

    photos: int
    boxes: int


def detect_to_file(
    photos: Mapping[str, Path],
    out: Path,
    *,
    spec: str = DEFAULT_SPEC,
    texts: Sequence[str] = (),
    engine: Literal["local", "ray"] = "local",
    on_failure: OnFailure = lambda error: None,
    on_progress: OnProgress = lambda done, total: None,
) -> DetectionSummary:
    """Write what a detector finds in photos, by their ids, to a file, which appears when all of them are done.

    A photo that cannot be read is given to ``on_failure``, and the others are written.
    """
    check_can_be_written(out)
    if engine == "ray":
        from tallybox.photos.distributed import detect_each_with_ray

        categories, detected = detect_each_with_ray(spec, texts, list(photos.values()))
    else:
        detector = detector_of(spec, texts=texts)
        categories, detected = categories_of(detector), detect_each(photos.values(), detector)
    boxes: list[int] = []  # of each photo that was read

    def each() -> Iterator[Detections]:
        for number, photo in enumerate(zip(photos, detected, strict=True), 1):
            for detections in _detections([photo], on_failure):
                boxes.append(len(detections))
                yield detections
            on_progress(number, len(photos))
        if not boxes:
            raise InputError(f"no photo of {len(photos)} could be read, so that nothing was written to {out}")

    write_detections(each(), out, categories=categories)
    return DetectionSummary(len(boxes), sum(boxes))


def cached_detections(
    photos: Mapping[str, Path],
    folder: Path,
    *,
    spec: str = DEFAULT_SPEC,
    texts: Sequence[str] = (),
    check: Callable[[Mapping[int, str]], None] = lambda categories: None,
    on_failure: OnFailure = lambda error: None,
    on_progress: OnProgress = lambda done, total: None,
) -> tuple[Mapping[int, str], list[Detections]]:
    """Return the names of a detector's categories and its detections in photos, under the photos' ids.

    They come from the folder. Photos that it does not hold yet are detected and added to it. Before that, ``check``
    gets the names and may raise. A photo that cannot be read is given to ``on_failure`` and left out.
    """
    import_optional("pyarrow", needed_for="keeping detections", install="'tallybox[detections]'")
    from tallybox.detections.writers import write_parquet

    origin = {"detector": [spec, *texts], "model": _state(Path(spec.partition(":")[2]))}
    states = {image_id: _state(path) for image_id, path in photos.items()}
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
            raise InputError(f"{folder} must be a folder for detections, but: {error.strerror}") from None
        names = (folder / f"{number:05}.parquet" for number in count(1))
        detected = zip(missing, detect_each(missing.values(), detector), strict=True)
        for batch in in_batches(detected, PHOTOS_PER_FILE):
            new = {str(image.image_id): image for image in _detections(batch, on_failure)}
            if new:
                stored = json.dumps({**origin, "photos": {image_id: states[image_id] for image_id in new}})
                path = next(name for name in names if not name.exists())
                write_parquet(new.values(), path, categories=categories, metadata={METADATA_KEY: stored})
            kept |= new
            done += len(batch)
            on_progress(done, len(photos))
    if not kept:
        raise InputError(f"there must be a photo that can be read, but none of {len(photos)} can")
    return categories, [kept[image_id] for image_id in photos if image_id in kept]


def _detections(detected: Iterable[tuple[str, DetectedPhoto]], on_failure: OnFailure) -> Iterator[Detections]:
    """Yield the detections of the photos that could be read, under their ids."""
    for image_id, photo in detected:
        if photo.detections is not None:
            yield replace(photo.detections, image_id=image_id)
        elif photo.error is not None:
            on_failure(photo.error)


def _read(
    folder: Path, origin: Mapping[str, Any], states: Mapping[str, Any]
) -> tuple[Mapping[int, str], dict[str, Detections]]:
    """Return what the folder holds of photos as they are now."""
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


def _state(path: Path) -> list[Any] | None:
    """Return the size and the time of a file, or of the files in a folder; None where there is none."""
    try:
        if path.is_dir():
            return [[file.name, *(_state(file) or [])] for file in sorted(path.iterdir()) if file.is_file()]
        state = path.stat()
    except (OSError, ValueError):
        return None
    return [state.st_size, state.st_mtime_ns]
