"""`tallybox bench photos`: from JPEG files to counts, stage by stage, beside one photo after another."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from PIL import Image

from tallybox.bench.measure import Row, median_ms, peak_bytes
from tallybox.detections.container import Detections
from tallybox.errors import InputError, TallyboxError
from tallybox.estimator.estimator import CountEstimator
from tallybox.photos.detector import YoloV4Tiny
from tallybox.photos.images import Photo, read_photo
from tallybox.photos.packaged import sample_photos
from tallybox.photos.reading import BATCH, detect_in_batches
from tallybox.photos.shipped import shipped_estimator

PHOTOS = 16
SIZE_WH = (640, 480)
AGREEMENT = 1e-3  # of scores: a batch is summed in another order than a photo alone


def bench_photos(device: torch.device, seconds: float = 2.0) -> Iterator[Row]:
    """Yield milliseconds a photo for each stage and for all of them; the reference takes photos one at a time."""
    detector, estimator = YoloV4Tiny(device=device), shipped_estimator()
    with tempfile.TemporaryDirectory() as folder:
        paths = made_from_samples(Path(folder), PHOTOS)
        photos = [read_photo(path) for path in paths]
        check_batch(detector, photos[:BATCH])
        detections = _detect(detector, photos, BATCH)
        stages: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "read": (lambda: _read(paths), lambda: _read(paths)),  # in one thread; end to end it runs ahead in several
            "detect": (lambda: _detect(detector, photos, BATCH), lambda: _detect(detector, photos, 1)),
            "count": (lambda: _count(estimator, detections, BATCH), lambda: _count(estimator, detections, 1)),
            "end to end": (
                lambda: _whole(paths, detector, estimator, BATCH),
                lambda: _whole(paths, detector, estimator, 1),
            ),
        }
        for stage, (ours, one_by_one) in stages.items():
            width, height = SIZE_WH
            yield _row(
                f"{stage}, a photo of {width} x {height} at {detector.size} px", ours, one_by_one, device, seconds
            )


def made_from_samples(folder: Path, number: int) -> list[Path]:
    """Write photos of a usual size, each another part of the sample photos."""
    originals = [read_photo(path).image for path in sample_photos()]
    paths = []
    for index in range(number):
        photo = originals[index % len(originals)]
        shift = 8 * (index // len(originals))
        part = photo.resize(SIZE_WH, Image.Resampling.BICUBIC, (shift, shift, photo.width, photo.height))
        paths.append(folder / f"{index:03}.jpg")
        part.save(paths[-1], quality=90)
    return paths


def check_batch(detector: YoloV4Tiny, photos: Sequence[Photo]) -> None:
    """Raise unless a photo alone gives the scores it gives among others."""
    together = detector.propose(photos)
    for index, photo in enumerate(photos):
        alone = detector.propose([photo])
        error = (together.objectness[index].sigmoid() - alone.objectness[0].sigmoid()).abs().max().item()
        if not error < AGREEMENT:
            raise TallyboxError(
                f"a photo alone must be seen as among others before that is timed, but {photo.name} differs by "
                f"{error:.1e}"
            )


def _read(paths: Sequence[Path]) -> None:
    for path in paths:
        read_photo(path)


def _detect(detector: YoloV4Tiny, photos: Sequence[Photo], batch: int) -> list[Detections]:
    starts = range(0, len(photos), batch)
    return [image for start in starts for image in detector.detect(photos[start : start + batch])]


def _count(estimator: CountEstimator, images: Sequence[Detections], batch: int) -> None:
    for start in range(0, len(images), batch):
        estimator.predict(images[start : start + batch])


def _whole(paths: Sequence[Path], detector: YoloV4Tiny, estimator: CountEstimator, batch: int) -> None:
    for images in detect_in_batches(paths, detector, on_failure=_fail, batch=batch):
        list(estimator.predict_each(images))


def _fail(path: Path, error: InputError) -> None:
    raise error


def _row(
    case: str, ours: Callable[[], object], reference: Callable[[], object], device: torch.device, seconds: float
) -> Row:
    ours_ms = median_ms(ours, device, seconds=seconds) / PHOTOS
    reference_ms = median_ms(reference, device, seconds=seconds) / PHOTOS
    peak, reference_peak = peak_bytes(ours, device), peak_bytes(reference, device)
    return Row(case, round(ours_ms, 3), round(reference_ms, 3), round(reference_ms / ours_ms, 2), peak, reference_peak)
