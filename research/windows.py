"""Calibrate and score counting in windows on mosaics of 3×3 labelled photos, 1,920 px each.

    python -m research.windows ../shared/data

takes about three minutes on one core. It prints, for mosaics of training and of validation photos, the mean absolute
error of the count, the expected over the true number of objects (categories that are there; all categories) and the
share of covered intervals for several values of `TAIL_PROBABILITY`. `EXPECTED_FACTOR` brings both quotients of the
training mosaics equally near to 1.
"""

import gzip
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from tallybox.photos import tiles
from tallybox.photos.images import Photo, read_photo
from tallybox.photos.picodet import PicoDet
from tallybox.photos.pipeline import detect_in_windows
from tallybox.photos.shipped import shipped_estimator

SIDE, CELL = 3, 640
PARTS = {"train": ("coco-photos-train", 33), "val": ("coco-photos", 22)}  # folder, number of mosaics


def mosaics(data: Path, part: str) -> Iterator[tuple[Photo, Counter[int]]]:
    """Yield mosaics with the true count of each category."""
    folder, number = PARTS[part]
    with gzip.open(data / "coco-count" / f"instances_{part}.json.gz") as file:
        annotations = json.load(file)["annotations"]
    counts: dict[int, Counter[int]] = {}
    for annotation in annotations:
        if not annotation.get("iscrowd"):
            counts.setdefault(annotation["image_id"], Counter())[annotation["category_id"]] += 1
    paths, order, generator = sorted((data / folder).glob("*.jpg")), list[Path](), random.Random(0)
    while len(order) < SIDE**2 * number:
        order += generator.sample(paths, len(paths))
    for first in range(0, SIDE**2 * number, SIDE**2):
        canvas = Image.new("RGB", (SIDE * CELL, SIDE * CELL), (114, 114, 114))
        truth: Counter[int] = Counter()
        for index, path in enumerate(order[first : first + SIDE**2]):
            image = read_photo(path).image
            scale = CELL / max(image.size)
            resized = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC)
            canvas.paste(resized, (CELL * (index % SIDE), CELL * (index // SIDE)))
            truth += counts.get(int(path.stem), Counter())
        yield Photo(canvas, canvas.size), truth


def main(data: Path) -> None:
    """Print the figures."""
    detector, estimator = PicoDet(device="cpu"), shipped_estimator()
    for part in PARTS:
        found = [(detect_in_windows(p, tiles.WINDOW, detector), truth) for p, truth in mosaics(data, part)]
        predicted = [(tiles.count_windows(estimator, d, tiles.WINDOW), truth) for d, truth in found]
        pairs = [(predictions[key], count) for predictions, truth in predicted for key, count in truth.items()]
        objects = sum(count for _, count in pairs)
        everything = sum(p.expected for predictions, _ in predicted for p in predictions.values())
        error = np.mean([abs(p.count - count) for p, count in pairs])
        present = sum(p.expected for p, _ in pairs) / objects
        print(
            f"{part}: {len(found)} mosaics, {len(pairs)} pairs, MAE {error:.3f}, expected over true {present:.3f}",
            end="",
        )
        print(f" (all categories {everything / objects:.3f})")
        for tail in (0.05, 0.04, 0.03, 0.02):
            at_most = [(p.probabilities.cumsum(), count) for p, count in pairs]
            ends = [((c < tail).sum(), (c < 1 - tail).sum(), count) for c, count in at_most]
            print(f"  tail {tail}: {np.mean([low <= n <= high for low, high, n in ends]):.3f} covered")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
