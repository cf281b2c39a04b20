"""What every reader checks, and rows in any order gathered by image."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallybox.detections.container import MAX_SIDE, Detections, ImageId, first_problem
from tallybox.errors import InputError

Size = tuple[int, int]  # width, height
WHOLE_NUMBER = re.compile("0|[1-9][0-9]{0,17}", re.ASCII)  # as str() writes it, within 64 bits


def image_key(text: ImageId) -> ImageId:
    """Return an image id as a number where it is the text of one, so that "285" and 285 are one image in all files.

    >>> image_key("285"), image_key("000285.jpg"), image_key("007")
    (285, '000285.jpg', '007')
    """
    if isinstance(text, str) and WHOLE_NUMBER.fullmatch(text):
        return int(text)
    return text


def check_boxes_and_scores(
    path: Path,
    boxes_xyxy: NDArray[np.floating],
    scores: NDArray[np.floating],
    numbers: Sequence[int] | NDArray[np.int64],
    *,
    unit: str = "record",
) -> None:
    """Raise with the file and the number of the record where a box [N, 4] or a score [N] is wrong."""
    if problem := first_problem(boxes_xyxy, scores):
        index, message, remedy = problem
        raise InputError(f"{path}, {unit} {numbers[index]}: {message}; {remedy}")


def image_size(record: str, width: int | None, height: int | None) -> Size | None:
    """Return the size of an image, None where neither side is known; 0 stands for a side that is not known.

    >>> image_size("a.json, record 3", 640, 480), image_size("a.json, record 3", 0, None)
    ((640, 480), None)
    """
    if not width and not height:
        return None
    if not (width and height and 0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE):
        raise InputError(
            f"{record}: width and height must be whole numbers from 1 to {MAX_SIDE}, but got {width} and {height}"
        )
    return width, height


def two_sizes(path: Path, image_id: ImageId, first: Sequence[int], second: Sequence[int]) -> InputError:
    """Return the error of an image with two sizes."""
    return InputError(f"{path}: image {image_id!r} must have one size, but got {tuple(first)} and {tuple(second)}")


class RowsByImage:
    """Rows in any order, 40 bytes each, given back image by image in the order in which images first appeared."""

    def __init__(self, path: Path, *, unit: str = "record") -> None:
        self._path, self._unit = path, unit  # what the file is counted in, for errors
        self._images: dict[ImageId, int] = {}  # image id to its number, in order of appearance
        self._sizes: dict[ImageId, Size] = {}
        self._rows: list[tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]] = []

    def add_image(self, image_id: ImageId, size: Size | None = None) -> None:
        """Name an image that may have no detections."""
        self._images.setdefault(image_id, len(self._images))
        if size is not None and self._sizes.setdefault(image_id, size) != size:
            raise two_sizes(self._path, image_id, self._sizes[image_id], size)

    def add(
        self,
        image_ids: Sequence[ImageId],
        category_ids: NDArray[np.int64],
        boxes_xyxy: NDArray[np.float64],
        scores: NDArray[np.float64],
        numbers: Sequence[int],
    ) -> None:
        """Check and add rows; ``numbers`` are those of their records."""
        with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite, which is refused
            boxes, rounded_scores = boxes_xyxy.astype(np.float32), scores.astype(np.float32)
        check_boxes_and_scores(self._path, boxes, rounded_scores, numbers, unit=self._unit)
        images = self._images
        owners = np.fromiter((images.setdefault(i, len(images)) for i in image_ids), np.int32, len(image_ids))
        self._rows.append((owners, category_ids, boxes, rounded_scores.clip(0, 1)))

    def images(self) -> Iterator[Detections]:
        """Yield one `Detections` for each image."""
        nothing = Detections.empty()
        self._rows.append((np.zeros(0, np.int32), nothing.category_ids, nothing.boxes, nothing.scores))
        owners, category_ids, boxes, scores = (np.concatenate(column) for column in zip(*self._rows, strict=True))
        self._rows.clear()
        order = np.argsort(owners, kind="stable")
        starts = np.searchsorted(owners[order], np.arange(len(self._images) + 1))
        for number, image_id in enumerate(self._images):
            rows = order[starts[number] : starts[number + 1]]
            size = self._sizes.get(image_id)
            yield Detections.of_checked(boxes[rows], scores[rows], category_ids[rows], size, image_id)
