"""What a detector is: photos in, `Detections` out."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tallybox.concurrency import in_batches
from tallybox.detections.categories import COCO_CATEGORIES
from tallybox.detections.detections import Detections
from tallybox.errors import InputError, TallyboxError
from tallybox.files import error_summary
from tallybox.photos.images import Photo

Result = TypeVar("Result")  # for one photo


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
