"""Time counting from detections, compared with supervision's NMS on the same images.

python -m benchmarks.detections [FILE] [--estimator FILE] [--json]
"""

import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from benchmarks.command import benchmark_command
from benchmarks.measure import BenchRow, compare
from benchmarks.synthetic_photos import made_up_photos

from tallybox.boxes import nms
from tallybox.cli.options import any_path, existing
from tallybox.detections.detections import Detections
from tallybox.detections.readers import read_detections
from tallybox.detections.writers import write_parquet
from tallybox.errors import InputError, TallyboxError
from tallybox.estimator.estimator import CountEstimator
from tallybox.files import import_optional

IMAGES = 1000
FITTING_IMAGES = 60
IOU_THRESHOLD, SCORE_THRESHOLD = 0.5, 0.3
AGREEMENT = 1e-4

Read = Callable[[], Iterable[Detections]]


def bench_detections(
    device: torch.device, seconds: float = 2.0, *, file: Path | None = None, estimator: Path | None = None
) -> Iterator[BenchRow]:
    """Time counting from detections on the CPU: the boxes of FILE, or synthetic ones.

    Without an estimator, one is fitted to synthetic photos.
    """
    if device.type != "cpu":
        raise InputError(f"this is measured on the CPU, not on device {device}")
    photos = made_up_photos(IMAGES)[0] if file is None else list(read_detections(file))
    if estimator is None:
        fitted = CountEstimator().fit(*made_up_photos(FITTING_IMAGES, seed=1))
    else:
        fitted = CountEstimator.load(estimator)
    yield from compare_with_nms(fitted, photos, seconds)


def compare_with_nms(estimator: CountEstimator, photos: Sequence[Detections], seconds: float) -> Iterator[BenchRow]:
    """Yield a row for images in memory and one for images in a Parquet file."""
    supervision = _supervision()
    check_nms(supervision, photos[:50])
    check_answers(estimator, photos[:50])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "detections.parquet"
        write_parquet(photos, path)
        case = f"{len(photos)} images with {sum(map(len, photos))} boxes"
        sources: dict[str, Read] = {"in memory": lambda: photos, "from Parquet": lambda: read_detections(path)}
        for name, read in sources.items():
            ours, reference = partial(_count, estimator, read), partial(_count_by_nms, supervision, read)
            yield compare(f"{case}, {name}", ours, reference, torch.device("cpu"), seconds)


def check_nms(supervision: Any, photos: Sequence[Detections]) -> None:
    """Raise unless supervision's NMS keeps the boxes that ours keeps."""
    for photo in photos:
        theirs = {tuple(box) for box in _after_nms(supervision, photo).xyxy.tolist()}
        ours = set()
        for detections in map(photo.of_category, photo.best_scores()):
            is_kept = nms(detections.boxes, detections.scores, [IOU_THRESHOLD])[0]
            ours |= {tuple(box) for box in detections.boxes[is_kept].tolist()}
        if theirs != ours:
            raise TallyboxError(
                f"both must keep the same boxes before they are timed, but image {photo.image_id!r} differs"
            )


def check_answers(estimator: CountEstimator, photos: Sequence[Detections], tolerance: float = AGREEMENT) -> None:
    """Raise unless an image gets the same prediction alone and in a batch."""
    for photo, expected in zip(photos, estimator.predict_many(photos), strict=True):
        for category_id, prediction in estimator.predict(photo).items():
            error = np.abs(prediction.probabilities - expected[category_id].probabilities).max()
            if not error < tolerance:
                raise TallyboxError(
                    f"an image must get the same prediction alone and in a batch before that is timed, but image "
                    f"{photo.image_id!r} differs by {error:.1e}"
                )


def _after_nms(supervision: Any, photo: Detections) -> Any:
    detections = supervision.Detections(xyxy=photo.boxes, confidence=photo.scores, class_id=photo.category_ids)
    return detections.with_nms(threshold=IOU_THRESHOLD)


def _count(estimator: CountEstimator, read: Read) -> int:
    return sum(len(predictions) for _, predictions in estimator.predict_each(read()))


def _count_by_nms(supervision: Any, read: Read) -> int:
    categories = 0
    for photo in read():
        kept = _after_nms(supervision, photo)
        categories += len(np.unique(kept.class_id[kept.confidence >= SCORE_THRESHOLD], return_counts=True)[0])
    return categories


def _supervision() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="OpenCV")  # its NMS does not need it
        return import_optional("supervision", needed_for="this benchmark", install="supervision")


if __name__ == "__main__":
    benchmark_command(
        bench_detections,
        click.Argument(["file"], required=False, type=existing),
        click.Option(["--estimator"], type=any_path, help="An estimator from `tallybox fit`."),
    )()
