"""Detections of many images as columns, 40 bytes each instead of a dict of half a kilobyte, and back to images."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallybox.detections.container import Detections, ImageId, first_problem
from tallybox.errors import InputError

Size = tuple[int, int]
WHOLE_NUMBER = re.compile("0|[1-9][0-9]{0,17}", re.ASCII)  # as str() writes it, within 64 bits


class DetectionColumns:
    """Rows added in any order, given back image by image in the order in which images first appeared."""

    def __init__(self, path: Path, *, unit: str = "record") -> None:
        self._path, self._unit = path, unit  # what the file is counted in, for errors
        self._images: dict[ImageId, int] = {}  # image id to its number, in order of appearance
        self._sizes: dict[int, Size] = {}
        self._rows: list[tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]] = []

    def add_image(self, image_id: ImageId, size: Size | None = None) -> None:
        """Name an image that may have no detections."""
        number = self._images.setdefault(image_id, len(self._images))
        if size is not None and self._sizes.setdefault(number, size) != size:
            raise InputError(
                f"{self._path}: image {image_id!r} must have one size, but got {self._sizes[number]} and {size}"
            )

    def add(
        self,
        image_ids: Sequence[ImageId],
        category_ids: NDArray[np.int64],
        boxes_xyxy: NDArray[np.float64],
        scores: NDArray[np.float64],
        record_numbers: Sequence[int],
    ) -> None:
        """Check and add rows; ``record_numbers`` say where each came from."""
        with np.errstate(over="ignore"):  # too large for float32 is infinite, and said to be so
            boxes, rounded_scores = boxes_xyxy.astype(np.float32), scores.astype(np.float32)
        check_rows(self._path, boxes, rounded_scores, record_numbers, unit=self._unit)
        images = self._images
        numbers = np.fromiter((images.setdefault(i, len(images)) for i in image_ids), np.int32, len(image_ids))
        self._rows.append((numbers, category_ids, boxes, rounded_scores.clip(0, 1)))

    def images(self) -> Iterator[Detections]:
        """Yield one `Detections` for each image."""
        if self._rows:
            numbers, category_ids, boxes, scores = (np.concatenate(column) for column in zip(*self._rows, strict=True))
            self._rows.clear()
        else:
            nothing = Detections.empty()
            numbers, category_ids, boxes, scores = np.zeros(0, int), nothing.category_ids, nothing.boxes, nothing.scores
        order = np.argsort(numbers, kind="stable")
        starts = np.searchsorted(numbers[order], np.arange(len(self._images) + 1))
        for number, image_id in enumerate(self._images):
            rows = order[starts[number] : starts[number + 1]]
            size = self._sizes.get(number)
            yield Detections.of_checked(boxes[rows], scores[rows], category_ids[rows], size, image_id)


def check_rows(
    path: Path,
    boxes_xyxy: NDArray[np.floating],
    scores: NDArray[np.floating],
    record_numbers: Sequence[int] | NDArray[np.int64],
    *,
    unit: str = "record",
) -> None:
    """Raise with file and record where a box or score is wrong."""
    if problem := first_problem(boxes_xyxy, scores):
        raise InputError(f"{path}, {unit} {record_numbers[problem.index]}: {problem.said}; {problem.remedy}")


def image_key(text: ImageId) -> ImageId:
    """Return an image id as a number where it is the text of one, so that "285" and 285 are one image in all files.

    >>> image_key("285"), image_key("000285.jpg"), image_key("007")
    (285, '000285.jpg', '007')
    """
    if isinstance(text, str) and WHOLE_NUMBER.fullmatch(text):
        return int(text)
    return text
