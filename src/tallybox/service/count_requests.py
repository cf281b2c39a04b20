"""From a request with detections to a `CountJob`, and from its predictions to the answer."""

from collections.abc import Sequence

from starlette.exceptions import HTTPException

from tallybox.detections.categories import check_known_ids
from tallybox.detections.detections import Detections, check_in_image
from tallybox.errors import InputError
from tallybox.estimator.estimator import CountEstimator
from tallybox.service.batching import CountJob, JobPredictions
from tallybox.service.limits import Limits
from tallybox.service.models import CategoryCount, CountAnswer, CountRequest, ImageCounts, ImageDetections


def count_job(request: CountRequest, estimator: CountEstimator, limits: Limits) -> CountJob:
    """Check the sizes of a request, then its boxes."""
    images, boxes = len(request.images), sum(len(image.boxes) for image in request.images)
    categories = checked_categories(request.categories, estimator)
    for name, number, limit in (
        ("images", images, limits.images),
        ("boxes", boxes, limits.boxes),
        ("images times categories", images * len(categories or ()), limits.questions),
    ):
        if number > limit:
            raise HTTPException(413, f"a request must have at most {limit:,} {name}, but got {number:,}")
    detections = tuple(_detections(image, index) for index, image in enumerate(request.images))
    for index, image in enumerate(detections):
        check_known_ids(image.category_ids.tolist(), estimator.fitted.categories, f"images[{index}]")
    return CountJob(detections, categories)


def checked_categories(
    categories: Sequence[int | str] | None, estimator: CountEstimator
) -> tuple[int | str, ...] | None:
    """Return the named categories, each once."""
    return None if categories is None else tuple(estimator.by_category_id(categories).values())


def count_answer(job: CountJob, predictions: JobPredictions, *, with_detections: bool = False) -> CountAnswer:
    """Return what is answered to a job."""
    return CountAnswer(
        images=[
            ImageCounts(
                image=image.image_id,
                counts={name: CategoryCount(**count.to_dict()) for name, count in counts.by_name().items()},
                detections=_image_detections(image) if with_detections else None,
                category_ids=dict(zip(counts.by_name(), counts, strict=True)) if with_detections else None,
            )
            for image, counts in zip(job.images, predictions, strict=True)
        ]
    )


def _image_detections(image: Detections) -> ImageDetections:
    return ImageDetections(
        boxes=image.boxes.tolist(),
        scores=image.scores.tolist(),
        category_ids=image.category_ids.tolist(),
        size=None if image.image_size is None else list(image.image_size),
    )


def _detections(image: ImageDetections, index: int) -> Detections:
    try:
        detections = Detections(image.boxes, image.scores, image.category_ids, image.size, image.image)  # type: ignore[arg-type]  # lists are taken
        check_in_image(detections.boxes, detections.image_size, "size")
    except InputError as error:
        raise InputError(f"images[{index}]: {error}") from None
    return detections
