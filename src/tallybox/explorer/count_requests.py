"""From a request's body to what is counted, and from predictions to the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tallybox.detections.container import Detections
from tallybox.errors import InputError
from tallybox.estimator.estimator import CountEstimator
from tallybox.explorer.batching import CountJob, Predictions
from tallybox.explorer.limits import Limits, Refused
from tallybox.explorer.schemas import CountRequest, ImageDetections


def job_of_detections(content: bytes, estimator: CountEstimator, limits: Limits) -> CountJob:
    """Read a `CountRequest`; sizes are checked before anything is made of it."""
    asked = CountRequest.model_validate_json(content)
    images, boxes = len(asked.images), sum(len(image.boxes) for image in asked.images)
    if images > limits.images:
        raise Refused(413, f"a request must have at most {limits.images:,} images, but got {images:,}")
    if boxes > limits.boxes:
        raise Refused(413, f"a request must have at most {limits.boxes:,} boxes, but got {boxes:,}")
    ids = _category_ids(asked.categories, estimator)
    if ids is not None and images * len(ids) > limits.questions:
        raise Refused(
            413, f"images times categories must be at most {limits.questions:,}, but got {images * len(ids):,}"
        )
    return CountJob(tuple(_detections(image, number) for number, image in enumerate(asked.images)), ids)


def job_of_photo(seen: Detections, categories: Sequence[str] | None, estimator: CountEstimator) -> CountJob:
    """Ask about what a detector saw in a photo."""
    return CountJob((seen,), _category_ids(categories, estimator))


def answered(
    job: CountJob, predictions: Predictions, estimator: CountEstimator, *, with_detections: bool
) -> dict[str, Any]:
    """Return the fields of `CountAnswer`."""
    images = []
    for image, counts in zip(job.images, predictions, strict=True):
        said: dict[str, Any] = {
            "image": image.image_id,
            "counts": {estimator.category_name(key): prediction.to_dict() for key, prediction in counts.items()},
        }
        if with_detections:
            said["detections"] = {
                "boxes": image.boxes.tolist(),
                "scores": image.scores.tolist(),
                "category_ids": image.category_ids.tolist(),
                "size": image.image_size,
            }
        images.append(said)
    return {"images": images}


def _category_ids(categories: Sequence[int | str] | None, estimator: CountEstimator) -> tuple[int, ...] | None:
    if categories is None:
        return None
    return tuple(dict.fromkeys(estimator.category_id(category) for category in categories))


def _detections(image: ImageDetections, number: int) -> Detections:
    size = None if image.size is None else (image.size[0], image.size[1])
    try:
        return Detections(image.boxes, image.scores, image.category_ids, size, image.image)  # type: ignore[arg-type]  # lists are taken
    except InputError as error:
        raise InputError(f"images[{number}]: {error}") from None
