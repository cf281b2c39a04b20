"""Checks of boxes and scores, also of valid numbers: corners read as sizes, and boxes far outside their photo."""

import numpy as np
from numpy.typing import NDArray

from tallybox.errors import InputError

# A score computed as a product or an interpolation may miss 1 by a rounding error of float32.
ROUNDING_SLACK = 1e-6
# Detectors draw boxes over the border of a photo, but not with a centre more than half a photo outside.
FAR_OUTSIDE = 0.5  # of a side
# Without sizes of photos, the boxes of a file are judged together. Of 300,000 files drawn from two detectors on COCO
# (1 to 10 photos, all boxes or confident ones, all categories or people), none was refused. Written as corners, 97 % or
# more of those with enough boxes were refused. The thresholds were chosen on these files: no independent figure.
MIN_BOXES = 20
MIN_SHARE = 0.02  # of boxes that lie beyond the largest size


def first_problem(boxes_xyxy: NDArray[np.floating], scores: NDArray[np.floating]) -> tuple[int, str, str] | None:
    """Return the index of the first wrong box [N, 4] or score [N], what is wrong, and a remedy, or None."""
    with np.errstate(invalid="ignore"):
        sizes = boxes_xyxy[:, 2:] - boxes_xyxy[:, :2]  # [N, 2], not finite where a corner is not
    good = ((sizes >= 0) & (sizes < np.inf)).all(1) & (scores >= -ROUNDING_SLACK) & (scores <= 1 + ROUNDING_SLACK)
    if good.all():
        return None
    index = int(np.argmin(good))
    score, box = float(scores[index]), boxes_xyxy[index]
    corners = "[" + ", ".join(f"{corner:g}" for corner in box) + "]"
    if not np.isfinite(score):
        return index, f"scores must be in [0, 1], but got {score}", "leave such detections out"
    if not -ROUNDING_SLACK <= score <= 1 + ROUNDING_SLACK:
        remedy = "apply a logistic if these are logits, divide by 100 if they are percentages"
        return index, f"scores must be in [0, 1], but got {score:g}", remedy
    if not np.isfinite(box).all():
        return index, f"boxes must be finite, but got {corners}", "leave such detections out"
    remedy = "if they are left, top, width, height, add the left and top to the width and height"
    return index, f"boxes must be corners x1 y1 x2 y2 with x1 <= x2 and y1 <= y2, but got {corners}", remedy


def check_in_image(boxes_xyxy: NDArray[np.floating], size_wh: tuple[int, int] | None, owner: str) -> None:
    """Raise where boxes ``[N, 4]`` cannot be those of an image; ``owner`` names it. Without a size, none is wrong."""
    if size_wh is None or len(boxes_xyxy) == 0:
        return
    if look_like_misread_corners(boxes_xyxy, size_wh):
        raise InputError(
            f"{owner}: boxes must lie in the {size_wh[0]} x {size_wh[1]} image, but reach beyond half of it again; "
            "they look like x1 y1 x2 y2 that were read as left, top, width, height"
        )
    size = np.array(size_wh)
    centres = boxes_xyxy[:, :2] / 2 + boxes_xyxy[:, 2:] / 2
    outside = ((centres < -FAR_OUTSIDE * size) | (centres > (1 + FAR_OUTSIDE) * size)).any(1)
    if outside.any():
        corners = ", ".join(f"{corner:g}" for corner in boxes_xyxy[int(np.argmax(outside))])
        raise InputError(
            f"{owner}: boxes must lie in the {size_wh[0]} x {size_wh[1]} image, but [{corners}] lies far outside; "
            "check the size and the unit of the boxes"
        )


def check_not_corners(boxes_xyxy: NDArray[np.floating], owner: str) -> None:
    """Raise where all boxes ``[N, 4]`` of a file together look like corners that were read as left, top, width, height.

    No size of a photo is needed. Corners have x1 <= x2 and y1 <= y2 throughout; of real boxes, one in six has a width
    of at least its left and a height of at least its top. Corners of objects on the right or at the bottom, read as
    sizes, also give boxes whose centres lie beyond the largest width or height.
    """
    if len(boxes_xyxy) < MIN_BOXES:
        return
    first, second = boxes_xyxy[:, :2], boxes_xyxy[:, 2:] - boxes_xyxy[:, :2]
    if (first > second).any():
        return
    if (first + second / 2 > second.max(0)).any(1).mean() >= MIN_SHARE:
        raise InputError(
            f"{owner}: boxes must be left, top, width, height, but all {len(boxes_xyxy)} look like x1 y1 x2 y2; "
            "subtract x1 and y1 from x2 and y2"
        )


def look_like_misread_corners(boxes_xyxy: NDArray[np.floating], image_size: tuple[int, int]) -> bool:
    """Return whether boxes ``[N, 4]`` come from x1 y1 x2 y2 that were read as left, top, width, height.

    Detectors sometimes draw boxes over the border, but not by half an image. If one box reaches that far, and all boxes
    lie in the image (width, height) when the addition is undone, they were misread.
    """
    if len(boxes_xyxy) == 0 or not (boxes_xyxy[:, 2:] > 1.5 * np.array(image_size)).any():
        return False
    first, second = boxes_xyxy[:, :2], boxes_xyxy[:, 2:] - boxes_xyxy[:, :2]
    return bool((first <= second).all() and (second <= np.array(image_size) + 1).all())
