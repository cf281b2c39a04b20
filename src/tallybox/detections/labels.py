"""True counts, images under the same ids and categories, and the pairs of image and category that are scored."""

import collections
import operator
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from tallybox.detections.categories import (
    COCO_CATEGORIES,
    category_id_of,
    check_common_names,
    check_known_ids,
    find_category,
    ids_by_name,
    is_own,
    listed_names,
    match_categories,
    number_categories,
)
from tallybox.detections.detections import Detections, ImageId, Integers, check_in_image
from tallybox.errors import InputError, InputTypeError, did_you_mean

# Of the pairs with a true count of 0, only the few with the highest scores are taken: these are hard.
ABSENT_CATEGORIES_PER_IMAGE = 2
ABSENT_SCORE_ABOVE = float(np.float32(0.05))  # in the dtype of scores, so that a score of 0.05 does not exceed it
MANY_UNMATCHED = 0.25  # of the labelled images
NAMED_IDS = 3
WHOLE_NUMBER = re.compile("0|[1-9][0-9]{0,17}", re.ASCII)  # as str() writes it, within 64 bits


@dataclass(frozen=True)
class TrueCounts:
    """How many objects of each category each labelled image holds; a labelled category that it does not name counts 0.

    ``labelled`` are the categories that were counted, None for all. Other categories, and the pairs of image and
    category in ``unknown`` (COCO's crowds, empty cells), were not counted: they are neither scored nor learned from.

    >>> labels = TrueCounts({7: {18: 3}}, categories={18: "dog"})
    >>> labels.count(7, 18), labels.count(7, "dog"), labels.count(7, 1)
    (3, 3, 0)
    """

    counts: Mapping[ImageId, Mapping[int, int]]
    image_sizes: Mapping[ImageId, tuple[int, int]] = field(default_factory=dict)  # (width, height)
    categories: Mapping[int, str] = field(default_factory=dict)  # names of all that were counted; empty if not known
    unknown: frozenset[tuple[ImageId, int]] = frozenset()
    file_names: Mapping[ImageId, str] = field(default_factory=dict)  # of photos, as far as known, with slashes
    left_out: frozenset[ImageId] = frozenset()  # labelled images that are not to be used
    labelled: frozenset[int] | None = None
    # Whether names were numbered here; unless they are COCO's, their ids mean nothing elsewhere.
    ids_are_arbitrary: bool = False

    @classmethod
    def of_pairs(cls, counts: Mapping[Any, int]) -> "TrueCounts":
        """Take counts by (image_id, category), a category being an id or a name.

        >>> TrueCounts.of_pairs({(7, "dog"): 3, (8, "dog"): 0}).counts
        {7: {18: 3}, 8: {18: 0}}
        """
        for key, count in counts.items():
            if not isinstance(key, tuple) or len(key) != 2:
                raise InputTypeError(f"counts must be TrueCounts, or keyed by (image_id, category), but got {key!r}")
            if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 0:
                raise InputError(f"counts must be whole numbers of at least 0, but got {count!r} for {key!r}")
        texts = {category for _, category in counts if isinstance(category, str)}
        if texts and len(texts) < len({category for _, category in counts}):
            raise InputError("counts must have names or ids of categories, not both")
        names = number_categories(texts)
        by_image: dict[ImageId, dict[int, int]] = {}
        for (image_id, category), count in counts.items():
            category_id = category_id_of(category, names) if isinstance(category, str) else int(category)
            by_image.setdefault(image_id, {})[category_id] = int(count)
        labelled = frozenset(category_id for of_image in by_image.values() for category_id in of_image)
        return cls(by_image, categories=names, labelled=labelled, ids_are_arbitrary=bool(names))

    def __len__(self) -> int:
        """Return the number of labelled images."""
        return len(self.counts)

    def count(self, image_id: ImageId, category: int | str) -> int:
        """Return how many objects of a category, given by id or name, a labelled image holds."""
        category_id = category_id_of(category, self.categories) if isinstance(category, str) else category
        return self.counts[image_id].get(category_id, 0)

    def is_labelled(self, category_id: int) -> bool:
        """Return whether objects of a category were counted."""
        return self.labelled is None or category_id in self.labelled

    def labelled_ids(self) -> frozenset[int]:
        """Return the ids of the labelled categories, as far as they are known."""
        if self.labelled is not None:
            return self.labelled
        return frozenset({*self.categories, *(c for of_image in self.counts.values() for c in of_image)})

    def of_photos(self, photo_ids: Sequence[str]) -> "TrueCounts":
        """Return the labels of photos; labels without a photo are left out with a warning.

        A label names a photo by its path, or by its name with or without suffix and folders.

        >>> TrueCounts({"a": {18: 3}, "b.jpg": {}}).of_photos(["2024/a.jpg", "2024/b.jpg"]).file_names
        {'a': '2024/a.jpg', 'b.jpg': '2024/b.jpg'}
        """
        photos = self.images_of_labels(photo_ids, "The former are left out.")
        unmatched = [label for label in self.counts if label not in photos]
        if unmatched and len(photos) == len(photo_ids):
            warnings.warn(f"{len(unmatched)} labels have no photo ({shown(unmatched)}) and are left out", stacklevel=2)
        return replace(self.only(photos), file_names={label: str(photo_id) for label, photo_id in photos.items()})

    def images_of_labels(self, image_ids: Iterable[ImageId], consequence: str) -> dict[ImageId, ImageId]:
        """Return the image of each label that has one, by the labels' ids.

        A path also finds labels by the photo's name, if their folders do not contradict each other. Images without
        labels are usual, and so are labels without an image. Both together are an error if they are many.
        """
        names = {label: self.file_names.get(label, str(label)) for label in self.counts}
        exact = {name: label for label, name in names.items()}
        by_stem: dict[str, list[tuple[ImageId, list[str]]]] = {}
        for label, name in names.items():
            key = photo_key(name)
            by_stem.setdefault(key[0], []).append((label, key))
        found: dict[ImageId, ImageId] = {}
        unlabelled: list[ImageId] = []
        for image_id in image_ids:
            fits = [image_id] if image_id in self.counts else []
            if not fits and isinstance(image_id, str):
                key = photo_key(image_id)
                similar = [label for label, other in by_stem.get(key[0], ()) if all(map(operator.eq, key, other))]
                fits = [exact[image_id]] if image_id in exact else similar
            if len(fits) > 1 and not self.file_names:
                raise InputError(f"Labels {fits[0]!r} and {fits[1]!r} are both of image {image_id!r}")
            if len(fits) != 1:
                unlabelled += [image_id] if image_id not in self.left_out else []
            elif found.setdefault(fits[0], image_id) != image_id:
                raise InputError(f"Label {fits[0]!r} fits two images, {found[fits[0]]!r} and {image_id!r}")
        unmatched = [label for label in self.counts if label not in found]
        if unlabelled and unmatched:
            problem = (
                f"{len(unmatched)} of {len(self)} labelled images have no match ({shown(unmatched)}), and "
                f"{len(unlabelled)} images have no labels ({shown(unlabelled)})"
            )
            too_many = max(1, MANY_UNMATCHED * len(self)) < min(len(unlabelled), len(unmatched))
            if too_many or len(unmatched) == len(self):
                raise InputError(f"{problem}; are image ids written in two ways?")
            warnings.warn(f"{problem}. {consequence}", stacklevel=2)
        return found

    def only(self, image_ids: Iterable[ImageId]) -> "TrueCounts":
        """Return the labels of some of the images."""
        counts = {image_id: self.counts[image_id] for image_id in image_ids}
        return replace(self, counts=counts, left_out=self.left_out | (self.counts.keys() - counts.keys()))

    def for_detections(self, names: Mapping[int, str] | None) -> "TrueCounts":
        """Return the labels under the category ids of detections whose categories have these ``names``.

        Categories are matched by name if both sides have names, else by number; then ids without names must be COCO's,
        or the labels must state their ids. Categories that the detector does not know are left out with a warning.

        >>> labels = TrueCounts({7: {1: 3}}, categories={1: "Apple", 2: "pear"})
        >>> labels.for_detections({0: "cup", 4: "apple", 5: "pear"}).counts
        {7: {4: 3}}
        """
        if not names:
            if self.ids_are_arbitrary and is_own(self.categories):
                odd = next(name for name in self.categories.values() if find_category(name) is None)
                problem = f"The detections have category ids without names, and {odd!r} of the labels is none of COCO's"
                remedy = "Give names for the ids (category_names=, --names data.yaml), or category_id in the labels"
                raise InputError(f"{problem}{did_you_mean(odd, COCO_CATEGORIES.values())}. {remedy}")
            if not self.categories or is_own(self.categories):
                return self
            return replace(self, categories=COCO_CATEGORIES, labelled=self.labelled_ids())
        if not self.categories:
            if unknown := self.labelled_ids() - names.keys():
                raise InputError(f"Category {min(unknown)} of the labels is none of the {len(names)} of the detections")
            return replace(self, categories=names, labelled=self.labelled_ids())
        check_common_names(self.categories, names, "the labels", "the detections'")
        found = ids_by_name(self.categories, names)
        counted = {c for of_image in self.counts.values() for c, count in of_image.items() if count}
        if left_out := sorted(self.categories[c] for c in counted - found.keys()):
            unmatched = shown(left_out) + did_you_mean(left_out[0], names.values())
            problem = f"The detections do not have {len(left_out)} categories of the labels ({unmatched})"
            warnings.warn(f"{problem}; they are left out", stacklevel=2)
        return self.renumbered(found, names)

    def renumbered(self, new_ids: Mapping[int, int], names: Mapping[int, str]) -> "TrueCounts":
        """Return the labels of the categories that have a new id, under these ids; ``names`` are all names of ids."""
        match_categories({c: self.categories.get(c, str(c)) for c in new_ids}, names)  # raises if two are the same
        counts = {
            image_id: {new_ids[c]: count for c, count in of_image.items() if c in new_ids}
            for image_id, of_image in self.counts.items()
        }
        return replace(
            self,
            counts=counts,
            categories=names,
            unknown=frozenset((image_id, new_ids[c]) for image_id, c in self.unknown if c in new_ids),
            labelled=frozenset(new_ids[c] for c in self.labelled_ids() if c in new_ids),
            ids_are_arbitrary=False,
        )


class Pairs(NamedTuple):
    """Pairs of an image, by its index in a list, and a category."""

    image_index: Integers  # [P]
    category_ids: Integers  # [P]


def match_images(images: Iterable[Detections], names: dict[int, str], *, named: bool = False) -> Iterator[Detections]:
    """Yield images under common category ids, matched by name: those of ``names``, by id, and new ones for others.

    New names are added to ``names``. Images without names keep their ids, which must be COCO's if the images that
    ``names`` come from are ``named``.
    """
    known = dict(names)
    last, ids = None, dict[int, int]()  # the images of a file share their names
    for image in images:
        if not isinstance(image, Detections):
            kind = type(image).__name__
            raise InputTypeError(f"{kind} is not the Detections of an image; see Detections.from_torchvision …")
        if not image.category_names:
            check_known_ids(image.category_ids.tolist(), known, f"Image {image.image_id!r}")
            if named and len(image) and is_own(known):
                learned = f"the estimator was fitted to named categories ({listed_names(known, known)})"
                remedy = "give names for the ids: category_names= (--names data.yaml)"
                raise InputError(f"Image {image.image_id!r} has category ids without names, but {learned}; {remedy}")
            yield image
            continue
        if image.category_names != last:
            last = image.category_names
            check_common_names(last, known, "the detections")
            ids = match_categories(last, names)
            names |= {ids[key]: name for key, name in last.items() if ids[key] not in names}
        yield image.renumbered(ids, names)


def labelled_detections(detections: Iterable[Detections], labels: TrueCounts) -> Iterator[Detections]:
    """Yield the detections of every labelled image, with its size if known.

    A labelled image without detections has no boxes and comes last. Images without labels are skipped. If the labels
    name their categories, any other category is an error: the detector numbers categories differently. An image with
    the file name of a labelled one takes its id.
    """
    images = list(detections)
    image_ids = [image.image_id for image in images if image.image_id is not None]
    if len(image_ids) < len(images):
        raise InputError("Detections without an image_id have no labels")
    found = labels.images_of_labels(dict.fromkeys(image_ids), "They count as images without boxes.")
    label_of = {image_id: label for label, image_id in found.items()}
    for image_id, number in collections.Counter(image_ids).items():
        if image_id in label_of and number > 1:
            raise InputError(f"{number} images have the labels of {label_of[image_id]!r}")
    for image_id, image in zip(image_ids, images, strict=True):
        if image_id not in label_of:
            continue
        label = label_of[image_id]
        if labels.categories and (unknown := set(image.category_ids.tolist()) - labels.categories.keys()):
            remedy = "if the detector numbers its classes from 0, give their names (category_names=, --names data.yaml)"
            raise InputError(f"Image {label!r}: category {min(unknown)} is none of the labels'; {remedy}")
        size = image.image_size or labels.image_sizes.get(label)
        check_in_image(image, size, f"Image {label!r}")
        yield Detections.of_checked(**vars(image) | {"image_size": size, "image_id": label})
    for label in labels.counts:
        if label not in found:
            yield Detections.empty(label, labels.image_sizes.get(label))


def counting_pairs(images: Sequence[Detections], labels: TrueCounts, *, every: bool = False) -> tuple[Pairs, Integers]:
    """Return the pairs that are learned from and scored, and their true counts ``[P]``.

    ``images`` are those of `labelled_detections`. The pairs of each are every category with a true count of at least 1,
    and the two highest-scoring labelled categories whose true count is 0 and whose best score exceeds 0.05. With
    ``every``, all that were detected instead of these two; any other category rightly counts 0.
    """
    rows: list[tuple[int, int, int]] = []
    for index, image in enumerate(images):
        if image.image_id is None or image.image_id not in labels.counts:
            raise InputError(f"Image {image.image_id!r} has no labels; use labelled_detections")
        present = {c: count for c, count in sorted(labels.counts[image.image_id].items()) if count > 0}
        absent = {
            c: score
            for c, score in sorted(image.best_scores().items())
            if c not in present and labels.is_labelled(c) and (image.image_id, c) not in labels.unknown
        }
        if not every:
            likely = sorted((-score, c) for c, score in absent.items() if score > ABSENT_SCORE_ABOVE)
            absent = {c: -score for score, c in likely[:ABSENT_CATEGORIES_PER_IMAGE]}
        rows += [(index, c, count) for c, count in (present | dict.fromkeys(absent, 0)).items()]
    image_index, category_ids, true_counts = np.array(rows, np.int64).reshape(-1, 3).T.copy()
    return Pairs(image_index, category_ids), true_counts


def image_key(value: Any) -> ImageId:
    """Return an image id as a number if it is the text of one, so that "285" and 285 are one image in all files.

    >>> image_key("285"), image_key(" a.jpg"), image_key("007"), image_key(3.0)
    (285, 'a.jpg', '007', 3)
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    text = str(value).strip()
    return int(text) if WHOLE_NUMBER.fullmatch(text) else text


def photo_key(image_id: ImageId) -> list[str]:
    r"""Return what photos are compared by: the name without suffix and leading zeros, then the folders outwards.

    >>> photo_key(r"C:\Kitchen\0007.JPG")
    ['7', 'kitchen', 'c:']
    """
    *folders, name = str(image_id).strip().casefold().replace("\\", "/").split("/")
    stem = PurePosixPath(name).stem
    return [stem.lstrip("0") if stem.isdecimal() else stem, *(f for f in reversed(folders) if f not in ("", ".", ".."))]


def shown(ids: Sequence[ImageId]) -> str:
    """Return the first few ids or names, as a message shows them."""
    return ", ".join(map(repr, ids[:NAMED_IDS])) + (" …" if len(ids) > NAMED_IDS else "")
