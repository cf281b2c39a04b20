"""Which category each label of a model stands for: COCO's ids where its names are COCO's, else the model's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tallybox.detections.category_names import COCO_CATEGORIES, COCO_CATEGORY_IDS
from tallybox.errors import TallyboxError

# Labels that stand for nothing: the gaps in COCO's numbering, and what is no object.
NOT_CATEGORIES = frozenset({"", "n/a", "background", "__background__"})

# Names that Darknet's list of COCO's categories took over from Pascal VOC.
COCO_SYNONYMS = {
    "aeroplane": "airplane",
    "diningtable": "dining table",
    "motorbike": "motorcycle",
    "pottedplant": "potted plant",
    "sofa": "couch",
    "tvmonitor": "tv",
}


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
        ignored = frozenset(label for label, name in names.items() if name.strip().lower() in NOT_CATEGORIES)
        named = {label: name.strip() for label, name in sorted(names.items()) if label not in ignored}
        coco_ids = {name: category_id for category_id, name in COCO_CATEGORIES.items()}
        as_coco = {label: COCO_SYNONYMS.get(name.lower(), name.lower()) for label, name in named.items()}
        if named and all(name in coco_ids for name in as_coco.values()):
            category_ids = {label: coco_ids[name] for label, name in as_coco.items()}
            return cls(category_ids, {i: COCO_CATEGORIES[i] for i in sorted(category_ids.values())}, ignored)
        return cls({label: label for label in named}, named, ignored)

    @classmethod
    def own(cls, names: Mapping[int, str]) -> Self:
        """Take the model's labels as category ids, also where a name is one of COCO's."""
        return cls({label: label for label in names}, names)

    @classmethod
    def coco_in_order(cls) -> Self:
        """Take labels 0 to 79 as COCO's categories in order."""
        return cls(dict(enumerate(COCO_CATEGORY_IDS)), COCO_CATEGORIES)

    def translate(self, labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return which of the labels ``[N]`` stand for a category, as indices ``[M]``, and the category ids ``[M]``."""
        numbers = labels.tolist()
        if unknown := [label for label in numbers if label not in self.category_ids and label not in self.ignored]:
            raise TallyboxError(
                f"the model's labels must be among the {len(self.category_ids)} that it names, but got {unknown[0]}"
            )
        chosen = [index for index, label in enumerate(numbers) if label not in self.ignored]
        ids = [self.category_ids[numbers[index]] for index in chosen]
        return np.array(chosen, np.int64), np.array(ids, np.int64)
