"""Matching: images of several sources, or of a source and an estimator, under the same category ids, by name."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tallybox.detections.categories import check_common_names, check_known_ids, match_categories
from tallybox.detections.detections import Detections


def match_images(
    images: Iterable[Any], target: Mapping[int, str], owner: str = "the detections"
) -> Iterator[Detections]:
    """Yield images under the category ids of a ``target``, an estimator's names by id, matched by name.

    Images without names keep their ids. Detections of supervision and ultralytics are converted.

    >>> image = Detections([[0, 0, 5, 5]], [0.5], [0], category_names={0: "nut", 1: "bolt"})
    >>> next(match_images([image], {0: "bolt", 1: "nut"})).category_ids
    array([1])
    """
    last: Mapping[int, str] | None = None  # the images of a file share their names
    ids: dict[int, int] = {}
    names: Mapping[int, str] = target
    for image in map(Detections.of_any, images):
        if not image.category_names:
            check_known_ids(image.category_ids.tolist(), target, f"Image {image.image_id!r}")
            yield image
            continue
        if image.category_names != last:
            last = image.category_names
            check_common_names(last, target, "the detections")
            ids = match_categories(last, target)
            names = {**{ids[key]: name for key, name in last.items()}, **target}
        yield image.renumbered(ids, names)


def common_categories(
    images: Iterable[Detections], names: Mapping[int, str] | None
) -> tuple[list[Detections], dict[int, str]]:
    """Return images under common category ids, and the names of these; ``names`` are for images without.

    Ids are those of ``names``, and of the first image for others: detectors may number a name differently.
    """
    common, matched = dict(names or {}), []
    last: Mapping[int, str] | None = None  # the images of a file share their names
    ids: dict[int, int] = {}
    for image in map(Detections.of_any, images):
        if image.category_names and image.category_names != last:
            last = image.category_names
            ids = match_categories(last, common)
            common |= {ids[key]: name for key, name in last.items() if ids[key] not in common}
        matched.append(image.renumbered(ids, common) if image.category_names else image)
    return matched, common
