"""From what a model predicts for one photo to `Detections`, and which photos go through a model together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from tallybox.detections.adapters import on_host
from tallybox.detections.container import Detections
from tallybox.errors import InputError, TallyboxError
from tallybox.files import first_line
from tallybox.photos.adapters.labels import LabelCategories
from tallybox.photos.images import Photo

Found = TypeVar("Found")  # for one photo

MIN_SCORE = 0.01  # low, since boxes that are left out cannot be counted
MAX_IOU = 0.9  # where a model suppresses duplicates itself: only those that are nearly the same box
MAX_DETECTIONS = 300  # of a photo, the best; as many as DETR-like models propose at most


def to_detections(
    prediction: Mapping[str, Any], photo: Photo, labels: LabelCategories, *, looked_at_wh: tuple[int, int]
) -> Detections:
    """Turn ``boxes`` [N, 4] (x1 y1 x2 y2), ``scores`` [N] and ``labels`` [N] of one photo into its detections.

    Boxes in pixels of ``looked_at_wh`` are scaled to the photo's own size and cut at its edges.
    """
    missing = [key for key in ("boxes", "scores", "labels") if key not in prediction]
    if missing:
        raise TallyboxError(
            f"the model must give boxes, scores and labels, but it gives no {missing[0]}, only {sorted(prediction)}; "
            "use a model for object detection"
        )
    boxes, scores = (np.asarray(on_host(prediction[key]), np.float32) for key in ("boxes", "scores"))
    chosen, category_ids = labels.translate(np.asarray(on_host(prediction["labels"])).astype(np.int64).reshape(-1))
    size = np.tile(np.array(photo.size_wh, np.float32), 2)  # width, height, width, height
    scale = size / np.tile(np.array(looked_at_wh, np.float32), 2)
    in_photo = (boxes.reshape(-1, 4)[chosen] * scale).clip(0, size)
    try:
        return Detections(in_photo, scores.reshape(-1)[chosen], category_ids, photo.size_wh, photo.name)
    except InputError as error:
        raise InputError(f"{photo.name}: {error}") from None


class AdaptedDetector:
    """A detector around another library's model: photos of the same size go through the model together.

    Models pad the photos of a batch to the largest of them, which changes what they detect: nothing that is detected
    in a photo may depend on the photos beside it.
    """

    def detect(self, photos: Sequence[Photo]) -> list[Detections]:
        """Return the detections of each photo; whatever the model raises is an error of these photos."""
        return self._by_size(photos, self._detect_same_size)

    def _by_size(self, photos: Sequence[Photo], of_same_size: Callable[[Sequence[Photo]], list[Found]]) -> list[Found]:
        by_size: dict[tuple[int, int], list[int]] = defaultdict(list)
        for index, photo in enumerate(photos):
            by_size[photo.image.size].append(index)
        detected: dict[int, Found] = {}
        for (width, height), indices in by_size.items():
            some = [photos[index] for index in indices]
            try:
                found = of_same_size(some)
            except TallyboxError:
                raise
            except Exception as error:
                raise InputError(
                    f"{some[0].name}: the model failed on {width} x {height} pixels: {first_line(error)}"
                ) from error
            detected.update(zip(indices, found, strict=True))
        return [detected[index] for index in range(len(photos))]

    def _detect_same_size(self, photos: Sequence[Photo]) -> list[Detections]:
        raise NotImplementedError
