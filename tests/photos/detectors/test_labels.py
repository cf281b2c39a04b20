"""Which category each label of a model stands for."""

import numpy as np
import pytest

from tallybox.detections.categories import COCO_CATEGORIES, COCO_CATEGORY_IDS
from tallybox.errors import TallyboxError
from tallybox.photos.detectors import AdaptedDetector
from tests.support.small_photos import small_photos


class Labelled(AdaptedDetector):
    """A model with names that finds a box of each of some labels."""

    def __init__(self, names, labels=()):
        self._take_names(names)
        self.labels = np.array(labels, np.int64)

    def _predict(self, photos):
        boxes = np.tile([0.0, 0, 9, 9], (len(self.labels), 1))
        return [{"boxes": boxes, "scores": np.full(len(boxes), 0.5), "labels": self.labels} for _ in photos]


def category_ids(names, labels):
    (found,) = Labelled(names, labels).detect(small_photos([(64, 48)]))
    return found.category_ids.tolist()


def detr_names() -> dict[int, str]:
    """COCO's 91 numbers, the gaps of which DETR calls N/A."""
    return {label: COCO_CATEGORIES.get(label, "N/A") for label in range(91)}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (detr_names(), {label: label for label in COCO_CATEGORIES}),
        (dict(enumerate(COCO_CATEGORIES.values())), dict(enumerate(COCO_CATEGORY_IDS))),
        ({0: "Dog", 1: "person"}, {0: 18, 1: 1}),
        ({0: "person", 1: "N/A", 2: "couch"}, {0: 1, 2: 63}),
    ],
    ids=["DETR's 91", "YOLO's 80", "two of them", "a gap"],
)
def test_names_of_coco_get_its_ids_in_any_order(names, expected):
    assert category_ids(names, list(expected)) == list(expected.values())
    categories = Labelled(names).categories
    assert categories == {category_id: COCO_CATEGORIES[category_id] for category_id in expected.values()}


def test_one_other_name_and_all_numbers_are_the_models_own():
    names = {0: "__background__", 1: "dog", 2: "apple tree"}
    assert category_ids(names, [1, 2]) == [1, 2]
    assert Labelled(names).categories == {1: "dog", 2: "apple tree"}


def test_labels_without_a_category_are_left_out_and_unknown_ones_are_an_error():
    assert category_ids(detr_names(), [18, 12, 1]) == [18, 1]
    with pytest.raises(TallyboxError, match="91"):
        category_ids(detr_names(), [91])
