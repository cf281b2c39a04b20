"""COCO files: results, which hold detections, and instances, which hold the objects that were labelled."""

import collections
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from tallybox.detections.detections import MAX_SIDE, ImageId
from tallybox.detections.labels import TrueCounts, image_key
from tallybox.errors import InputError
from tallybox.files import read_json

RESULTS = "COCO results (a list of objects with image_id, category_id, bbox, score)"
INSTANCES = "COCO instances (an object with images, annotations, categories)"

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Side = Annotated[int, msgspec.Meta(ge=0, le=MAX_SIDE)]  # 0 if not known


class JsonRecord(msgspec.Struct, gc=False):
    """Base of the records that are read; keys that a record does not declare are ignored."""


class _Result(JsonRecord):
    image_id: Int64 | str
    category_id: Int64
    bbox: tuple[float, float, float, float]
    score: float


class _Image(JsonRecord):
    id: Int64 | str
    width: Side | None = None
    height: Side | None = None
    file_name: str | None = None


class _Category(JsonRecord):
    id: Int64
    name: str


class _Instance(JsonRecord):
    image_id: Int64 | str
    category_id: Int64
    iscrowd: int = 0


class _Instances(JsonRecord):
    images: list[_Image]
    annotations: list[_Instance]
    categories: list[_Category]


def read_coco_results(path: Path, pandas: Any) -> Any:
    """Return a table of detections: image_id, category_id, x, y, width, height, score."""
    results = read_json(path, list[_Result], RESULTS)
    columns = {name: [getattr(result, name) for result in results] for name in ("image_id", "category_id", "score")}
    boxes = np.array([result.bbox for result in results], np.float64).reshape(-1, 4)
    columns |= zip(("x", "y", "width", "height"), boxes.T, strict=True)
    return pandas.DataFrame(columns).rename_axis("record")


def read_coco_instances(path: Path) -> TrueCounts:
    """Return how many objects of each category each image holds, and every image's size and file name.

    An annotation with ``iscrowd`` is one box over many objects: how many there are is not known, so that pair of
    image and category is kept out of the counts and named in ``unknown``.
    """
    content = read_json(path, _Instances, INSTANCES)
    images = {image_key(image.id): image for image in content.images}
    categories = {category.id: category.name for category in content.categories}
    for kind, ids, records in (("images", images, content.images), ("categories", categories, content.categories)):
        if len(ids) < len(records):
            raise InputError(f"{path}: two {kind} have the same id")
    pairs = [(image_key(annotation.image_id), annotation.category_id) for annotation in content.annotations]
    for number, (image_id, category_id) in enumerate(pairs):
        if image_id not in images or category_id not in categories:
            unknown = f"image {image_id!r} or category {category_id}"
            raise InputError(f"{path}, annotation {number}: {unknown} is not in the file")
    crowds = frozenset(pair for pair, annotation in zip(pairs, content.annotations, strict=True) if annotation.iscrowd)
    counts: dict[ImageId, dict[int, int]] = {image_id: {} for image_id in images}
    for (image_id, category_id), count in collections.Counter(pairs).items():
        if (image_id, category_id) not in crowds:
            counts[image_id][category_id] = count
    sizes = {key: (image.width, image.height) for key, image in images.items() if image.width and image.height}
    file_names = {key: image.file_name for key, image in images.items() if image.file_name}
    return TrueCounts(counts, sizes, categories, crowds, file_names)
