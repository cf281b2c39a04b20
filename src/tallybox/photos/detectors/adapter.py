"""A detector around another library's model: what the adapters of all libraries share."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tallybox.detections.categories import COCO_CATEGORIES, category_ids_of_classes, find_category
from tallybox.detections.detections import Detections, on_host
from tallybox.errors import InputError, TallyboxError
from tallybox.photos.detector import boxes_in_photo, map_same_size, wrap_errors
from tallybox.photos.images import Photo

MIN_SCORE = 0.01  # low, since boxes that are left out cannot be counted
MAX_IOU = 0.9  # high, so that a model with its own NMS suppresses only boxes that are nearly the same
MAX_DETECTIONS = 300  # in a photo, as many as DETR-like models propose at most
NO_CATEGORY = -1  # of labels that stand for nothing, such as the background

Prediction = Mapping[str, Any]  # boxes [N, 4] (x1 y1 x2 y2), scores [N] and labels [N] of one photo


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
        try:
            category_ids = [self._category_ids[label] for label in labels.astype(np.int64).reshape(-1).tolist()]
        except KeyError as error:
            raise TallyboxError(f"The model found label {error}, but names no such category") from None
        ids = np.array(category_ids, np.int64)
        named = ids != NO_CATEGORY
        in_photo = boxes_in_photo(boxes.astype(np.float32).reshape(-1, 4), photo.image.size, photo.size_wh)
        try:
            return Detections(in_photo[named], scores.reshape(-1)[named], ids[named], photo.size_wh, photo.name)
        except InputError as error:
            raise InputError(f"{photo.name}: {error}") from None
