"""Run a detector on many photos, in batches and in order; a bad photo is an item with its error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from tallybox.concurrency import in_batches, map_in_order
from tallybox.detections.detections import Detections, ImageId
from tallybox.errors import InputError, TallyboxError
from tallybox.estimator.prediction import CountPrediction, ImagePredictions
from tallybox.files import wrap_errors
from tallybox.photos.detector import Detector
from tallybox.photos.images import Photo, PhotoSource, Result, VideoFrame, read_photo
from tallybox.photos.picodet import PicoDet

BATCH = 8  # photos that detectors other than PicoDet get together

OnFailure = Callable[[InputError], None]  # takes the error of a photo
OnProgress = Callable[[int, int], None]  # takes the number of photos done, and of all


class Tiling(NamedTuple):
    """How a photo was counted in windows."""

    side: int  # of the finest windows, in pixels of the photo
    windows: int
    seconds: float


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
    sources: Iterable[PhotoSource],
    detector: Detector,
    *,
    keep_photos: bool = False,
    leave: Callable[[PhotoSource], bool] | None = None,
) -> Iterator[PhotoResult]:
    """Yield the detections of photos, in order and in bounded memory; a photo to ``leave`` has none, and no error."""

    def detect(photos: Sequence[Photo]) -> list[PhotoResult]:
        found = zip(detect_photos(photos, detector), photos, strict=True)
        return [PhotoResult(None, detections, photo=photo if keep_photos else None) for detections, photo in found]

    def left(source: PhotoSource) -> PhotoResult | None:
        return PhotoResult(source) if leave is not None and leave(source) else None

    for source, result in map_photos(detect, sources, detector, left):
        yield PhotoResult(source, error=result) if isinstance(result, InputError) else replace(result, source=source)


def map_photos(
    function: Callable[[Sequence[Photo]], list[Result]],
    sources: Iterable[PhotoSource],
    detector: Detector,
    unread: Callable[[PhotoSource], Result | None] | None = None,
) -> Iterator[tuple[PhotoSource, Result | InputError]]:
    """Yield the result of a function that uses a detector for each photo, or the photo's error, in order.

    A photo for which ``unread`` returns a result is not read.
    """
    read, call = partial(_read, detector=detector, unread=unread), partial(_call, function)
    if not isinstance(detector, PicoDet):
        return chain.from_iterable(map(call, in_batches(map_in_order(read, sources), BATCH)))
    if detector.device.type == "cpu":
        # Each thread reads and detects by itself: threads that share a photo wait for each other at every layer.
        return map_in_order(lambda source: call([read(source)])[0], sources)
    # A batch is decoded while one thread detects and the caller counts. More threads that detect would each take
    # seconds to plan their convolutions.
    photos = map_in_order(read, sources, ahead=detector.batch)
    return chain.from_iterable(map_in_order(call, in_batches(photos, detector.batch), threads=1))


def _read(
    source: PhotoSource, detector: Detector, unread: Callable[[PhotoSource], Result | None] | None
) -> tuple[PhotoSource, Photo | InputError | Result]:
    if unread is not None and (result := unread(source)) is not None:
        return source, result
    try:
        photo = read_photo(source, reduced_to=2 * detector.size if isinstance(detector, PicoDet) else None)
    except InputError as error:
        return source, error
    if isinstance(detector, PicoDet) and detector.device.type != "cpu":
        _ = photo.pixels  # in this thread rather than in the one that detects
    return source, photo


def _call(
    function: Callable[[Sequence[Photo]], list[Result]],
    batch: Sequence[tuple[PhotoSource, Photo | InputError | Result]],
) -> list[tuple[PhotoSource, Result | InputError]]:
    """Call a function with the photos of a batch; errors and results of photos that were not read keep their positions.

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
