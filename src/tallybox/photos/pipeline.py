"""Many photos through a detector, a batch at a time and in order; a bad file is an item with its error."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from tallybox.detections.container import Detections
from tallybox.errors import InputError, TallyboxError
from tallybox.kernels.threads import in_batches, map_in_order
from tallybox.photos.detector import Detector, Found, one_line_errors
from tallybox.photos.images import Photo, read_photo
from tallybox.photos.picodet import PicoDet

BATCH = 8  # photos that are detected together, by a detector that is not ours
BATCH_ON_CPU, BATCH_ON_GPU = 2, 32  # by PicoDet

OnFailure = Callable[[InputError], None]  # takes what is wrong with a photo
OnProgress = Callable[[int, int], None]  # takes how many photos of how many are done


@dataclass(frozen=True)
class DetectedPhoto:
    """What was detected in one file, or why it could not be read."""

    path: Path
    detections: Detections | None = None
    error: InputError | None = None
    photo: Photo | None = None  # decoded; only where photos are kept


def detect_each(paths: Iterable[Path], detector: Detector, *, keep_photos: bool = False) -> Iterator[DetectedPhoto]:
    """Yield what is detected in photos, in order and in bounded memory whatever the number of photos."""

    def detect(photos: Sequence[Photo]) -> list[tuple[Detections, Photo | None]]:
        kept = photos if keep_photos else [None] * len(photos)
        return list(zip(_detect(photos, detector), kept, strict=True))

    for path, found in map_photos(detect, paths, detector):
        if isinstance(found, InputError):
            yield DetectedPhoto(path, error=found)
        else:
            yield DetectedPhoto(path, found[0], photo=found[1])


def map_photos(
    function: Callable[[Sequence[Photo]], list[Found]], paths: Iterable[Path], detector: Detector
) -> Iterator[tuple[Path, Found | InputError]]:
    """Yield what a function that uses a detector returns for each photo, or why a photo could not be read, in order."""
    read = partial(_read, reduced_to=2 * detector.size if isinstance(detector, PicoDet) else None)
    if isinstance(detector, PicoDet) and detector.device.type == "cpu":
        # Each thread reads and detects photos of its own: threads that share one wait for each other at every layer.
        found = map_in_order(lambda some: _call(function, [*map(read, some)]), in_batches(paths, BATCH_ON_CPU))
        yield from chain.from_iterable(found)
        return
    # Threads read and one detects: each thread that uses a GPU makes its own plans for every convolution, in seconds.
    with ThreadPoolExecutor(max_workers=min(BATCH, os.cpu_count() or 1)) as threads:
        ahead: deque[list[Future[tuple[Path, Photo | InputError]]]] = deque()
        for some in in_batches(paths, BATCH_ON_GPU if isinstance(detector, PicoDet) else BATCH):
            ahead.append([threads.submit(read, path) for path in some])
            if len(ahead) > 1:  # one batch is read while the other is detected
                yield from _call(function, [one.result() for one in ahead.popleft()])
        for futures in ahead:
            yield from _call(function, [one.result() for one in futures])


def _read(path: Path, reduced_to: int | None) -> tuple[Path, Photo | InputError]:
    try:
        return path, read_photo(path, reduced_to=reduced_to)
    except InputError as error:
        return path, error


def _call(
    function: Callable[[Sequence[Photo]], list[Found]], read: Sequence[tuple[Path, Photo | InputError]]
) -> list[tuple[Path, Found | InputError]]:
    """Call a function with the photos that could be read; the others stay where they are.

    Where it cannot take one of several photos, it is called with each alone.
    """
    photos = [photo for _, photo in read if isinstance(photo, Photo)]
    try:
        found = iter(function(photos) if photos else [])
    except InputError as error:
        if len(read) == 1:
            return [(read[0][0], error)]
        return [one for each in read for one in _call(function, [each])]
    return [(path, next(found) if isinstance(photo, Photo) else photo) for path, photo in read]


def _detect(photos: Sequence[Photo], detector: Detector) -> list[Detections]:
    """Return what a detector gives for photos; anything but `Detections` is an error of the detector."""
    name = f"{type(detector).__name__}.detect"
    with one_line_errors(f"{name} raised", with_type=True):
        detected = detector.detect(photos)
    if not isinstance(detected, Sequence) or len(detected) != len(photos):
        given = f"a list of {len(detected)}" if isinstance(detected, Sequence) else f"a {type(detected).__name__}"
        raise TallyboxError(
            f"{name} must return a list of Detections, one for each of {len(photos)} photos, but gave {given}"
        )
    for one in detected:
        if not isinstance(one, Detections):
            raise TallyboxError(f"{name} must return tallybox.Detections, but gave {type(one).__name__}")
    return list(detected)
