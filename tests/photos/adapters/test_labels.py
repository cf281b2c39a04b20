from __future__ import annotations

import numpy as np
import pytest

from tallybox.detections.category_names import COCO_CATEGORIES, COCO_CATEGORY_IDS
from tallybox.errors import TallyboxError
from tallybox.photos.adapters.adapter import LabelCategories


def detr_names() -> dict[int, str]:
    """COCO's 91 numbers, the gaps of which DETR calls N/A."""
    return {label: COCO_CATEGORIES.get(label, "N/A") for label in range(91)}


@pytest.mark.parametrize(
    ("names", "category_ids"),
    [
        (detr_names(), {label: label for label in COCO_CATEGORIES}),
        (dict(enumerate(COCO_CATEGORIES.values())), dict(enumerate(COCO_CATEGORY_IDS))),
        ({0: "Dog", 1: "person"}, {0: 18, 1: 1}),
        ({0: "motorbike", 1: "tvmonitor"}, {0: 4, 1: 72}),
    ],
    ids=["DETR's 91", "YOLO's 80", "two of them", "Darknet's names"],
)
def test_names_of_coco_get_its_ids_in_any_order(names, category_ids):
    labels = LabelCategories.from_names(names)
    assert labels.category_ids == category_ids
    assert all(COCO_CATEGORIES[category_id] == name for category_id, name in labels.categories.items())


def test_one_other_name_and_all_numbers_are_the_models_own():
    labels = LabelCategories.from_names({0: "__background__", 1: "dog", 2: "apple tree"})
    assert labels.category_ids == {1: 1, 2: 2}
    assert labels.categories == {1: "dog", 2: "apple tree"}


def test_labels_without_a_category_are_left_out_and_unknown_ones_are_an_error():
    labels = LabelCategories.from_names(detr_names())
    chosen, ids = labels.translate(np.array([18, 12, 1]))
    assert chosen.tolist() == [0, 2]
    assert ids.tolist() == [18, 1]
    with pytest.raises(TallyboxError, match="must be among the 80 that it names, but got 91"):
        labels.translate(np.array([91]))
