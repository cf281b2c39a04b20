"""A detector around another library's model: what the adapters of all libraries share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tallybox.detections.adapters import on_host
from tallybox.detections.category_names import COCO_CATEGORIES, category_ids_of_classes, coco_id_of_class
from tallybox.detections.container import Detections
from tallybox.errors import InputError, TallyboxError
from tallybox.photos.detector import Found, boxes_in_photo, map_same_size, one_line_errors
from tallybox.photos.images import Photo

MIN_SCORE = 0.01  # low, since boxes that are left out cannot be counted
MAX_IOU = 0.9  # where a model suppresses duplicates itself: only those that are nearly the same box
MAX_DETECTIONS = 300  # of a photo, the best; as many as DETR-like models propose at most
NO_CATEGORY = -1  # of labels that stand for nothing, such as the background

Prediction = Mapping[str, Any]  # boxes [N, 4] (x1 y1 x2 y2), scores [N] and labels [N] of one photo


class AdaptedDetector:
    """A detector around another library's model, which predicts in photos of one size together."""

    categories: Mapping[int, str]
    _category_ids: Mapping[int, int]  # of the model's labels

    def _take_names(self, names: Mapping[int, str]) -> None:
        """Take the names of the model's labels; names of COCO's categories in any order become COCO's ids."""
        known = category_ids_of_classes(dict(sorted(names.items())))
        own = {category_id: names[label].strip() for label, category_id in known.items()}
        is_coco = all(coco_id_of_class(name) == category_id for category_id, name in own.items())
        self.categories = {i: COCO_CATEGORIES[i] for i in sorted(own)} if is_coco else own
        self._category_ids = {label: known.get(label, NO_CATEGORY) for label in names}

    def detect(self, photos: Sequence[Photo]) -> list[Detections]:
        """Return the detections of each photo; whatever the model raises is an error of these photos."""
        return self._by_size(photos, self._detect_same_size)

    def _by_size(self, photos: Sequence[Photo], function: Callable[[Sequence[Photo]], list[Found]]) -> list[Found]:
        def of_same_size(some: Sequence[Photo]) -> list[Found]:
            width, height = some[0].image.size
            with one_line_errors(f"{some[0].name}: the model failed on {width} x {height} pixels", InputError):
                return function(some)

        return map_same_size(of_same_size, photos, [photo.image.size for photo in photos])

    def _detect_same_size(self, photos: Sequence[Photo]) -> list[Detections]:
        return [self._detections(*one) for one in zip(self._predict(photos), photos, strict=True)]

    def _predict(self, photos: Sequence[Photo]) -> Sequence[Prediction]:
        """Return what the model predicts for each photo, with boxes in pixels of its decoded image."""
        raise NotImplementedError

    def _detections(self, prediction: Prediction, photo: Photo) -> Detections:
        missing = [key for key in ("boxes", "scores", "labels") if key not in prediction]
        if missing:
            raise TallyboxError(
                f"the model must give boxes, scores and labels, but it gives no {missing[0]}, only "
                f"{sorted(prediction)}; use a model for object detection"
            )
        boxes, scores, labels = (np.asarray(on_host(prediction[key])) for key in ("boxes", "scores", "labels"))
        try:
            category_ids = [self._category_ids[label] for label in labels.astype(np.int64).reshape(-1).tolist()]
        except KeyError as error:
            known = len(self.categories)
            raise TallyboxError(
                f"the model's labels must be among the {known} that it names, but got {error}"
            ) from None
        ids = np.array(category_ids, np.int64)
        chosen = ids != NO_CATEGORY
        in_photo = boxes_in_photo(boxes.astype(np.float32).reshape(-1, 4), photo.image.size, photo.size_wh)
        try:
            return Detections(in_photo[chosen], scores.reshape(-1)[chosen], ids[chosen], photo.size_wh, photo.name)
        except InputError as error:
            raise InputError(f"{photo.name}: {error}") from None
