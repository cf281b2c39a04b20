"""COCO files: results (what a detector said) and instances (what is there), streamed."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallybox.detections.columns import DetectionColumns, Size, image_key
from tallybox.detections.container import Detections, ImageId
from tallybox.detections.json_stream import JsonRecord, JsonStream
from tallybox.detections.labels import TrueCounts
from tallybox.detections.outputs import xywh_to_xyxy
from tallybox.errors import InputError
from tallybox.files import open_binary

RESULTS = "COCO results (a list of objects with image_id, category_id, bbox, score)"
INSTANCES = "COCO instances (an object with images, annotations, categories)"


class _Result(JsonRecord):
    image_id: int | str
    category_id: int
    bbox: tuple[float, float, float, float]
    score: float


class _Image(JsonRecord):
    id: int | str
    width: int | None = None
    height: int | None = None
    file_name: str | None = None


class _Category(JsonRecord):
    id: int
    name: str


class _Annotation(JsonRecord):
    image_id: int | str
    category_id: int
    id: int | str | None = None
    iscrowd: int = 0


def read_coco_results(path: Path) -> Iterator[Detections]:
    """Yield the detections of each image, in the order in which images first appear.

    The file is read to its end first, since nothing says that an image's records stand together; until then a
    record takes 40 bytes.
    """
    columns = DetectionColumns(path)
    with open_binary(path) as file:
        stream = JsonStream(file, path, RESULTS)
        if stream.kind() == "{":
            raise InputError(f"{path} must be {RESULTS}, but it is an object; is it {INSTANCES}?")
        for first, records in stream.records(_Result):
            number = len(records)
            boxes_xywh = np.fromiter(chain.from_iterable([r.bbox for r in records]), np.float64, 4 * number)
            boxes_xywh = boxes_xywh.reshape(-1, 4)
            _check_sizes(path, first, boxes_xywh)
            columns.add(
                [image_key(record.image_id) for record in records],
                np.fromiter([record.category_id for record in records], np.int64, number),
                xywh_to_xyxy(boxes_xywh),
                np.fromiter([record.score for record in records], np.float64, number),
                range(first, first + number),
            )
        stream.finish()
    yield from columns.images()


def write_coco_results(detections: Iterable[Detections], path: Path) -> int:
    """Write detections as COCO results, gzipped where the name ends so, and return how many images there were.

    An image without detections leaves no trace in such a file.
    """
    unfinished = path.with_name(path.name + ".unfinished")
    images, separator = 0, "["
    try:
        with gzip.open(unfinished, "wt") if path.suffix.lower() == ".gz" else unfinished.open("w") as file:
            for image in detections:
                images += 1
                for record in _results_of(image):
                    file.write(separator + json.dumps(record))
                    separator = ",\n"
            file.write("]\n" if separator != "[" else "[]\n")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return images


def _results_of(image: Detections) -> Iterator[dict[str, Any]]:
    if image.image_id is None:
        raise InputError("detections must have an image_id to be written, but got None")
    boxes_xywh = np.concatenate((image.boxes[:, :2], image.boxes[:, 2:] - image.boxes[:, :2]), axis=1)
    for category_id, box, score in zip(image.category_ids, boxes_xywh, image.scores, strict=True):
        yield {
            "image_id": image.image_id,
            "category_id": int(category_id),
            "bbox": [round(float(side), 3) for side in box],
            "score": round(float(score), 6),
        }


def read_coco_instances(path: Path) -> TrueCounts:
    """Return how many objects of each category each image holds, and every image's size and file name.

    An annotation with ``iscrowd`` is one box over many objects: how many there are is not known, so that pair of
    image and category is kept out of the counts and named in ``unknown``.
    """
    images: dict[ImageId, Size | None] = {}
    file_names: dict[ImageId, str] = {}
    categories: dict[int, str] = {}
    annotated: list[tuple[ImageId, int]] = []
    crowds: set[tuple[ImageId, int]] = set()
    annotation_ids: set[int | str] = set()
    keys = []
    with open_binary(path) as file:
        stream = JsonStream(file, path, INSTANCES)
        if stream.kind() != "{":
            raise InputError(f"{path} must be {INSTANCES}, but it is no object; is it {RESULTS}?")
        for key in stream.members():
            keys.append(key)
            if key == "images":
                for first, records in stream.records(_Image):
                    for number, image in enumerate(records, first):
                        image_id = image_key(image.id)
                        if image_id in images:
                            raise _repeated(path, key, number, image_id)
                        images[image_id] = (image.width, image.height) if image.width and image.height else None
                        if image.file_name:
                            file_names[image_id] = image.file_name
            elif key == "categories":
                for first, named in stream.records(_Category):
                    for number, category in enumerate(named, first):
                        if category.id in categories:
                            raise _repeated(path, key, number, category.id)
                        categories[category.id] = category.name
            elif key == "annotations":
                for first, annotations in stream.records(_Annotation):
                    for number, annotation in enumerate(annotations, first):
                        if annotation.id in annotation_ids:
                            raise _repeated(path, key, number, annotation.id)
                        if annotation.id is not None:
                            annotation_ids.add(annotation.id)
                        pair = image_key(annotation.image_id), annotation.category_id
                        annotated.append(pair)
                        if annotation.iscrowd:
                            crowds.add(pair)
            else:
                stream.skip()
        stream.finish()
    missing = [key for key in ("images", "annotations", "categories") if key not in keys]
    if missing:
        raise InputError(f"{path} must be {INSTANCES}, but {missing[0]} is missing; it has {keys}")
    for number, (image_id, category_id) in enumerate(annotated):
        if image_id not in images:
            raise InputError(f"{path}, annotations, record {number}: image {image_id!r} is not among its images")
        if category_id not in categories:
            raise InputError(
                f"{path}, annotations, record {number}: category {category_id} is not among its categories"
            )
    counts: dict[ImageId, dict[int, int]] = {image_id: {} for image_id in images}
    for (image_id, category_id), count in Counter(annotated).items():
        if (image_id, category_id) not in crowds:
            counts[image_id][category_id] = count
    return TrueCounts(counts, images, categories, frozenset(crowds), file_names)


def _check_sizes(path: Path, first: int, boxes_xywh: NDArray[np.float64]) -> None:
    negative = (boxes_xywh[:, 2:] < 0).any(1)
    if negative.any():
        index = int(np.argmax(negative))
        raise InputError(
            f"{path}, record {first + index}: bbox must be left, top, width, height with sizes of at least 0, "
            f"but got {boxes_xywh[index].tolist()}"
        )


def _repeated(path: Path, key: str, number: int, repeated: object) -> InputError:
    return InputError(f"{path}, {key}, record {number}: ids must differ, but {repeated!r} was there before")
