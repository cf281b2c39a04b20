"""A tiny data set as files: what a detector might say about made-up photos, and how many objects they hold."""

import csv
import json
from pathlib import Path

from tallybox.bench.photos import made_up_photos


def write_files(folder: Path, photos: int = 120) -> tuple[Path, Path]:
    """Write COCO results and a CSV of counts, and return where."""
    images, labels = made_up_photos(photos, seed=1)
    results = [
        {"image_id": image.image_id, "category_id": category, "bbox": [x1, y1, x2 - x1, y2 - y1], "score": score}
        for image in images
        for (x1, y1, x2, y2), score, category in zip(
            image.boxes.tolist(), image.scores.tolist(), image.category_ids.tolist(), strict=True
        )
    ]
    folder.mkdir(exist_ok=True)
    (folder / "detections.json").write_text(json.dumps(results))
    with (folder / "counts.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("image_id", "category", "count"))
        for image_id, counts in labels.counts.items():
            rows.writerows((image_id, labels.categories[category], count) for category, count in counts.items())
    return folder / "detections.json", folder / "counts.csv"
