"""Score counts in windows on mosaics of labelled photos, and choose the tails of their intervals.

    python research/windows.py PHOTOS INSTANCES [--grid 3] [--side 640] [--limit 24]

PHOTOS is a folder of COCO photos and INSTANCES their labels. Photos are drawn at random into mosaics of GRID x GRID
cells of SIDE pixels. For the constants of `tallybox.photos.tiles`, run it on photos of the training part only; the
validation part gives the figures of docs/learn/photos.md.
"""

import argparse
import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from tallybox import PhotoCounter
from tallybox.estimator.prediction import CountPrediction, ImagePredictions

TAILS = (0.05, 0.04, 0.03, 0.02, 0.015, 0.01, 0.005)
GREY = (114, 114, 114)

Truth = Counter[int]  # objects by category id


def mosaics(photos: Path, instances: Path, grid: int, side: int) -> Iterator[tuple[Image.Image, Truth]]:
    """Yield mosaics with their true counts; a crowd's box is not an object."""
    with gzip.open(instances) as file:
        annotations = [a for a in json.load(file)["annotations"] if not a["iscrowd"]]
    paths = sorted(photos.glob("*.jpg"))
    order = np.random.default_rng(0).permutation(len(paths))
    for chosen in order[: len(paths) // grid**2 * grid**2].reshape(-1, grid**2):
        picture, ids = Image.new("RGB", (grid * side, grid * side), GREY), set()
        for place, index in enumerate(chosen.tolist()):
            photo = Image.open(paths[index])
            scale = side / max(photo.size)
            photo = photo.resize((round(photo.width * scale), round(photo.height * scale)), Image.Resampling.BICUBIC)
            picture.paste(photo, (side * (place % grid), side * (place // grid)))
            ids.add(int(paths[index].stem))
        yield picture, Counter(a["category_id"] for a in annotations if a["image_id"] in ids)


def interval(prediction: CountPrediction, tail: float) -> tuple[int, int]:
    """Return the interval that leaves out a probability on each side."""
    at_most = prediction.probabilities.cumsum()
    low, high = int((at_most < tail).sum()), int((at_most < 1 - tail).sum())
    return min(low, prediction.count), max(high, prediction.count)


def report(name: str, counted: list[tuple[ImagePredictions, Truth]]) -> None:
    """Print the error, the expected over the true number of objects, and coverage, over categories that are there."""
    there = [(predictions[key], true) for predictions, truth in counted for key, true in truth.items()]
    error = np.mean([abs(prediction.count - true) for prediction, true in there])
    expected = sum(moments[0] for predictions, _ in counted for moments in predictions.moments.values())
    covered = np.mean([prediction.low <= true <= prediction.high for prediction, true in there])
    width = np.mean([prediction.high - prediction.low for prediction, _ in there])
    print(
        f"{name}: {len(counted)} mosaics, {len(there)} categories, MAE {error:.2f}, expected / true "
        f"{expected / sum(true for _, true in there):.2f}, intervals cover {covered:.3f}, width {width:.1f}",
        flush=True,
    )


def main() -> None:
    """Run the experiment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("instances", type=Path)
    parser.add_argument("--grid", type=int, default=3)
    parser.add_argument("--side", type=int, default=640)
    parser.add_argument("--limit", type=int, default=10**6, help="mosaics at most")
    options = parser.parse_args()
    counters = {tiles: PhotoCounter(tiles=tiles) for tiles in ("auto", "off")}
    counted: dict[str, list[tuple[ImagePredictions, Truth]]] = {tiles: [] for tiles in counters}
    seconds = []
    drawn = mosaics(options.photos, options.instances, options.grid, options.side)
    for (picture, truth), _ in zip(drawn, range(options.limit), strict=False):
        for tiles, counter in counters.items():
            (result,) = counter.count_many([picture])
            assert result.predictions is not None
            counted[tiles].append((result.predictions, truth))
            if result.tiling is not None:
                seconds.append(result.tiling.seconds)
    for tiles, results in counted.items():
        report(f"tiles {tiles}", results)
    print(f"seconds a mosaic: {np.median(seconds):.1f}")
    there = [(predictions[key], true) for predictions, truth in counted["auto"] for key, true in truth.items()]
    for tail in TAILS:
        ends = [(*interval(prediction, tail), true) for prediction, true in there]
        covered = np.mean([low <= true <= high for low, high, true in ends])
        print(f"  tail {tail}: cover {covered:.3f}, width {np.mean([high - low for low, high, _ in ends]):.1f}")


if __name__ == "__main__":
    main()
