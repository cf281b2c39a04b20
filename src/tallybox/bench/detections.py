"""`tallybox bench detections`: counting from detections, beside supervision's NMS on the same images."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tallybox.bench.measure import Row, compare
from tallybox.bench.photos import made_up_photos
from tallybox.boxes import nms
from tallybox.detections.container import Detections
from tallybox.detections.files import read_detections
from tallybox.detections.parquet import write_parquet
from tallybox.errors import TallyboxError
from tallybox.estimator.estimator import CountEstimator

IMAGES = 1000
FITTING_IMAGES = 60
IOU_THRESHOLD, SCORE_THRESHOLD = 0.5, 0.3
AGREEMENT = 1e-4


def bench_detections(
    estimator: CountEstimator | None = None, images: Sequence[Detections] | None = None, seconds: float = 2.0
) -> Iterator[Row]:
    """Yield rows for counting images in memory and from Parquet; without an estimator one learns on made-up photos."""
    supervision = _supervision()
    if estimator is None:
        estimator = CountEstimator().fit(*made_up_photos(FITTING_IMAGES, seed=1))
    photos = list(images) if images is not None else made_up_photos(IMAGES)[0]
    check_nms(supervision, photos[:50])
    check_answers(estimator, photos[:50])
    boxes = sum(len(photo) for photo in photos)
    case = f"{len(photos)} images with {boxes} boxes"
    yield _row(f"{case}, in memory", _count(estimator, photos), _suppress(supervision, photos), seconds)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "detections.parquet"
        write_parquet(photos, path)
        yield _row(
            f"{case}, from Parquet",
            lambda: _count(estimator, read_detections(path))(),
            lambda: _suppress(supervision, read_detections(path))(),
            seconds,
        )


def check_nms(supervision: Any, photos: Sequence[Detections]) -> None:
    """Raise unless supervision's NMS leaves the boxes that ours leaves."""
    for photo in photos:
        kept = {tuple(box) for box in _left(supervision, photo).xyxy.tolist()}
        ours = set()
        for category_id in photo.best_scores():
            one = photo.of_category(category_id)
            ours |= {tuple(box) for box in one.boxes[nms(one.boxes, one.scores, [IOU_THRESHOLD])[0]].tolist()}
        if kept != ours:
            raise TallyboxError(f"both must suppress alike before they are timed, but image {photo.image_id!r} differs")


def check_answers(estimator: CountEstimator, photos: Sequence[Detections]) -> None:
    """Raise unless images give the same answers together as each alone."""
    together = estimator.predict_many(photos)
    for photo, expected in zip(photos, together, strict=True):
        alone = estimator.predict(photo)
        for category_id, one in alone.items():
            error = np.abs(one.probabilities - expected[category_id].probabilities).max()
            if not error < AGREEMENT:
                raise TallyboxError(
                    f"an image alone must be counted as among others before that is timed, but image "
                    f"{photo.image_id!r} differs by {error:.1e}"
                )


def _count(estimator: CountEstimator, photos: Any) -> Callable[[], int]:
    return lambda: sum(len(predictions) for _, predictions in estimator.predict_each(photos))


def _suppress(supervision: Any, photos: Any) -> Callable[[], int]:
    def run() -> int:
        total = 0
        for photo in photos:
            left = _left(supervision, photo)
            total += len(np.unique(left.class_id[left.confidence >= SCORE_THRESHOLD], return_counts=True)[0])
        return total

    return run


def _left(supervision: Any, photo: Detections) -> Any:
    given = supervision.Detections(xyxy=photo.boxes, confidence=photo.scores, class_id=photo.category_ids)
    return given.with_nms(threshold=IOU_THRESHOLD)


def _row(case: str, ours: Callable[[], object], reference: Callable[[], object], seconds: float) -> Row:
    return compare(case, ours, reference, torch.device("cpu"), seconds)


def _supervision() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="OpenCV")  # its NMS does not need it
            import supervision
    except ModuleNotFoundError:
        raise TallyboxError(
            "counting is measured beside supervision, which is not installed; pip install supervision"
        ) from None
    return supervision
