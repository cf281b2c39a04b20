"""Many photos through a detector, some at a time and in order; a bad file is an item with its error."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tallybox.detections.container import Detections
from tallybox.errors import InputError, TallyboxError
from tallybox.files import first_line
from tallybox.kernels.threads import map_in_order
from tallybox.photos.detector import Detector
from tallybox.photos.images import Photo, read_photo
from tallybox.photos.picodet import PicoDet

BATCH = 8  # photos that are detected together on a GPU, or by a detector that is not ours
PHOTOS_PER_TASK = 2  # likewise on a CPU, where each thread reads and detects photos of its own


@dataclass(frozen=True)
class DetectedPhoto:
    """What was detected in one file, or why it could not be read."""

    path: Path
    detections: Detections | None
    error: InputError | None = None


def detect_each(paths: Iterable[Path], detector: Detector, *, batch: int = BATCH) -> Iterator[list[DetectedPhoto]]:
    """Yield what is detected in photos, a batch at a time, in order.

    Memory is bounded whatever the number of photos.
    """
    if isinstance(detector, PicoDet):
        # Each thread reads and detects photos of its own: layers that share a photo between threads wait for each
        # other at every layer, and a GPU has work while other threads decode and thin.
        photos_per_task = PHOTOS_PER_TASK if detector.device.type == "cpu" else batch
        tasks = _batches(paths, photos_per_task)
        yield from map_in_order(lambda some: detect_batch([_read(path, detector) for path in some], detector), tasks)
        return
    with ThreadPoolExecutor(max_workers=min(batch, os.cpu_count() or 1)) as threads:
        ahead = []
        for some in _batches(paths, batch):
            ahead.append([threads.submit(_read, path, detector) for path in some])
            if len(ahead) > 1:  # one batch is read while the other is detected
                yield detect_batch([read.result() for read in ahead.pop(0)], detector)
        for futures in ahead:
            yield detect_batch([read.result() for read in futures], detector)


def detect_batch(read: Sequence[tuple[Path, Photo | InputError]], detector: Detector) -> list[DetectedPhoto]:
    """Detect in the photos that could be read, and keep the others in their places.

    Where a detector cannot take one of several photos, each goes through it alone: the others are detected.
    """
    photos = [photo for _, photo in read if isinstance(photo, Photo)]
    try:
        detected = iter(_detect(photos, detector))
    except InputError as error:
        if len(read) == 1:
            return [DetectedPhoto(read[0][0], None, error)]
        return [photo for one in read for photo in detect_batch([one], detector)]
    return [
        DetectedPhoto(path, next(detected)) if isinstance(photo, Photo) else DetectedPhoto(path, None, photo)
        for path, photo in read
    ]


def _detect(photos: Sequence[Photo], detector: Detector) -> list[Detections]:
    """Return what a detector gives for photos; that it gives something else is an error of the detector."""
    if not photos:
        return []
    try:
        detected = detector.detect(photos)
    except TallyboxError:
        raise
    except Exception as error:  # of somebody's detector
        raise TallyboxError(
            f"{type(detector).__name__}.detect raised {type(error).__name__}: {first_line(error)}"
        ) from error
    if not isinstance(detected, Sequence) or len(detected) != len(photos):
        given = f"a list of {len(detected)}" if isinstance(detected, Sequence) else f"a {type(detected).__name__}"
        raise TallyboxError(
            f"{type(detector).__name__}.detect must return a list of Detections, one for each of {len(photos)} photos, "
            f"but gave {given}"
        )
    for one in detected:
        if not isinstance(one, Detections):
            raise TallyboxError(
                f"{type(detector).__name__}.detect must return tallybox.Detections, but gave {type(one).__name__}"
            )
    return list(detected)


def _read(path: Path, detector: Detector) -> tuple[Path, Photo | InputError]:
    reduced_to = 2 * detector.size if isinstance(detector, PicoDet) else None
    try:
        return path, read_photo(path, reduced_to=reduced_to)
    except InputError as error:
        return path, error


def _batches(paths: Iterable[Path], number: int) -> Iterator[list[Path]]:
    remaining = iter(paths)
    while some := list(islice(remaining, number)):
        yield some
