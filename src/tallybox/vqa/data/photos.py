"""One photo's region features, and one id for a photo: questions and features must agree on it."""

import re
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallybox.errors import InputError

COCO_NAME = re.compile(r"(?:.*/)?COCO_(?:train|val|test)\d{4}_(\d+)(?:\.jpg)?(?:\.npz)?")
VISUAL_GENOME_NAME = re.compile(r"(?:.*/)?VG_100K(?:_2)?/(\d+)(?:\.jpg)?(?:\.npz)?")
SUFFIX = re.compile(r"\.(?:jpe?g|png|webp|gif|bmp|tiff?)$", re.IGNORECASE)
MAX_FEATURE = float(np.finfo(np.float16).max)  # features are stored in half precision


class PhotoFeatures(NamedTuple):
    """The N proposals of one photo with F features each."""

    image_id: str  # as `photo_id` writes it
    size_wh: tuple[float, float]
    boxes_xyxy: NDArray[np.float32]  # [N, 4] pixels
    features: NDArray[np.floating]  # [N, F]


def photo_id(value: int | str) -> str:
    """Return a photo's id as text: a number without leading zeros for COCO's names, ``VG/number`` for Visual Genome's.

    Other names stay as they are, without the suffix of a photo.
    """
    text = str(value).strip()
    if match := COCO_NAME.fullmatch(text):
        return str(int(match[1]))
    if match := VISUAL_GENOME_NAME.fullmatch(text):
        return f"VG/{int(match[1])}"
    plain = SUFFIX.sub("", text.removesuffix(".npz"))
    return str(int(plain)) if plain.isascii() and plain.isdigit() else plain


def checked_photo(
    where: str, image_id: int | str, size_wh: tuple[float, float], boxes: NDArray[Any], features: NDArray[Any]
) -> PhotoFeatures:
    """Return a photo of ``boxes [N, 4]`` and ``features [N, F]``; raise if a value is wrong."""
    if not str(image_id).strip():
        raise InputError(f"{where}: image_id is empty")
    if boxes.ndim != 2 or boxes.shape[1] != 4 or not len(boxes):
        raise InputError(f"{where}: boxes have shape {list(boxes.shape)}, expected [N, 4] with at least one box")
    if features.ndim != 2 or len(features) != len(boxes) or not features.shape[1]:
        raise InputError(f"{where}: features {list(features.shape)} do not fit {len(boxes)} boxes")
    for name, array in (("boxes", boxes), ("features", features), ("image size", np.array(size_wh))):
        if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
            raise InputError(f"{where}: {name} must be finite numbers")
    if np.abs(features).max() > MAX_FEATURE:
        raise InputError(f"{where}: features exceed {MAX_FEATURE:g}, the limit of half precision")
    ordered = (boxes[:, 2:] >= boxes[:, :2]).all(1)
    if not ordered.all():
        raise InputError(f"{where}: boxes must be x1 y1 x2 y2, but got {boxes[int(np.argmin(ordered))].tolist()}")
    width, height = size_wh
    return PhotoFeatures(photo_id(image_id), (float(width), float(height)), boxes.astype("<f4", copy=False), features)
