"""Features of regions for visual question answering, in the manner of bottom-up attention.

The features of a region are the scores that PicoDet gives the 80 categories, or what another detector sees in it.
Regions are chosen without regard to categories: cells whose best score is above 0.05, suppressed at an overlap of 0.7,
the best 36.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallybox.boxes import first_kept, nms
from tallybox.photos.detector import Detector, RegionProposals, categories_of
from tallybox.photos.images import Photo
from tallybox.photos.picodet import PicoDet, RawDetections

SAME_REGION_IOU = 0.7
MAX_REGIONS = 36
MIN_BEST_SCORE = 0.05  # of a region
MIN_SCORE = 0.01  # of a category; below it a score is 0
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


def describe_regions(detector: Detector, photos: Sequence[Photo]) -> list[RegionProposals]:
    """Return the regions of each photo with the features that a detector can give, the best first, at least one.

    Features are the 80 scores of PicoDet, the outputs of an R-CNN's box head (torchvision), the states of a
    transformer's queries (transformers), or of any other detector the scores of its categories. A photo in which
    nothing is found has one region, the whole photo, with features of 0.
    """
    if isinstance(detector, PicoDet):
        described = [
            RegionProposals(regions.boxes_xyxy, regions.scores.max(1, initial=0).astype(np.float32), regions.scores)
            for regions in region_features(detector, photos)
        ]
    else:
        propose = getattr(detector, "propose_regions", lambda photos: None)
        described = [_best_regions(regions) for regions in propose(photos) or _scores_by_category(detector, photos)]
    return [
        regions if len(regions.scores) else _whole_photo(regions, photo)
        for regions, photo in zip(described, photos, strict=True)
    ]


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
    """Return the regions among everything that the detector proposes in a photo."""
    kept = choose_regions(raw.boxes_xyxy, raw.scores.max(1, initial=0))
    scores = np.where(raw.scores[kept] < MIN_SCORE, 0, raw.scores[kept]).astype(np.float16)
    return RegionFeatures(raw.boxes_xyxy[kept], scores, photo.size_wh)


def _scores_by_category(detector: Detector, photos: Sequence[Photo]) -> Iterator[RegionProposals]:
    """Yield detections, those of the same box joined into one region with a score for each category."""
    category_ids = np.array(sorted(categories_of(detector)), np.int64)
    for detections in detector.detect(photos):
        boxes, region = np.unique(detections.boxes, axis=0, return_inverse=True)
        features = np.zeros((len(boxes), len(category_ids)), np.float32)
        column = np.searchsorted(category_ids, detections.category_ids)
        np.maximum.at(features, (region.reshape(-1), column), detections.scores)
        yield RegionProposals(boxes.astype(np.float32), features.max(1, initial=0), features)


def _best_regions(proposals: RegionProposals) -> RegionProposals:
    kept = choose_regions(proposals.boxes_xyxy, proposals.scores)
    return RegionProposals(*(values[kept] for values in proposals))


def _whole_photo(proposals: RegionProposals, photo: Photo) -> RegionProposals:
    box = np.array([[0, 0, *photo.size_wh]], np.float32)
    return RegionProposals(box, np.zeros(1, np.float32), np.zeros((1, proposals.features.shape[1]), np.float16))
