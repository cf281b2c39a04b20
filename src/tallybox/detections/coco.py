"""COCO files: results, which hold detections, and instances, which hold the objects that were labelled."""

import collections
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from tallybox.detections.detections import MAX_SIDE, ImageId, Size
from tallybox.detections.labels import TrueCounts, image_key
from tallybox.errors import InputError
from tallybox.files import error_summary, read_json

RESULTS = "COCO results (a list of objects with image_id, category_id, bbox, score)"
INSTANCES = "COCO instances (an object with images, annotations, categories)"

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class JsonRecord(msgspec.Struct, gc=False):
    """Base of the records that are read; keys that a record does not declare are ignored."""


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


def read_coco_results(path: Path) -> dict[str, Any]:
    """Return the columns of a table of detections: image_id, category_id, x, y, width, height, score.

    529,281 results (44 MB of JSON, gzipped) take 0.8 s on one core. Records are decoded one by one, because as raw text
    they take 150 bytes each, and decoded 390.
    """
    records = read_json(path, list[msgspec.Raw], RESULTS)
    decoder = msgspec.json.Decoder(_Result)
    image_ids: list[ImageId] = []
    category_ids = np.zeros(len(records), np.int64)
    numbers = np.zeros((len(records), 5))
    for number, record in enumerate(records):
        try:
            result = decoder.decode(record)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"{path}, record {number}: {error_summary(error)}; expected {RESULTS}") from None
        image_ids.append(result.image_id)
        category_ids[number] = result.category_id
        numbers[number] = *result.bbox, result.score
    columns = dict(zip(("x", "y", "width", "height", "score"), numbers.T, strict=True))
    return {"image_id": image_ids, "category_id": category_ids, **columns}


def read_coco_instances(path: Path) -> TrueCounts:
    """Return how many objects of each category each image holds, and every image's size and file name.

    An annotation with ``iscrowd`` is one box over many objects: how many there are is not known, so that pair of
    image and category is kept out of the counts and named in ``unknown``.
    """
    content = read_json(path, _Instances, INSTANCES)
    _check_differ(path, "images", (image_key(image.id) for image in content.images))
    _check_differ(path, "categories", (category.id for category in content.categories))
    _check_differ(path, "annotations", (annotation.id for annotation in content.annotations))
    sizes = {image_key(image.id): _size(path, image) for image in content.images}
    categories = {category.id: category.name for category in content.categories}
    pairs = [(image_key(annotation.image_id), annotation.category_id) for annotation in content.annotations]
    for number, (image_id, category_id) in enumerate(pairs):
        if image_id not in sizes or category_id not in categories:
            raise InputError(
                f"{path}, annotation {number}: image {image_id!r} or category {category_id} is not in the file"
            )
    crowds = frozenset(pair for pair, annotation in zip(pairs, content.annotations, strict=True) if annotation.iscrowd)
    counts: dict[ImageId, dict[int, int]] = {image_id: {} for image_id in sizes}
    for (image_id, category_id), count in collections.Counter(pairs).items():
        if (image_id, category_id) not in crowds:
            counts[image_id][category_id] = count
    file_names = {image_key(image.id): image.file_name for image in content.images if image.file_name}
    return TrueCounts(counts, sizes, categories, crowds, file_names)


def _size(path: Path, image: _Image) -> Size | None:
    if not image.width and not image.height:
        return None
    if not (image.width and image.height and 0 < image.width <= MAX_SIDE and 0 < image.height <= MAX_SIDE):
        raise InputError(f"{path}, image {image.id!r}: {image.width} × {image.height} is not a size in pixels")
    return image.width, image.height


def _check_differ(path: Path, key: str, ids: Iterable[int | str | None]) -> None:
    seen: set[int | str] = set()
    for record_id in ids:
        if record_id in seen:
            raise InputError(f"{path}: two {key} have the id {record_id!r}")
        if record_id is not None:
            seen.add(record_id)
