"""A tiny data set as files: what a detector might find in synthetic photos, and how many objects they hold."""

import csv
import json
from pathlib import Path

import numpy as np

CATEGORIES = {1: "person", 2: "bicycle", 3: "car", 17: "cat", 18: "dog", 44: "bottle"}


def write_files(folder: Path, photos: int = 120) -> tuple[Path, Path]:
    """Write COCO results and a CSV of counts, and return their paths."""
    random = np.random.default_rng(1)
    results, counts = [], []
    for image_id in range(photos):
        for category in random.choice(list(CATEGORIES), size=random.integers(1, 4), replace=False):
            count = int(random.integers(1, 7))
            counts.append((image_id, CATEGORIES[category], count))
            for _ in range(count):
                results += found_boxes(image_id, category, random)
    folder.mkdir(exist_ok=True)
    (folder / "detections.json").write_text(json.dumps(results))
    with (folder / "counts.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("image_id", "category", "count"), *counts])
    return folder / "detections.json", folder / "counts.csv"


def found_boxes(image_id: int, category: int, random: np.random.Generator) -> list[dict]:
    """Return two to six boxes around one object and two false ones, as a detector gives them before suppression."""
    box = random_box(random)
    best = random.beta(4, 2)  # how well this object can be seen
    found = []
    for _ in range(random.integers(2, 7)):
        near = box + random.normal(0, 0.06, 4) * np.tile(box[2:], 2)
        found.append((near, category, best * random.uniform(0.3, 1)))
    for _ in range(2):
        found.append((random_box(random), random.choice(list(CATEGORIES)), random.beta(1, 8)))
    return [
        {"image_id": image_id, "category_id": int(category), "bbox": box.clip(0).tolist(), "score": float(score)}
        for box, category, score in found
    ]


def random_box(random: np.random.Generator) -> np.ndarray:
    """Return left, top, width and height."""
    return np.concatenate((random.uniform(0, 400, 2), random.uniform(30, 140, 2)))
