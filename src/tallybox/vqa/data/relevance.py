"""Targets for attention: which proposals show what a question names, by the true boxes of COCO instances files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallybox.boxes import numpy_box_iou
from tallybox.detections.coco import INSTANCES, Int64, JsonRecord, read_coco_instances
from tallybox.errors import InputError
from tallybox.files import read_json
from tallybox.vqa.data.category_words import CategoryWords
from tallybox.vqa.data.photo_ids import photo_id
from tallybox.vqa.data.questions import QuestionRecord
from tallybox.vqa.data.splits import UNKNOWN_RELEVANCE
from tallybox.vqa.data.store import FeatureStore

RELEVANT_IOU = 0.5  # of a proposal with a true box, at least

Boxes = NDArray[np.float64]  # [K, 4] corners in pixels


class _BoxAnnotation(JsonRecord):
    image_id: Int64 | str
    category_id: Int64
    bbox: tuple[float, float, float, float]


class _BoxesFile(JsonRecord):
    annotations: list[_BoxAnnotation]


@dataclass(frozen=True)
class TrueBoxes:
    """The true objects of photos, by category."""

    categories: dict[int, str]
    corners: dict[str, dict[int, list[tuple[float, ...]]]]  # by photo and category; photos without objects included
    unknown: frozenset[tuple[str, int]]  # (photo, category) with a crowd, which has no box for each object

    @classmethod
    def read(cls, paths: Sequence[Path]) -> "TrueBoxes":
        """Read COCO instances files, which must use the same category ids."""
        categories: dict[int, str] = {}
        corners: dict[str, dict[int, list[tuple[float, ...]]]] = {}
        unknown: set[tuple[str, int]] = set()
        for path in paths:
            labels = read_coco_instances(path)  # which checks the file
            for category_id, name in labels.categories.items():
                if categories.setdefault(category_id, name) != name:
                    raise InputError(
                        f"{path} must number categories as the files before it, "
                        f"but calls {category_id} {name!r}, which is {categories[category_id]!r} there"
                    )
            corners |= {photo_id(image_id): {} for image_id in labels.counts}
            for annotation in read_json(path, _BoxesFile, INSTANCES).annotations:
                left, top, width, height = annotation.bbox
                boxes = corners[photo_id(annotation.image_id)].setdefault(annotation.category_id, [])
                boxes.append((left, top, left + width, top + height))
            unknown |= {(photo_id(image_id), category_id) for image_id, category_id in labels.unknown}
        return cls(categories, corners, frozenset(unknown))

    def of(self, image_id: str, category_ids: frozenset[int]) -> Boxes | None:
        """Return a photo's boxes of several categories, or None where they are unknown."""
        if image_id not in self.corners or any((image_id, category) in self.unknown for category in category_ids):
            return None
        by_category = self.corners[image_id]
        boxes = [box for category in category_ids for box in by_category.get(category, ())]
        return np.array(boxes, np.float64).reshape(-1, 4)


def relevance_of(
    records: Sequence[QuestionRecord],
    store: FeatureStore,
    true_boxes: TrueBoxes,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> NDArray[np.int8]:
    """Return which proposals show what each question names, ``[Q, N]``.

    1 where a proposal overlaps a true box of the category by at least `RELEVANT_IOU`, 0 where it overlaps none, -1
    where that is unknown: padding, questions that do not name exactly one category, and photos without true boxes.
    """
    words = CategoryWords.of(true_boxes.categories)
    rows = store.rows_of([record.image_id for record in records])
    numbers = np.diff(store.offsets)[rows]
    relevance = np.full((len(records), int(numbers.max(initial=1))), UNKNOWN_RELEVANCE, np.int8)

    @cache  # questions repeat
    def relevance_in(image_id: str, row: int, named: frozenset[int]) -> NDArray[np.bool_] | int:
        boxes = true_boxes.of(image_id, named)
        proposals = store.boxes_xyxy[store.offsets[row] : store.offsets[row + 1]]
        return UNKNOWN_RELEVANCE if boxes is None else overlapping(proposals, boxes)

    for index, (record, row) in enumerate(zip(records, rows.tolist(), strict=True)):
        if (named := words.named(record.text)) is not None:
            relevance[index, : numbers[index]] = relevance_in(record.image_id, row, named)
        on_progress(index + 1, len(records))
    return relevance


def overlapping(proposals_xyxy: NDArray[np.floating], boxes_xyxy: Boxes) -> NDArray[np.bool_]:
    """Return which proposals ``[N, 4]`` overlap one of the boxes ``[K, 4]`` by at least `RELEVANT_IOU`.

    >>> overlapping(np.array([[0, 0, 10, 10], [0, 0, 10, 4.0]]), np.array([[0, 0, 10, 9.0]]))
    array([ True, False])
    """
    iou = numpy_box_iou(proposals_xyxy.astype(np.float64), boxes_xyxy)  # [N, K]
    enough: NDArray[np.bool_] = np.any(iou >= RELEVANT_IOU, axis=1)
    return enough
