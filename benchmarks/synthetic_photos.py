"""Synthetic photos with known counts: detections as a detector might give them, with duplicates and false boxes."""

import numpy as np
from numpy.typing import NDArray

from tallybox.detections.detections import Detections, ImageId
from tallybox.detections.labels import TrueCounts

SIZE_WH = (640, 480)
CATEGORIES = {1: "person", 2: "bicycle", 3: "car", 17: "cat", 18: "dog", 44: "bottle"}
BOXES_PER_OBJECT = (2, 7)  # from, up to but not including
FALSE_BOXES = 12  # low scores, anywhere


def made_up_photos(number: int, seed: int = 0) -> tuple[list[Detections], TrueCounts]:
    """Return photos of one to three categories, up to six objects each, and their true counts.

    >>> photos, labels = made_up_photos(3)
    >>> len(photos), len(labels), labels.categories[18]
    (3, 3, 'dog')
    """
    random = np.random.default_rng(seed)
    photos: list[Detections] = []
    counts: dict[ImageId, dict[int, int]] = {}
    for image_id in range(number):
        category_ids = random.choice(list(CATEGORIES), size=int(random.integers(1, 4)), replace=False)
        counts[image_id] = {int(category_id): int(random.integers(1, 7)) for category_id in category_ids}
        photos.append(_photo(image_id, counts[image_id], random))
    return photos, TrueCounts(counts, dict.fromkeys(counts, SIZE_WH), CATEGORIES)


def _photo(image_id: int, counts: dict[int, int], random: np.random.Generator) -> Detections:
    boxes, scores, category_ids = [], [], []
    for category_id, count in counts.items():
        for _ in range(count):
            copies = int(random.integers(*BOXES_PER_OBJECT))
            visibility = random.beta(4, 2)
            boxes.append(_near(_anywhere(1, random), copies, random))
            scores.append(visibility * random.uniform(0.3, 1, copies))
            category_ids.append(np.full(copies, category_id))
    boxes.append(_anywhere(FALSE_BOXES, random))
    scores.append(random.beta(1, 8, FALSE_BOXES))
    category_ids.append(random.choice(list(CATEGORIES), FALSE_BOXES))
    return Detections(
        np.concatenate(boxes), np.concatenate(scores), np.concatenate(category_ids), SIZE_WH, image_id=image_id
    )


def _anywhere(number: int, random: np.random.Generator) -> NDArray[np.float64]:
    size = random.uniform(30, 140, (number, 2))
    corner = random.uniform(0, np.array(SIZE_WH) - size)
    return np.concatenate((corner, corner + size), axis=1)


def _near(box: NDArray[np.float64], copies: int, random: np.random.Generator) -> NDArray[np.float64]:
    size = (box[:, 2:] - box[:, :2]).repeat(2, axis=0).reshape(1, 4)
    return (box + random.normal(0, 0.06, (copies, 4)) * size).clip(0)
