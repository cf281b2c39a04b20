"""From a request to a `CountJob`, and from its predictions to the answer."""

from collections.abc import Sequence
from typing import Any

from starlette.exceptions import HTTPException

from tallybox.detections.categories import check_known_ids, quantity
from tallybox.detections.detections import Detections, check_in_image
from tallybox.errors import InputError
from tallybox.estimator.estimator import CountEstimator
from tallybox.estimator.prediction import ImagePredictions
from tallybox.explain.explained_count import explain_estimate
from tallybox.service.batching import CountJob
from tallybox.service.guard import Limits
from tallybox.service.models import CountRequest

Answer = dict[str, Any]
FIELDS = ("boxes", "scores", "presence", "duplicate_of", "baselines")  # of `ExplainedCount`


def count_job(request: CountRequest, estimator: CountEstimator, limits: Limits) -> CountJob:
    """Check the sizes of a request, then its boxes."""
    images, boxes = len(request.images), sum(len(image.boxes) for image in request.images)
    categories = checked_categories(request.categories, estimator)
    for name, number, limit in (("images", images, limits.images), ("boxes", boxes, limits.boxes)):
        if number > limit:
            raise HTTPException(413, f"A request must have at most {limit:,} {name}; got {number:,}.")
    detections = []
    for index, image in enumerate(request.images):
        check_known_ids(image.category_ids, estimator.fitted.categories, f"images[{index}]")
        try:
            made = Detections(image.boxes, image.scores, image.category_ids, image.size, image.image)  # type: ignore[arg-type]  # takes lists
            check_in_image(made.boxes, made.image_size, "size")
        except InputError as error:
            raise InputError(f"images[{index}]: {error}") from None
        detections.append(made)
    return CountJob(tuple(detections), categories)


def checked_categories(
    categories: Sequence[int | str] | None, estimator: CountEstimator
) -> tuple[int | str, ...] | None:
    """Return the named categories, each once."""
    return None if categories is None else tuple(estimator.category_ids(categories) or ())


def image_counts(image: Detections, predictions: ImagePredictions) -> Answer:
    """Return the answer about one image, with its counts by name."""
    counts = {name: prediction.to_dict() for name, prediction in predictions.by_name().items()}
    return {"image": image.image_id, "counts": counts}


def image_detections(image: Detections) -> Answer:
    """Return all boxes of an image."""
    lists = {name: getattr(image, name).tolist() for name in ("boxes", "scores", "category_ids")}
    return {**lists, "size": image.image_size}


def category_boxes(estimator: CountEstimator, image: Detections, predictions: ImagePredictions) -> Answer:
    """Return the boxes of each predicted category by name, counted ones first, as a page draws them."""
    answers = {}
    for key, explanation in estimator.explain(image, predictions=predictions).items():
        explained, _ = explain_estimate(estimator, image, key, explanation)
        name, prediction = estimator.category_name(key), explanation.prediction
        answers[name] = {
            "category_id": key,
            "label": quantity(prediction.count, name),
            "probability": prediction.probability_of_any,
            **{field: getattr(explained, field) for field in FIELDS},
        }
    return answers
