"""Which category each label of a model stands for: COCO's ids where its names are COCO's, else the model's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tallybox.detections.category_names import (
    COCO_CATEGORIES,
    COCO_CATEGORY_IDS,
    category_ids_of_classes,
    coco_id_of_class,
)
from tallybox.errors import TallyboxError


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
