"""Run a detector on many photos, in batches and in order; a bad photo is an item with its error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from tallybox.concurrency import in_batches, map_in_order
from tallybox.detections.detections import Detections, ImageId
from tallybox.errors import InputError, TallyboxError
from tallybox.estimator.prediction import CountPrediction, ImagePredictions
from tallybox.photos.detector import Detector, Result, wrap_errors
from tallybox.photos.images import Photo, PhotoSource, VideoFrame, read_photo
from tallybox.photos.picodet import PicoDet
from tallybox.photos.tiles import Tiling, crop_windows, join_windows, plan_windows

BATCH = 8  # photos that other detectors get together
BATCH_ON_CPU, BATCH_ON_GPU = 2, 32  # the same for PicoDet

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

    def detect(photos: Sequence[Photo]) -> list[tuple[Detections, Photo | None]]:
        kept = photos if keep_photos else [None] * len(photos)
        return list(zip(detect_photos(photos, detector), kept, strict=True))

    for source, result in map_photos(detect, sources, detector):
        if isinstance(result, InputError):
            yield PhotoResult(source, error=result)
        else:
            detections, photo = result
            yield PhotoResult(source, detections, photo=photo)


def detect_in_windows(photo: Photo, side: int, detector: Detector) -> tuple[Detections, int]:
    """Return the detections of a photo from overlapping windows, and their number; ``side`` is the finest ones'."""
    windows = plan_windows(photo.size_wh, side)
    crops = crop_windows(photo, windows)
    if isinstance(detector, PicoDet) and detector.device.type == "cpu":
        found = map_in_order(partial(detect_photos, detector=detector), in_batches(crops, BATCH_ON_CPU))
    else:
        batch = BATCH_ON_GPU if isinstance(detector, PicoDet) else BATCH
        found = (detect_photos(photos, detector) for photos in in_batches(crops, batch))
    return join_windows(photo, windows, [*chain.from_iterable(found)]), len(windows)


def map_photos(
    function: Callable[[Sequence[Photo]], list[Result]], sources: Iterable[PhotoSource], detector: Detector
) -> Iterator[tuple[PhotoSource, Result | InputError]]:
    """Yield the result of a function that uses a detector for each photo, or the photo's error, in order."""
    read = partial(_read, reduced_to=2 * detector.size if isinstance(detector, PicoDet) else None)
    if isinstance(detector, PicoDet) and detector.device.type == "cpu":
        # Each thread reads and detects its own photos: threads that share a photo wait for each other at every layer.
        batches = in_batches(sources, BATCH_ON_CPU)
        yield from chain.from_iterable(map_in_order(lambda batch: _call(function, [*map(read, batch)]), batches))
        return
    # Several threads read and only this one detects: a thread that uses a GPU takes seconds to plan its convolutions.
    for batch in in_batches(map_in_order(read, sources), BATCH_ON_GPU if isinstance(detector, PicoDet) else BATCH):
        yield from _call(function, batch)


def _read(source: PhotoSource, reduced_to: int | None) -> tuple[PhotoSource, Photo | InputError]:
    try:
        return source, read_photo(source, reduced_to=reduced_to)
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
    with wrap_errors(f"{name} raised", with_type=True):
        detected = detector.detect(photos)
    if not isinstance(detected, Sequence) or len(detected) != len(photos):
        actual = f"a list of {len(detected)}" if isinstance(detected, Sequence) else type(detected).__name__
        raise TallyboxError(f"{name} must return a list of {len(photos)} Detections, one a photo; got {actual}")
    for detections in detected:
        if not isinstance(detections, Detections):
            raise TallyboxError(f"{name} must return tallybox.Detections; got {type(detections).__name__}")
    names = getattr(detector, "categories", None)
    return [image if image.category_names or not names else image.renumbered({}, names) for image in detected]
