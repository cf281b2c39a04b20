"""Add targets for attention to a prepared folder: which proposals show the category that a question names.

    python research/supervise_attention.py PREPARED ../shared/data/coco-count/instances_train.json.gz

True boxes are those of COCO instances files. `attention_supervision` in the configuration weighs the loss.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from category_words import CategoryWords
from numpy.typing import NDArray

from tallybox.boxes import numpy_box_iou
from tallybox.detections.coco import INSTANCES, Int64, JsonRecord
from tallybox.errors import InputError
from tallybox.files import read_json
from tallybox.vqa.data.questions import QuestionRecord
from tallybox.vqa.data.splits import UNKNOWN_RELEVANCE, open_pairs, open_records, write_split
from tallybox.vqa.data.store import PHOTOS, FeatureStore, photo_id
from tallybox.vqa.data.vocabulary import VOCABULARY, Vocabulary

RELEVANT_IOU = 0.5  # of a proposal with a true box, at least

Boxes = NDArray[np.float64]  # [K, 4] corners in pixels


class _Image(JsonRecord):
    id: Int64 | str


class _Category(JsonRecord):
    id: Int64
    name: str


class _Annotation(JsonRecord):
    image_id: Int64 | str
    category_id: Int64
    bbox: tuple[float, float, float, float]
    iscrowd: int = 0


class _InstancesFile(JsonRecord):
    images: list[_Image]
    annotations: list[_Annotation]
    categories: list[_Category]


@dataclass(frozen=True)
class TrueBoxes:
    """The true objects of photos, by category."""

    categories: dict[int, str]
    corners: dict[str, dict[int, list[tuple[float, ...]]]]  # by photo and category; photos without objects included
    unknown: set[tuple[str, int]]  # (photo, category) with a crowd, which has no box for each object

    @classmethod
    def read(cls, paths: Sequence[Path]) -> "TrueBoxes":
        """Read COCO instances files, which must use the same category ids."""
        boxes = cls({}, {}, set())
        for path in paths:
            content = read_json(path, _InstancesFile, INSTANCES)
            for category in content.categories:
                if boxes.categories.setdefault(category.id, category.name) != category.name:
                    raise InputError(f"{path} calls category {category.id} {category.name!r}, another file does not")
            for image in content.images:
                boxes.corners.setdefault(photo_id(image.id), {})
            for annotation in content.annotations:
                image_id, category_id = photo_id(annotation.image_id), annotation.category_id
                left, top, width, height = annotation.bbox
                by_category = boxes.corners.setdefault(image_id, {})
                by_category.setdefault(category_id, []).append((left, top, left + width, top + height))
                if annotation.iscrowd:
                    boxes.unknown.add((image_id, category_id))
        return boxes

    def of(self, image_id: str, category_ids: frozenset[int]) -> Boxes | None:
        """Return a photo's boxes of several categories, or None if they are unknown."""
        if image_id not in self.corners or any((image_id, category) in self.unknown for category in category_ids):
            return None
        by_category = self.corners[image_id]
        boxes = [box for category in category_ids for box in by_category.get(category, ())]
        return np.array(boxes, np.float64).reshape(-1, 4)


def relevance_of(
    records: Sequence[QuestionRecord],
    store: FeatureStore,
    true_boxes: TrueBoxes,
) -> NDArray[np.int8]:
    """Return which proposals show the category that each question names, ``[Q, N]``.

    1 if a proposal overlaps a true box of the category by at least `RELEVANT_IOU`, 0 if it overlaps none, -1 if that
    is unknown: padding, questions that do not name exactly one category, and photos without true boxes.
    """
    words = CategoryWords.of(true_boxes.categories)
    rows = store.rows_of([record.image_id for record in records])
    numbers = store.num_boxes[rows]
    relevance = np.full((len(records), int(numbers.max(initial=1))), UNKNOWN_RELEVANCE, np.int8)

    @cache  # questions repeat
    def relevance_in(image_id: str, row: int, named: frozenset[int]) -> NDArray[np.bool_] | int:
        boxes = true_boxes.of(image_id, named)
        proposals = store.boxes_xyxy[store.offsets[row] : store.offsets[row + 1]]
        return UNKNOWN_RELEVANCE if boxes is None else overlapping(proposals, boxes)

    for index, (record, row) in enumerate(zip(records, rows.tolist(), strict=True)):
        if (named := words.named(record.text)) is not None:
            relevance[index, : numbers[index]] = relevance_in(record.image_id, row, named)
    return relevance


def overlapping(proposals_xyxy: NDArray[np.floating], boxes_xyxy: Boxes) -> NDArray[np.bool_]:
    """Return which proposals ``[N, 4]`` overlap one of the boxes ``[K, 4]`` by at least `RELEVANT_IOU`.

    >>> overlapping(np.array([[0, 0, 10, 10], [0, 0, 10, 4.0]]), np.array([[0, 0, 10, 9.0]]))
    array([ True, False])
    """
    iou = numpy_box_iou(proposals_xyxy.astype(np.float64), boxes_xyxy)  # [N, K]
    enough: NDArray[np.bool_] = np.any(iou >= RELEVANT_IOU, axis=1)
    return enough


def supervise(prepared: Path, instances: Sequence[Path], split: str = "train") -> int:
    """Write a split again with the relevance of proposals; return the number of questions for which it is known."""
    records, store = open_records(prepared, split), FeatureStore.open(prepared / PHOTOS)
    relevance = relevance_of(records, store, TrueBoxes.read(instances))
    vocabulary = Vocabulary.load(prepared / VOCABULARY)
    write_split(prepared, split, records, open_pairs(prepared, split), vocabulary, relevance)
    return int((relevance >= 0).any(1).sum())


def main() -> None:
    """Supervise the questions of train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("instances", type=Path, nargs="+")
    given = parser.parse_args()
    print(f"{supervise(given.prepared, given.instances)} questions with known relevant proposals")


if __name__ == "__main__":
    main()
