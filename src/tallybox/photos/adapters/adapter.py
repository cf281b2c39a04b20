"""A detector around another library's model, and which category each label of the model stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from tallybox.detections.adapters import on_host
from tallybox.detections.category_names import COCO_CATEGORIES, category_ids_of_classes, coco_id_of_class
from tallybox.detections.container import Detections
from tallybox.errors import InputError, TallyboxError
from tallybox.photos.detector import Found, boxes_in_photo, map_same_size, one_line_errors
from tallybox.photos.images import Photo

MIN_SCORE = 0.01  # low, since boxes that are left out cannot be counted
MAX_IOU = 0.9  # where a model suppresses duplicates itself: only those that are nearly the same box
MAX_DETECTIONS = 300  # of a photo, the best; as many as DETR-like models propose at most

Prediction = Mapping[str, Any]  # boxes [N, 4] (x1 y1 x2 y2), scores [N] and labels [N] of one photo


@dataclass(frozen=True)
class LabelCategories:
    """The categories of a model's labels.

    >>> coco = LabelCategories.from_names({0: "person", 1: "N/A", 2: "sofa"})
    >>> dict(coco.category_ids), dict(coco.categories)
    ({0: 1, 2: 63}, {1: 'person', 63: 'couch'})
    >>> own = LabelCategories.from_names({0: "apple", 1: "pear"})
    >>> dict(own.category_ids), dict(own.categories)
    ({0: 0, 1: 1}, {0: 'apple', 1: 'pear'})
    """

    category_ids: Mapping[int, int]  # label to category id
    categories: Mapping[int, str]  # category id to name
    ignored: frozenset[int] = frozenset()  # labels that stand for no category

    @classmethod
    def from_names(cls, names: Mapping[int, str]) -> Self:
        """Take the names of a model's labels; names of COCO's categories in any order become COCO's ids."""
        category_ids = category_ids_of_classes(dict(sorted(names.items())))
        own = {category_id: names[label].strip() for label, category_id in category_ids.items()}
        is_coco = all(coco_id_of_class(name) == category_id for category_id, name in own.items())
        categories = {i: COCO_CATEGORIES[i] for i in sorted(own)} if is_coco else own
        return cls(category_ids, categories, frozenset(names.keys() - category_ids.keys()))

    def translate(self, labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return which of the labels ``[N]`` stand for a category, as indices ``[M]``, and the category ids ``[M]``."""
        numbers = labels.tolist()
        if unknown := [label for label in numbers if label not in self.category_ids and label not in self.ignored]:
            raise TallyboxError(
                f"the model's labels must be among the {len(self.category_ids)} that it names, but got {unknown[0]}"
            )
        chosen = [index for index, label in enumerate(numbers) if label not in self.ignored]
        return np.array(chosen, np.int64), np.array([self.category_ids[numbers[i]] for i in chosen], np.int64)


class AdaptedDetector:
    """A detector around another library's model, which predicts in photos of one size together."""

    device: torch.device
    _labels: LabelCategories

    @property
    def categories(self) -> Mapping[int, str]:
        """The names of the categories by their ids."""
        return self._labels.categories

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
        boxes, scores = (np.asarray(on_host(prediction[key]), np.float32) for key in ("boxes", "scores"))
        labels = np.asarray(on_host(prediction["labels"])).astype(np.int64).reshape(-1)
        chosen, category_ids = self._labels.translate(labels)
        in_photo = boxes_in_photo(boxes.reshape(-1, 4)[chosen], photo.image.size, photo.size_wh)
        try:
            return Detections(in_photo, scores.reshape(-1)[chosen], category_ids, photo.size_wh, photo.name)
        except InputError as error:
            raise InputError(f"{photo.name}: {error}") from None
