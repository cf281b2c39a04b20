"""Checks that all readers share, and `RowsByImage`, which gathers rows in any order by image."""

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from tallybox.detections.box_checks import check_in_image, check_not_corners, first_problem
from tallybox.detections.detections import MAX_SIDE, Detections, Floats, ImageId, Integers, Size
from tallybox.errors import InputError

BOX_AND_SCORE = ("x1", "y1", "x2", "y2", "score")  # columns of Parquet and CSV files
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
    path: Path, boxes_xyxy: Floats, scores: Floats, records: Sequence[int] | Integers, *, unit: str = "record"
) -> None:
    """Raise with the file and the number of the record where a box [N, 4] or a score [N] is wrong."""
    if problem := first_problem(boxes_xyxy, scores):
        index, message, remedy = problem
        raise InputError(f"{path}, {unit} {records[index]}: {message}; {remedy}")


def image_size(record: str, width: int | None, height: int | None) -> Size | None:
    """Return the size of an image, None where neither side is known; 0 stands for a side that is not known."""
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
    """Collects rows in any order, in 60 bytes each, and returns them by image, in order of first appearance."""

    def __init__(self, path: Path, *, unit: str = "record") -> None:
        self._path, self._unit = path, unit  # errors name the file and the number of its record or line
        self._images: dict[ImageId, int] = {}  # image id to its number, in order of appearance
        self._sizes: dict[ImageId, Size] = {}
        self._records, self._owners, self._category_ids = array("q"), array("i"), array("q")
        self._boxes_and_scores = array("d")

    def add_image(self, image_id: ImageId, size: Size | None = None) -> None:
        """Add an image, which may have no detections."""
        self._images.setdefault(image_id, len(self._images))
        if size is not None and self._sizes.setdefault(image_id, size) != size:
            raise two_sizes(self._path, image_id, self._sizes[image_id], size)

    def add(self, record: int, image_id: ImageId, category_id: int, box_and_score: Iterable[float]) -> None:
        """Add x1, y1, x2, y2, score; ``record`` is the number of the row in its file."""
        self._records.append(record)
        self._owners.append(self._images.setdefault(image_id, len(self._images)))
        self._category_ids.append(category_id)
        self._boxes_and_scores.extend(box_and_score)

    def images(self) -> Iterator[Detections]:
        """Check all rows and yield one `Detections` for each image."""
        with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite, which is refused
            numbers = np.asarray(self._boxes_and_scores).astype(np.float32).reshape(-1, 5)
        boxes, scores, category_ids = numbers[:, :4], numbers[:, 4], np.asarray(self._category_ids, np.int64)
        check_boxes_and_scores(self._path, boxes, scores, self._records, unit=self._unit)
        if not self._sizes:
            check_not_corners(boxes, str(self._path))
        order = np.argsort(self._owners, kind="stable")
        starts = np.searchsorted(np.asarray(self._owners)[order], np.arange(len(self._images) + 1))
        for number, image_id in enumerate(self._images):
            rows = order[starts[number] : starts[number + 1]]
            size = self._sizes.get(image_id)
            check_in_image(boxes[rows], size, f"{self._path}, image {image_id!r}")
            yield Detections.of_checked(boxes[rows], scores[rows].clip(0, 1), category_ids[rows], size, image_id)
