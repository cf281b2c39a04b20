"""What a detector is: photos in, `Detections` out; and an adapter around the model of another library."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tallybox.concurrency import in_batches
from tallybox.detections.adapters import on_host
from tallybox.detections.categories import COCO_CATEGORIES, category_ids_of_classes, find_category
from tallybox.detections.detections import Detections
from tallybox.errors import InputError, TallyboxError
from tallybox.files import error_summary
from tallybox.photos.images import Photo

MIN_SCORE = 0.01  # low, since boxes that are left out cannot be counted
MAX_IOU = 0.9  # high, so that a model with its own NMS suppresses only boxes that are nearly the same
MAX_DETECTIONS = 300  # in a photo, as many as DETR-like models propose at most
NO_CATEGORY = -1  # of labels that stand for nothing, such as the background

Result = TypeVar("Result")  # for one photo
Prediction = Mapping[str, Any]  # boxes [N, 4] (x1 y1 x2 y2), scores [N] and labels [N] of one photo


class Detector(Protocol):
    """Anything that detects objects in photos; it should suppress as few boxes as possible.

    A detector of other categories than COCO's names them in an attribute ``categories``, from id to name.
    """

    def detect(self, photos: Sequence[Photo]) -> list[Detections]:
        """Return the detections of each photo: boxes in its pixels, ``image_id`` its name."""
        ...


def categories_of(detector: Detector) -> Mapping[int, str]:
    """Return the names of a detector's categories, COCO's if it names none."""
    categories = getattr(detector, "categories", COCO_CATEGORIES)
    if not isinstance(categories, Mapping) or len(set(categories.values())) < len(categories):
        raise InputError(
            f"The categories of {type(detector).__name__} must map ids to different names, such as "
            '{0: "apple", 1: "pear"}'
        )
    return categories


@contextmanager
def wrap_errors(message: str, kind: type[TallyboxError] = TallyboxError) -> Iterator[None]:
    """Turn an exception of another library into an error of one line; our own errors pass."""
    try:
        yield
    except TallyboxError:
        raise
    except Exception as error:
        raise kind(f"{message}: {type(error).__name__}: {error_summary(error)}") from error


def boxes_in_photo(
    boxes_xyxy: NDArray[np.float32], input_wh: tuple[int, int], photo_wh: tuple[int, int]
) -> NDArray[np.float32]:
    """Scale boxes ``[N, 4]`` from the model's input image to the photo, and cut them at its edges."""
    size = np.tile(np.array(photo_wh, np.float32), 2)  # width, height, width, height
    return (boxes_xyxy * (size / np.tile(np.array(input_wh, np.float32), 2))).clip(0, size)


def map_same_size(
    function: Callable[[Sequence[Photo]], Sequence[Result]],
    photos: Sequence[Photo],
    sizes: Sequence[tuple[int, int]],
    *,
    at_once: int | None = None,
) -> list[Result]:
    """Call a function with batches of photos of the same size; return its results in the order of the photos.

    Models pad the photos of a batch to the largest of them, which changes what they detect: what is detected in a photo
    must not depend on the photos beside it. A batch has up to ``at_once`` photos, by default all of a size.
    """
    by_size: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, size_wh in enumerate(sizes):
        by_size[size_wh].append(index)
    results: dict[int, Result] = {}
    for indices in by_size.values():
        for batch in in_batches(indices, at_once or len(indices)):
            results.update(zip(batch, function([photos[index] for index in batch]), strict=True))
    return [results[index] for index in range(len(photos))]


class AdaptedDetector:
    """A detector around another library's model, which predicts in photos of one size together."""

    categories: Mapping[int, str]
    _category_ids: Mapping[int, int]  # of the model's labels

    def _take_names(self, names: Mapping[int, str]) -> None:
        """Take the names of the model's labels; names of COCO's categories in any order become COCO's ids."""
        category_ids = category_ids_of_classes(dict(sorted(names.items())))
        categories = {category_id: names[label].strip() for label, category_id in category_ids.items()}
        is_coco = all(find_category(name) == category_id for category_id, name in categories.items())
        self.categories = {i: COCO_CATEGORIES[i] for i in sorted(categories)} if is_coco else categories
        self._category_ids = {label: category_ids.get(label, NO_CATEGORY) for label in names}

    def detect(self, photos: Sequence[Photo]) -> list[Detections]:
        """Return the detections of each photo; an exception in the model becomes an `InputError` of these photos."""
        return map_same_size(self._detect_same_size, photos, [photo.image.size for photo in photos])

    def _detect_same_size(self, photos: Sequence[Photo]) -> list[Detections]:
        width, height = photos[0].image.size
        with wrap_errors(f"{photos[0].name}: the model failed on {width}×{height} pixels", InputError):
            predictions = zip(self._predict(photos), photos, strict=True)
            return [self._detections(prediction, photo) for prediction, photo in predictions]

    def _predict(self, photos: Sequence[Photo]) -> Sequence[Prediction]:
        """Return what the model predicts for each photo, with boxes in pixels of its decoded image."""
        raise NotImplementedError

    def _detections(self, prediction: Prediction, photo: Photo) -> Detections:
        boxes, scores, labels = (np.asarray(on_host(prediction[key])) for key in ("boxes", "scores", "labels"))
        ids = np.array([self._category_ids[label] for label in labels.astype(np.int64).reshape(-1).tolist()], np.int64)
        named = ids != NO_CATEGORY
        in_photo = boxes_in_photo(boxes.astype(np.float32).reshape(-1, 4), photo.image.size, photo.size_wh)
        try:
            return Detections(in_photo[named], scores.reshape(-1)[named], ids[named], photo.size_wh, photo.name)
        except InputError as error:
            raise InputError(f"{photo.name}: {error}") from None
