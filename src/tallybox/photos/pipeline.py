"""Many photos through a detector, a batch at a time and in order; a bad file is an item with its error."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

from tallybox.detections.container import Detections
from tallybox.errors import InputError, TallyboxError
from tallybox.files import first_line
from tallybox.kernels.threads import map_in_order
from tallybox.photos.detector import Detector
from tallybox.photos.images import Photo, read_photo
from tallybox.photos.picodet import PicoDet

Item = TypeVar("Item")

BATCH = 8  # photos that are detected together, by a detector that is not ours
BATCH_ON_CPU, BATCH_ON_GPU = 2, 32  # by PicoDet


@dataclass(frozen=True)
class DetectedPhoto:
    """What was detected in one file, or why it could not be read."""

    path: Path
    detections: Detections | None = None
    error: InputError | None = None
    photo: Photo | None = None  # decoded; only where photos are kept


def detect_each(paths: Iterable[Path], detector: Detector, *, keep_photos: bool = False) -> Iterator[DetectedPhoto]:
    """Yield what is detected in photos, in order and in bounded memory whatever the number of photos."""
    read = partial(_read, reduced_to=2 * detector.size if isinstance(detector, PicoDet) else None)
    if isinstance(detector, PicoDet) and detector.device.type == "cpu":
        # Each thread reads and detects photos of its own: threads that share one wait for each other at every layer.
        detected = map_in_order(
            lambda some: _detect_batch([read(path) for path in some], detector, keep_photos),
            in_batches(paths, BATCH_ON_CPU),
        )
        yield from chain.from_iterable(detected)
        return
    # Threads read and one detects: each thread that uses a GPU makes its own plans for every convolution, in seconds.
    with ThreadPoolExecutor(max_workers=min(BATCH, os.cpu_count() or 1)) as threads:
        ahead: deque[list[Future[DetectedPhoto]]] = deque()
        for some in in_batches(paths, BATCH_ON_GPU if isinstance(detector, PicoDet) else BATCH):
            ahead.append([threads.submit(read, path) for path in some])
            if len(ahead) > 1:  # one batch is read while the other is detected
                yield from _detect_batch([one.result() for one in ahead.popleft()], detector, keep_photos)
        for futures in ahead:
            yield from _detect_batch([one.result() for one in futures], detector, keep_photos)


def _read(path: Path, reduced_to: int | None = None) -> DetectedPhoto:
    try:
        return DetectedPhoto(path, photo=read_photo(path, reduced_to=reduced_to))
    except InputError as error:
        return DetectedPhoto(path, error=error)


def _detect_batch(read: Sequence[DetectedPhoto], detector: Detector, keep_photos: bool) -> list[DetectedPhoto]:
    """Detect in the photos that could be read; the others stay where they are.

    Where a detector cannot take one of several photos, each goes through it alone: the others are detected.
    """
    try:
        detected = iter(_detect([one.photo for one in read if one.photo is not None], detector))
    except InputError as error:
        if len(read) == 1:
            return [DetectedPhoto(read[0].path, error=error)]
        return [found for one in read for found in _detect_batch([one], detector, keep_photos)]
    return [
        one if one.photo is None else DetectedPhoto(one.path, next(detected), photo=one.photo if keep_photos else None)
        for one in read
    ]


def _detect(photos: Sequence[Photo], detector: Detector) -> list[Detections]:
    """Return what a detector gives for photos; anything but `Detections` is an error of the detector."""
    if not photos:
        return []
    name = f"{type(detector).__name__}.detect"
    try:
        detected = detector.detect(photos)
    except TallyboxError:
        raise
    except Exception as error:  # of somebody's detector
        raise TallyboxError(f"{name} raised {type(error).__name__}: {first_line(error)}") from error
    if not isinstance(detected, Sequence) or len(detected) != len(photos):
        given = f"a list of {len(detected)}" if isinstance(detected, Sequence) else f"a {type(detected).__name__}"
        raise TallyboxError(
            f"{name} must return a list of Detections, one for each of {len(photos)} photos, but gave {given}"
        )
    for one in detected:
        if not isinstance(one, Detections):
            raise TallyboxError(f"{name} must return tallybox.Detections, but gave {type(one).__name__}")
    return list(detected)


def in_batches(items: Iterable[Item], number: int) -> Iterator[list[Item]]:
    """Yield items in lists of so many, the last with what is left."""
    remaining = iter(items)
    while some := list(islice(remaining, number)):
        yield some
