"""True counts, and which pairs of image and category are scored."""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import NamedTuple, Self

import numpy as np

from tallybox.detections.box_checks import check_in_image
from tallybox.detections.category_names import category_name_of, find_category
from tallybox.detections.detections import Detections, ImageId
from tallybox.detections.image_ids import check_ids, check_photos, match_photos, may_be_one_photo, shown
from tallybox.errors import InputError

# Of the pairs with a true count of 0, only the few with the highest scores are taken: these are hard.
ABSENT_CATEGORIES_PER_IMAGE = 2
ABSENT_SCORE_ABOVE = float(np.float32(0.05))  # in the dtype of scores, so that a score of 0.05 does not exceed it


@dataclass(frozen=True)
class TrueCounts:
    """How many objects of each category each labelled image holds; a labelled category that it does not name counts 0.

    ``labelled`` are the categories that were counted, None for all. Other categories, and the pairs of image and
    category in ``unknown`` (COCO's crowds), were not counted: they are neither scored nor learned from.

    >>> labels = TrueCounts({7: {18: 3}})
    >>> labels.count(7, 18), labels.count(7, 1)
    (3, 0)
    """

    counts: Mapping[ImageId, Mapping[int, int]]
    image_sizes: Mapping[ImageId, tuple[int, int] | None] = field(default_factory=dict)  # (width, height)
    categories: Mapping[int, str] = field(default_factory=dict)  # names of all that were counted; empty if not known
    unknown: frozenset[tuple[ImageId, int]] = frozenset()
    file_names: Mapping[ImageId, str] = field(default_factory=dict)  # of photos, as far as known, with slashes
    left_out: frozenset[ImageId] = frozenset()  # labelled images that are not to be used
    labelled: frozenset[int] | None = None

    def __len__(self) -> int:
        """Return the number of labelled images."""
        return len(self.counts)

    def count(self, image_id: ImageId, category_id: int) -> int:
        """Return how many objects of a category a labelled image holds."""
        return self.counts[image_id].get(category_id, 0)

    def is_labelled(self, category_id: int) -> bool:
        """Return whether objects of a category were counted."""
        return self.labelled is None or category_id in self.labelled

    def labelled_ids(self) -> frozenset[int]:
        """Return the ids of the labelled categories, as far as they are known."""
        if self.labelled is not None:
            return self.labelled
        return frozenset({*self.categories, *(c for of_image in self.counts.values() for c in of_image)})

    def of_categories(self, category_ids: Iterable[int]) -> "TrueCounts":
        """Return the labels of some categories; each must be labelled.

        >>> TrueCounts({7: {1: 2, 18: 3}}).of_categories([18]).counts
        {7: {18: 3}}
        """
        chosen = frozenset(category_ids)
        if unlabelled := sorted(chosen - self.labelled_ids()):
            name = category_name_of(unlabelled[0], self.categories)
            raise InputError(f"the labels must count category {name!r} to learn from it or score it, but they do not")
        return replace(self, counts=self._counts_under({c: c for c in chosen}), labelled=chosen)

    def _counts_under(self, new_ids: Mapping[int, int]) -> dict[ImageId, dict[int, int]]:
        """Return the counts of the categories that have a new id, under these."""
        return {
            image_id: {new_ids[c]: count for c, count in of_image.items() if c in new_ids}
            for image_id, of_image in self.counts.items()
        }

    def with_zeros(self, images: Iterable[Detections]) -> "TrueCounts":
        """Return the labels, with a count of 0 for everything in images without labels.

        >>> TrueCounts({7: {18: 3}}).with_zeros([Detections.empty(7), Detections.empty(8)]).counts
        {8: {}, 7: {18: 3}}
        """
        ids = self.ids_by_file_name()
        missing = {i: dict[int, int]() for image in images if (i := _label_id(image, self, ids)) not in self.counts}
        return replace(self, counts={**missing, **self.counts})

    def of_photos(self, photo_ids: Sequence[str]) -> "TrueCounts":
        """Return the labels of photos, matched by path or by name, with or without a suffix; other labels are left out.

        >>> TrueCounts({"a": {18: 3}, "b.jpg": {}}).of_photos(["2024/a.jpg", "2024/b.jpg"]).file_names
        {'a': '2024/a.jpg', 'b.jpg': '2024/b.jpg'}
        """
        file_names = match_photos({key: self.file_names.get(key, str(key)) for key in self.counts}, photo_ids)
        check_photos(file_names, self.counts.keys(), photo_ids)
        return replace(self.only(file_names), file_names=file_names)

    def first_images(self, number: int) -> "TrueCounts":
        """Return the labels of the first images by ascending id."""
        return self.only(sorted(self.counts, key=lambda image_id: (isinstance(image_id, str), image_id))[:number])

    def only(self, image_ids: Iterable[ImageId]) -> "TrueCounts":
        """Return the labels of some of the images.

        >>> len(TrueCounts({7: {18: 3}, 9: {}}).only([9]))
        1
        """
        counts = {image_id: self.counts[image_id] for image_id in image_ids}
        return replace(self, counts=counts, left_out=self.left_out | (self.counts.keys() - counts.keys()))

    def with_categories_of(self, categories: Mapping[int, str]) -> "TrueCounts":
        """Return the labels under the category ids that a detector gives to the same names.

        Names are found as `find_category` does. Categories that the detector does not know are left out, with a warning
        where they have counts; labels that name no categories keep their ids.

        >>> labels = TrueCounts({7: {1: 3}}, categories={1: "Apples", 2: "pear"})
        >>> labels.with_categories_of({0: "cup", 4: "apple"}).counts
        {7: {4: 3}}
        """
        if not self.categories:
            used = {category_id for of_image in self.counts.values() for category_id in of_image}
            if unknown := used - categories.keys():
                raise InputError(
                    f"category ids of the labels must be among the {len(categories)} of the detections, "
                    f"but got {min(unknown)}"
                )
            return replace(self, categories=categories)
        found = {category_id: find_category(name, categories) for category_id, name in self.categories.items()}
        new_ids = {category_id: new_id for category_id, new_id in found.items() if new_id is not None}
        if not new_ids:
            raise InputError(
                f"labels must name categories that the detections have, such as {next(iter(categories.values()))!r}, "
                f"but got {sorted(self.categories.values())[:3]}"
            )
        for new_id, uses in Counter(new_ids.values()).items():
            if uses > 1:
                both = " and ".join(repr(self.categories[i]) for i in new_ids if new_ids[i] == new_id)
                raise InputError(f"categories of the labels must differ, but {both} are all {categories[new_id]!r}")
        counted = {c for of_image in self.counts.values() for c, count in of_image.items() if count}
        if left_out := sorted(self.categories[c] for c in counted - new_ids.keys()):
            warnings.warn(
                f"{len(left_out)} categories of the labels are none of the detections ({shown(left_out)}); they are "
                "left out",
                stacklevel=2,
            )
        return replace(
            self,
            counts=self._counts_under(new_ids),
            categories={new_id: categories[new_id] for new_id in sorted(new_ids.values())},
            unknown=frozenset((image_id, new_ids[c]) for image_id, c in self.unknown if c in new_ids),
            labelled=None if self.labelled is None else frozenset(new_ids[c] for c in self.labelled if c in new_ids),
        )

    def ids_by_file_name(self) -> dict[str, ImageId]:
        """Return the ids of images by the paths of their photos, and by file name where no two photos share it.

        >>> TrueCounts({7: {}}, file_names={7: "val/0007.jpg"}).ids_by_file_name()
        {'0007.jpg': 7, 'val/0007.jpg': 7}
        """
        last_parts: dict[str, list[ImageId]] = {}
        for image_id, name in self.file_names.items():
            last_parts.setdefault(PurePosixPath(name).name, []).append(image_id)
        unique = {name: ids[0] for name, ids in last_parts.items() if len(ids) == 1}
        return unique | {name: image_id for image_id, name in self.file_names.items()}


class CountingPair(NamedTuple):
    """One image and one category, with its true count."""

    detections: Detections  # everything detected in the image
    category_id: int
    true_count: int


def labelled_detections(detections: Iterable[Detections], labels: TrueCounts) -> Iterator[Detections]:
    """Yield the detections of every labelled image, with its size where known.

    A labelled image without detections has no boxes and comes last. Images without labels are skipped; where ids seem
    to be written in two ways, `check_ids` raises. Where the labels name their categories, any other category is an
    error: the detector numbers categories differently. An image with the file name of a labelled one takes its id.
    """
    missing = dict.fromkeys(labels.counts)
    by_file_name = labels.ids_by_file_name()
    unlabelled: list[ImageId] = []
    for image in detections:
        image_id = _label_id(image, labels, by_file_name)
        if image_id in missing:
            del missing[image_id]
            yield _labelled(image, image_id, labels)
        elif image_id in labels.counts:
            raise InputError(f"image {image_id!r} must come once, but came again")
        elif image_id not in labels.left_out:
            unlabelled.append(image_id)
    check_ids(unlabelled, list(missing), len(labels), "the former count as images without boxes")
    for image_id in missing:
        yield Detections.empty(image_id, labels.image_sizes.get(image_id))


def counting_pairs(detections: Iterable[Detections], labels: TrueCounts) -> Iterator[CountingPair]:
    """Yield the pairs that are learned from and scored, for images as `labelled_detections` gives them.

    For each image: every category with a true count of at least 1, and the two highest-scoring labelled categories
    whose true count is 0 and whose best score exceeds 0.05.

    >>> image = Detections([[0, 0, 9, 9]] * 4, [0.9, 0.3, 0.2, 0.1], [18, 1, 2, 3], image_id=7)
    >>> [(pair.category_id, pair.true_count) for pair in counting_pairs([image], TrueCounts({7: {18: 3}}))]
    [(18, 3), (1, 0), (2, 0)]
    """
    return _pairs(detections, labels, _hardest)


def every_pair(detections: Iterable[Detections], labels: TrueCounts) -> Iterator[CountingPair]:
    """Yield a pair for each category that is in an image or was detected there; other categories rightly count 0."""
    return _pairs(detections, labels, sorted)


def _pairs(
    detections: Iterable[Detections], labels: TrueCounts, choose: Callable[[dict[int, float]], list[int]]
) -> Iterator[CountingPair]:
    """Yield a pair for each present category, and for the absent ones that ``choose`` takes by their best scores."""
    for image in detections:
        if image.image_id is None or image.image_id not in labels.counts:
            raise InputError(f"image {image.image_id!r} must have labels, but has none; use labelled_detections")
        present = {c: count for c, count in sorted(labels.counts[image.image_id].items()) if count > 0}
        for category_id, count in present.items():
            yield CountingPair(image, category_id, count)
        absent = {
            c: score
            for c, score in image.best_scores().items()
            if c not in present and labels.is_labelled(c) and (image.image_id, c) not in labels.unknown
        }
        for category_id in choose(absent):
            yield CountingPair(image, category_id, 0)


@dataclass(frozen=True)
class LabelSummary:
    """What labels hold to learn from, in pairs of a labelled image and a labelled category, and what is left out."""

    photos: int
    categories: int
    objects: int  # pairs with a count of at least 1
    zeros: int
    omitted: int  # zeros of categories that an image's labels do not name
    unknown: int
    never_zero: tuple[int, ...]  # categories that are in every labelled image
    always_zero: tuple[int, ...]
    photos_without_boxes: int  # labelled images that are not among the detections
    photos_without_labels: int
    categories_without_labels: tuple[int, ...]  # detected, but not labelled

    @classmethod
    def of(cls, detections: Iterable[Detections], labels: TrueCounts) -> Self:
        """Compare detections with labels."""
        by_file_name = labels.ids_by_file_name()
        detected_images, detected_categories = set[ImageId](), set[int]()
        for image in detections:
            detected_images.add(_label_id(image, labels, by_file_name))
            detected_categories.update(np.unique(image.category_ids).tolist())
        labelled = sorted(labels.labelled_ids())
        present = Counter(c for of_image in labels.counts.values() for c, count in of_image.items() if count > 0)
        named = sum(len(of_image) for of_image in labels.counts.values())
        unknown = Counter(c for image_id, c in labels.unknown if image_id in labels.counts and labels.is_labelled(c))
        zeros = {c: len(labels) - present[c] - unknown[c] for c in labelled}
        return cls(
            photos=len(labels),
            categories=len(labelled),
            objects=sum(present.values()),
            zeros=sum(zeros.values()),
            omitted=len(labels) * len(labelled) - named - unknown.total(),
            unknown=unknown.total(),
            never_zero=tuple(c for c in labelled if not zeros[c]),
            always_zero=tuple(c for c in labelled if not present[c]),
            photos_without_boxes=len(labels.counts.keys() - detected_images),
            photos_without_labels=len(detected_images - labels.counts.keys() - labels.left_out),
            categories_without_labels=tuple(sorted(detected_categories.difference(labelled))),
        )


def _label_id(image: Detections, labels: TrueCounts, by_file_name: Mapping[str, ImageId]) -> ImageId:
    """Return the id under which an image may have labels: its own, or that of a labelled image by its file name."""
    if image.image_id is None:
        raise InputError("detections must have an image_id to find their labels, but got None")
    if image.image_id in labels.counts or isinstance(image.image_id, int):
        return image.image_id
    by_name = by_file_name.get(PurePosixPath(image.image_id).name, image.image_id)
    if not may_be_one_photo(labels.file_names.get(by_name, ""), image.image_id):
        by_name = image.image_id
    return by_file_name.get(image.image_id, by_name)


def _hardest(absent: dict[int, float]) -> list[int]:
    above = [category_id for category_id, score in absent.items() if score > ABSENT_SCORE_ABOVE]
    return sorted(above, key=lambda category_id: (-absent[category_id], category_id))[:ABSENT_CATEGORIES_PER_IMAGE]


def _labelled(image: Detections, image_id: ImageId, labels: TrueCounts) -> Detections:
    """Return an image under the id of its labels, with its size where known; check its categories and boxes."""
    unknown = set(image.category_ids.tolist()) - labels.categories.keys()
    if unknown and labels.categories:
        raise InputError(
            f"image {image_id!r}: category ids must be among the {len(labels.categories)} known ones, but got "
            f"{min(unknown)}; if the detector numbers its classes from 0, translate them to the labels' ids"
        )
    size = image.image_size or labels.image_sizes.get(image_id)
    check_in_image(image.boxes, size, f"image {image_id!r}")
    if (image.image_size, image.image_id) == (size, image_id):
        return image
    return Detections.of_checked(image.boxes, image.scores, image.category_ids, size, image_id)
