"""COCO files: results, which hold detections, and instances, which hold the objects that were labelled."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from tallybox.detections.adapters import NEGATIVE_SIZE
from tallybox.detections.detections import Detections, ImageId
from tallybox.detections.labels import TrueCounts
from tallybox.detections.rows import RowsByImage, image_key, image_size
from tallybox.errors import InputError
from tallybox.json_files import Int64, JsonRecord, decode_records, read_json

RESULTS = "COCO results (a list of objects with image_id, category_id, bbox, score)"
INSTANCES = "COCO instances (an object with images, annotations, categories)"


class _Result(JsonRecord):
    image_id: Int64 | str
    category_id: Int64
    bbox: tuple[float, float, float, float]
    score: float


class _Image(JsonRecord):
    id: Int64 | str
    width: int | None = None
    height: int | None = None
    file_name: str | None = None


class _Category(JsonRecord):
    id: Int64
    name: str


class _Instance(JsonRecord):
    image_id: Int64 | str
    category_id: Int64
    id: int | str | None = None
    iscrowd: int = 0


class _Instances(JsonRecord):
    images: list[_Image]
    annotations: list[_Instance]
    categories: list[_Category]


def read_coco_results(path: Path) -> Iterator[Detections]:
    """Yield the detections of each image, in the order in which images first appear.

    The file is read to its end first, since the records of an image may stand anywhere.
    """
    rows = RowsByImage(path)
    content = read_json(path, list[msgspec.Raw], RESULTS, hint=f"; is it {INSTANCES}?")
    for number, result in decode_records(path, content, _Result, RESULTS):
        left, top, width, height = result.bbox
        if width < 0 or height < 0:
            raise InputError(f"{path}, record {number}: {NEGATIVE_SIZE}, but got {list(result.bbox)}")
        box_and_score = (left, top, left + width, top + height, result.score)
        rows.add(number, image_key(result.image_id), result.category_id, box_and_score)
    del content
    yield from rows.images()


def read_coco_instances(path: Path) -> TrueCounts:
    """Return how many objects of each category each image holds, and every image's size and file name.

    An annotation with ``iscrowd`` is one box over many objects: how many there are is not known, so that pair of
    image and category is kept out of the counts and named in ``unknown``.
    """
    content = read_json(path, _Instances, INSTANCES, hint=f"; is it {RESULTS}?")
    _check_differ(path, "images", (image_key(image.id) for image in content.images))
    _check_differ(path, "categories", (category.id for category in content.categories))
    _check_differ(path, "annotations", (annotation.id for annotation in content.annotations))
    sizes = {
        image_key(image.id): image_size(f"{path}, images, record {number}", image.width, image.height)
        for number, image in enumerate(content.images)
    }
    categories = {category.id: category.name for category in content.categories}
    pairs = [(image_key(annotation.image_id), annotation.category_id) for annotation in content.annotations]
    for number, (image_id, category_id) in enumerate(pairs):
        if image_id not in sizes:
            raise InputError(f"{path}, annotations, record {number}: image {image_id!r} is not among its images")
        if category_id not in categories:
            raise InputError(
                f"{path}, annotations, record {number}: category {category_id} is not among its categories"
            )
    crowds = frozenset(pair for pair, annotation in zip(pairs, content.annotations, strict=True) if annotation.iscrowd)
    counts: dict[ImageId, dict[int, int]] = {image_id: {} for image_id in sizes}
    for (image_id, category_id), count in Counter(pairs).items():
        if (image_id, category_id) not in crowds:
            counts[image_id][category_id] = count
    file_names = {image_key(image.id): image.file_name for image in content.images if image.file_name}
    return TrueCounts(counts, sizes, categories, crowds, file_names)


def _check_differ(path: Path, key: str, ids: Iterable[int | str | None]) -> None:
    seen: set[int | str] = set()
    for number, record_id in enumerate(ids):
        if record_id in seen:
            raise InputError(f"{path}, {key}, record {number}: ids must differ, but {record_id!r} was there before")
        if record_id is not None:
            seen.add(record_id)
