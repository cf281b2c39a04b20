"""Features of regions for visual question answering, in the manner of bottom-up attention.

For each region the logits of YOLO's objectness and of its categories. Regions are chosen without regard to categories:
suppressed at an overlap of 0.7, the best 10, and then those that score above 0.03, up to 36.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tallybox.detections.suppression import nms
from tallybox.photos.detector import DarknetDetector
from tallybox.photos.images import Photo
from tallybox.photos.letterbox import boxes_in_photo

SAME_REGION = 0.7
FEWEST, MOST = 10, 36
LEAST_SCORE = 0.03  # of the regions after the first ten
NEAREST_PROBABILITY = 1e-6  # to 0 and 1, before the logit is taken
LEAST_EVIDENCE, EVIDENCE_UNIT = -5.0, 4.0  # log-odds
FIRST_LOOK = 200  # best proposals that suppression begins with; the others rarely matter


@dataclass(frozen=True, eq=False)
class RegionFeatures:
    """Regions of one photo, the best first."""

    boxes_xyxy: NDArray[np.float32]  # [R, 4] pixels of the photo
    features: NDArray[np.float16]  # [R, 1 + C]: the objectness logit, then the category logits
    scores: NDArray[np.float16]  # [R]: the best category score
    size_wh: tuple[int, int]


def region_features(detector: DarknetDetector, photos: Sequence[Photo]) -> list[RegionFeatures]:
    """Return the regions of each photo."""
    if not photos:
        return []
    raw = detector.propose(photos)
    return [
        _regions(boxes_in_photo(boxes, photo.size_wh, detector.size), objectness, classes, photo)
        for boxes, objectness, classes, photo in zip(raw.boxes, raw.objectness, raw.classes, photos, strict=True)
    ]


def evidence(features: NDArray[np.floating]) -> NDArray[np.float32]:
    """Turn region features ``[..., 1 + C]`` into what VQA models learn from: evidence for an object and each category.

    A category's is that there is an object *and* that it is one: the log-odds of both, counted from a probability of
    0.7 %, in units of 4. Whatever is less probable is 0. As they come, most categories have logits near -13.8 (half of
    them below -11 in COCO's photos), which would outweigh what differs.

    >>> evidence(np.array([2.0, 3.0, -9.0])).round(2)
    array([1.75, 1.66, 0.  ], dtype=float32)
    """
    probability = 1 / (1 + np.exp(-features.astype(np.float64)))
    probability[..., 1:] *= probability[..., :1]
    clipped = probability.clip(NEAREST_PROBABILITY, 1 - NEAREST_PROBABILITY)
    log_odds = np.log(clipped) - np.log1p(-clipped)
    found: NDArray[np.float32] = ((log_odds - LEAST_EVIDENCE).clip(0) / EVIDENCE_UNIT).astype(np.float32)
    return found


def _regions(corners: Tensor, objectness: Tensor, classes: Tensor, photo: Photo) -> RegionFeatures:
    best = (objectness.sigmoid()[:, None] * classes.sigmoid()).amax(1)
    boxes, scores = corners.float().cpu().numpy(), best.float().cpu().numpy()
    kept = choose_regions(boxes, scores)
    logits = torch.cat((objectness[:, None], classes), 1)[torch.from_numpy(kept).to(classes.device)]
    clipped = logits.double().sigmoid().clamp(NEAREST_PROBABILITY, 1 - NEAREST_PROBABILITY).logit()
    return RegionFeatures(
        boxes[kept], clipped.cpu().numpy().astype(np.float16), scores[kept].astype(np.float16), photo.size_wh
    )


def choose_regions(boxes_xyxy: NDArray[np.float32], scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return which boxes ``[N, 4]`` with scores ``[N]`` become regions, the best first."""
    order = np.argsort(-scores, kind="stable")
    looked_at = max(FIRST_LOOK, int((scores > LEAST_SCORE).sum()))
    while True:
        # A box is suppressed by better ones only, so looking at the best gives the first regions exactly.
        some = order[:looked_at]
        kept = some[nms(boxes_xyxy[some], scores[some], [SAME_REGION])[0]]
        if len(kept) >= FEWEST or looked_at >= len(order):
            break
        looked_at *= 4
    enough = (np.arange(len(kept)) < FEWEST) | (scores[kept] > LEAST_SCORE)
    chosen: NDArray[np.int64] = kept[enough][:MOST]
    return chosen
