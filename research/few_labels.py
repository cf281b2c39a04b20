"""How an estimator compares with tuned NMS from 10 to 300 labelled photos: synthetic bolts and nuts.

    python research/few_labels.py --seeds 3

A clean detector finds almost every object and little else; a messy one misses objects, repeats them with shifted boxes
and confuses the two kinds. Each row is the mean over seeds, scored on 400 other photos. It takes about a minute a seed.
"""

import argparse
from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallybox import CountEstimator, Detections
from tallybox.detections.labels import TrueCounts
from tallybox.estimator.evaluation import evaluate

NAMES = {1: "bolt", 2: "nut"}
SIZE_WH = (640, 480)
PHOTOS = (10, 30, 100, 300)
UNSEEN = 400


class Detector(NamedTuple):
    """How a synthetic detector errs."""

    found: float  # share of objects
    score: tuple[float, float]  # Beta distribution of an object's best score
    copies: int  # at most
    jitter: float  # of copies, as a share of the box
    false_boxes: float  # mean number in a photo, of each kind
    false_score: tuple[float, float]
    confused: float  # share of boxes that also come as the other kind


DETECTORS = {
    "clean": Detector(0.985, (9, 1.5), 2, 0.04, 0.4, (1.2, 8), 0.02),
    "messy": Detector(0.85, (3, 2), 5, 0.1, 2.5, (1.2, 4), 0.15),
}


def synthetic_photos(detector: Detector, number: int, seed: int) -> tuple[list[Detections], TrueCounts]:
    """Return photos with 2.5 bolts and nuts each on average, and their true counts."""
    random = np.random.default_rng(seed)
    photos, counts = [], {}
    for image_id in range(number):
        counts[image_id] = {kind: int(random.poisson(2.5)) for kind in NAMES}
        rows = []
        for kind, count in counts[image_id].items():
            for box in _places(count, random):
                if random.random() < detector.found:
                    rows += _boxes_of(box, kind, detector, random)
            for box in _places(random.poisson(detector.false_boxes), random):
                rows.append((*box, random.beta(*detector.false_score), kind))
        table = np.array(rows).reshape(-1, 6)
        boxes = table[:, :4].clip(0, np.tile(SIZE_WH, 2))
        photos.append(Detections(boxes, table[:, 4], table[:, 5].astype(np.int64), SIZE_WH, image_id))
    return photos, TrueCounts(counts, categories=NAMES)


def _places(number: int, random: np.random.Generator) -> NDArray[np.float64]:
    size = random.uniform(40, 90, (number, 2))
    corner = random.uniform(0, np.array(SIZE_WH) - size)
    return np.concatenate((corner, corner + size), axis=1)


def _boxes_of(
    box: NDArray[np.float64], kind: int, detector: Detector, random: np.random.Generator
) -> list[tuple[float, ...]]:
    best, rows = random.beta(*detector.score), []
    size = np.tile(box[2:] - box[:2], 2)
    for copy in range(random.integers(1, detector.copies + 1)):
        moved = box + random.normal(0, detector.jitter, 4) * size
        moved[2:] = np.maximum(moved[2:], moved[:2] + 1)
        score = best * (1 if copy == 0 else random.uniform(0.4, 0.95))
        rows.append((*moved, score, kind))
        if random.random() < detector.confused:
            rows.append((*moved, score * random.uniform(0.3, 0.9), 3 - kind))
    return rows


def measure(kind: str, photos: int, seed: int) -> dict[str, float]:
    """Fit to some photos and score on others."""
    estimator = CountEstimator(seed=seed).fit(*synthetic_photos(DETECTORS[kind], photos, seed))
    result: dict[str, Any] = evaluate(estimator, *synthetic_photos(DETECTORS[kind], UNSEEN, 1000 + seed))
    coverage, width = result["coverage90_by_predicted_count"], result["width90_by_predicted_count"]
    promised = estimator.fitted.cross_validation["estimator"]
    return {
        "exact": result["estimator"]["exact"],
        "NMS exact": result["nms"]["exact"],
        "MAE": result["estimator"]["mae"],
        "NMS MAE": result["nms"]["mae"],
        "coverage": result["coverage90"],
        "of 5+": coverage.get("5+", np.nan),
        "width of 5+": width.get("5+", np.nan),
        "share of NMS": estimator.fitted.nms_share,
        "promised exact": promised["exact"],
    }


def main() -> None:
    """Print a table in markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--photos", type=int, nargs="*", default=PHOTOS)
    given = parser.parse_args()
    header: list[str] = []
    for kind in DETECTORS:
        for photos in given.photos:
            found = defaultdict(list)
            for seed in range(given.first_seed, given.first_seed + given.seeds):
                for name, value in measure(kind, photos, seed).items():
                    found[name].append(value)
            if not header:
                header = list(found)
                print("| detector | labels | " + " | ".join(header) + " |")
                print("|---|---:|" + "---:|" * len(header))
            cells = " | ".join(f"{np.nanmean(found[name]):.3f}" for name in header)
            print(f"| {kind} | {photos} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
