"""Run a detector on many photos, in batches and in order; a bad file is an item with its error."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from tallybox.concurrency import in_batches, map_in_order
from tallybox.detections.detections import Detections
from tallybox.errors import InputError, TallyboxError
from tallybox.photos.detector import Detector, Result, wrap_errors
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

    for path, result in map_photos(detect, paths, detector):
        if isinstance(result, InputError):
            yield DetectedPhoto(path, error=result)
        else:
            detections, photo = result
            yield DetectedPhoto(path, detections, photo=photo)


def map_photos(
    function: Callable[[Sequence[Photo]], list[Result]], paths: Iterable[Path], detector: Detector
) -> Iterator[tuple[Path, Result | InputError]]:
    """Yield what a function that uses a detector returns for each photo, or why a photo could not be read, in order."""
    read = partial(_read, reduced_to=2 * detector.size if isinstance(detector, PicoDet) else None)
    if isinstance(detector, PicoDet) and detector.device.type == "cpu":
        # Each thread reads and detects its own photos: threads that share a photo wait for each other at every layer.
        results = map_in_order(lambda batch: _call(function, [*map(read, batch)]), in_batches(paths, BATCH_ON_CPU))
        yield from chain.from_iterable(results)
        return
    # Several threads read and only this one detects: a thread that uses a GPU takes seconds to plan its convolutions.
    with ThreadPoolExecutor(max_workers=min(BATCH, os.cpu_count() or 1)) as threads:
        batches = in_batches(paths, BATCH_ON_GPU if isinstance(detector, PicoDet) else BATCH)
        being_read: list[Future[tuple[Path, Photo | InputError]]] = []
        for batch in chain(batches, [[]]):  # a batch is read while the one before it is detected
            last, being_read = being_read, [threads.submit(read, path) for path in batch]
            yield from _call(function, [future.result() for future in last])


def _read(path: Path, reduced_to: int | None) -> tuple[Path, Photo | InputError]:
    try:
        return path, read_photo(path, reduced_to=reduced_to)
    except InputError as error:
        return path, error


def _call(
    function: Callable[[Sequence[Photo]], list[Result]], batch: Sequence[tuple[Path, Photo | InputError]]
) -> list[tuple[Path, Result | InputError]]:
    """Call a function with the photos of a batch that could be read; the errors of the others keep their positions.

    A batch that makes the function fail is tried again photo by photo.
    """
    photos = [photo for _, photo in batch if isinstance(photo, Photo)]
    try:
        results = iter(function(photos) if photos else [])
    except InputError as error:
        if len(batch) == 1:
            return [(batch[0][0], error)]
        return [result for item in batch for result in _call(function, [item])]
    return [(path, next(results) if isinstance(photo, Photo) else photo) for path, photo in batch]


def _detect(photos: Sequence[Photo], detector: Detector) -> list[Detections]:
    """Return what a detector gives for photos; anything but `Detections` is an error of the detector."""
    name = f"{type(detector).__name__}.detect"
    with wrap_errors(f"{name} raised", with_type=True):
        detected = detector.detect(photos)
    if not isinstance(detected, Sequence) or len(detected) != len(photos):
        actual = f"a list of {len(detected)}" if isinstance(detected, Sequence) else f"a {type(detected).__name__}"
        raise TallyboxError(
            f"{name} must return a list of Detections, one for each of {len(photos)} photos, but gave {actual}"
        )
    for detections in detected:
        if not isinstance(detections, Detections):
            raise TallyboxError(f"{name} must return tallybox.Detections, but gave {type(detections).__name__}")
    names = getattr(detector, "categories", None)
    return [image if image.category_names or not names else image.renumbered({}, names) for image in detected]
