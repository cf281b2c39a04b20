"""Run a detector on many photos, in batches and in order; a bad photo is an item with its error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from tallybox.concurrency import in_batches, map_in_order
from tallybox.detections.detections import Detections, ImageId
from tallybox.errors import InputError, TallyboxError
from tallybox.estimator.prediction import CountPrediction, ImagePredictions
from tallybox.photos.detector import Detector, Result, wrap_errors
from tallybox.photos.images import Photo, PhotoSource, VideoFrame, read_photo
from tallybox.photos.picodet import PicoDet
from tallybox.photos.tiles import Tiling, crop_windows, join_useful_windows, join_windows, plan_windows

BATCH = 8  # photos that detectors other than PicoDet get together

OnFailure = Callable[[InputError], None]  # takes the error of a photo
OnProgress = Callable[[int, int], None]  # takes the number of photos done, and of all


@dataclass(frozen=True)
class PhotoResult:
    """The detections and counts of one photo, or the error if it could not be read."""

    source: PhotoSource | None  # as it was given; None for an image of a file of detections
    detections: Detections | None = None
    error: InputError | None = None
    photo: Photo | None = None  # decoded; only if photos are kept
    predictions: ImagePredictions | None = None
    tiling: Tiling | None = None  # None if the photo was counted as a whole

    @property
    def path(self) -> Path | None:
        """The photo's path, if it was given by one; that of a video's frame has its time."""
        if isinstance(self.source, VideoFrame):
            return Path(self.source.name)
        return Path(self.source) if isinstance(self.source, str | Path) else None

    @property
    def seconds(self) -> float | None:
        """The time of a video's frame."""
        return self.source.seconds if isinstance(self.source, VideoFrame) else None

    @property
    def name(self) -> ImageId | None:
        """The photo's path, or the id of an image of a file."""
        if self.path is not None:
            return str(self.path)
        return None if self.detections is None else self.detections.image_id

    @property
    def counts(self) -> dict[str, CountPrediction]:
        """The predictions by the names of categories; empty if the photo could not be read."""
        return {} if self.predictions is None else self.predictions.by_name()


def detect_each(
    sources: Iterable[PhotoSource], detector: Detector, *, keep_photos: bool = False
) -> Iterator[PhotoResult]:
    """Yield the detections of photos, in order and in bounded memory."""

    def detect(photos: Sequence[Photo]) -> list[tuple[Detections, Photo]]:
        return list(zip(detect_photos(photos, detector), photos, strict=True))

    for source, result in map_photos(detect, sources, detector):
        if isinstance(result, InputError):
            yield PhotoResult(source, error=result)
        else:
            yield PhotoResult(source, result[0], photo=result[1] if keep_photos else None)


def detect_in_windows(
    photo: Photo, side: int, detector: Detector, *, coarser: bool = False
) -> tuple[Detections, int, int]:
    """Return the detections of a photo from overlapping windows, the side of the finest ones, and how many there are.

    With ``coarser``, windows that show hardly more than coarser ones are left out, and the side is 0 if all are.
    """
    windows = plan_windows(photo.size_wh, side)
    found = [*_map_batches(partial(detect_photos, detector=detector), crop_windows(photo, windows), detector)]
    if coarser:
        return *join_useful_windows(photo, windows, found), len(windows)
    return join_windows(photo, windows, found), side, len(windows)


def map_photos(
    function: Callable[[Sequence[Photo]], list[Result]], sources: Iterable[PhotoSource], detector: Detector
) -> Iterator[tuple[PhotoSource, Result | InputError]]:
    """Yield the result of a function that uses a detector for each photo, or the photo's error, in order."""
    read = partial(_read, detector=detector)
    if _runs_in_threads(detector):  # each reads its own photos
        return _map_batches(lambda batch: _call(function, [*map(read, batch)]), sources, detector)
    ahead = detector.batch if isinstance(detector, PicoDet) else 0  # decode a batch while a GPU is busy with another
    return _map_batches(partial(_call, function), map_in_order(read, sources, ahead=ahead), detector)


def _map_batches(
    function: Callable[[list[Any]], list[Result]], items: Iterable[Any], detector: Detector
) -> Iterator[Result]:
    """Yield the results of a function that uses a detector for batches of items."""
    batches = in_batches(items, detector.batch if isinstance(detector, PicoDet) else BATCH)
    if not isinstance(detector, PicoDet):
        return chain.from_iterable(map(function, batches))
    # Threads that share a photo on a CPU wait for each other at every layer. On a GPU, one thread detects while the
    # caller counts; more would each take seconds to plan their convolutions.
    threads = None if _runs_in_threads(detector) else 1
    return chain.from_iterable(map_in_order(function, batches, threads=threads))


def _runs_in_threads(detector: Detector) -> bool:
    return isinstance(detector, PicoDet) and detector.device.type == "cpu"


def _read(source: PhotoSource, detector: Detector) -> tuple[PhotoSource, Photo | InputError]:
    try:
        if not isinstance(detector, PicoDet):
            return source, read_photo(source)
        photo = read_photo(source, reduced_to=2 * detector.size)
        if not _runs_in_threads(detector):
            _ = photo.pixels  # in this thread rather than in the one that detects
        return source, photo
    except InputError as error:
        return source, error


def _call(
    function: Callable[[Sequence[Photo]], list[Result]], batch: Sequence[tuple[PhotoSource, Photo | InputError]]
) -> list[tuple[PhotoSource, Result | InputError]]:
    """Call a function with the readable photos of a batch; the errors of the others keep their positions.

    If the function fails on a batch, it is called again photo by photo.
    """
    photos = [photo for _, photo in batch if isinstance(photo, Photo)]
    try:
        results = iter(function(photos) if photos else [])
    except InputError as error:
        if len(batch) == 1:
            return [(batch[0][0], error)]
        return [result for item in batch for result in _call(function, [item])]
    return [(source, next(results) if isinstance(photo, Photo) else photo) for source, photo in batch]


def detect_photos(photos: Sequence[Photo], detector: Detector) -> list[Detections]:
    """Call a detector and check that it returns `Detections`, one for each photo."""
    name = f"{type(detector).__name__}.detect"
    with wrap_errors(f"{name} failed"):
        detected = list(detector.detect(photos))
    kinds = [type(image).__name__ for image in detected if not isinstance(image, Detections)]
    if kinds or len(detected) != len(photos):
        actual = kinds[0] if kinds else f"{len(detected)} of them"
        raise TallyboxError(f"{name} must return {len(photos)} tallybox.Detections, one for each photo; got {actual}")
    names = getattr(detector, "categories", None)
    return [image if image.category_names or not names else image.renumbered({}, names) for image in detected]
