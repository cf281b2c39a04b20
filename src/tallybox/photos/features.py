"""Features of regions for visual question answering, in the manner of bottom-up attention.

The features of a region are the scores that PicoDet gives the 80 categories. Regions are chosen without regard to
categories: cells whose best score is above 0.05, suppressed at an overlap of 0.7, the best 36.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallybox.boxes import first_kept, nms
from tallybox.photos.images import Photo
from tallybox.photos.picodet import PicoDet, RawDetections

SAME_REGION_IOU = 0.7
MAX_REGIONS = 36
MIN_BEST_SCORE = 0.05  # of a region
MIN_CATEGORY_SCORE = 0.01  # lower scores become 0
FIRST_CANDIDATES = 256  # boxes that suppression begins with


@dataclass(frozen=True, eq=False)
class RegionFeatures:
    """Regions of one photo, the best first. There may be none."""

    boxes_xyxy: NDArray[np.float32]  # [R, 4] pixels of the photo
    scores: NDArray[np.float16]  # [R, 80] in COCO's order of categories
    size_wh: tuple[int, int]


def region_features(detector: PicoDet, photos: Sequence[Photo]) -> list[RegionFeatures]:
    """Return the regions of each photo."""
    return [regions_of(raw, photo) for raw, photo in zip(detector.propose(photos), photos, strict=True)]


def choose_regions(boxes_xyxy: NDArray[np.float32], best_scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return which boxes ``[P, 4]`` with scores ``[P]`` become regions, the best first."""
    order = np.argsort(-best_scores, kind="stable")
    order = order[best_scores[order] > MIN_BEST_SCORE]
    return first_kept(
        order,
        lambda indices: nms(boxes_xyxy[indices], best_scores[indices], [SAME_REGION_IOU])[0],
        enough=MAX_REGIONS,
        candidates=FIRST_CANDIDATES,
    )


def regions_of(raw: RawDetections, photo: Photo) -> RegionFeatures:
    """Return the regions among all proposals of the detector in a photo."""
    kept = choose_regions(raw.boxes_xyxy, raw.scores.max(1, initial=0))
    scores = np.where(raw.scores[kept] < MIN_CATEGORY_SCORE, 0, raw.scores[kept]).astype(np.float16)
    return RegionFeatures(raw.boxes_xyxy[kept], scores, photo.size_wh)
