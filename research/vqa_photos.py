"""Experiment A's data: real photos with a small detector's features, human, template and written questions.

    python research/vqa_photos.py ../shared/data runs/vqa-photos       # about a minute on two cores
    tallybox vqa prepare runs/vqa-photos --features runs/vqa-photos/features.tsv.gz --out runs/vqa-photos/prepared

The folder given holds `coco-vqa` (features as arrays, questions of VQA v2 and GVTBench) and `coco-count` (COCO
instances, from which `tallybox vqa simulate --instances` writes questions with balanced pairs).
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tallybox.photos.features import evidence
from tallybox.vqa.bottom_up import Photo, write_tsv
from tallybox.vqa.simulation.instances import simulate_from_instances
from tallybox.vqa.simulation.writing import YEARS, write_json

SPLITS = ("train", "val")
# The two sets number their questions alike; those that were written get ids of their own.
WRITTEN_FROM = 10**12


def photos_of(arrays: Path) -> Iterator[Photo]:
    """Yield the photos of a file of features as arrays."""
    with np.load(arrays) as file:
        ends = file["num_boxes"].cumsum()
        every = zip(file["image_ids"].tolist(), file["sizes_wh"].tolist(), ends - file["num_boxes"], ends, strict=True)
        boxes, features = file["boxes_xyxy"], file["features"]
        for image_id, (width, height), first, stop in every:
            yield Photo(image_id, (width, height), boxes[first:stop], evidence(features[first:stop]))


def read(path: Path) -> Any:
    """Return the content of a JSON file."""
    return json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())


def join(data: Path, out: Path, split: str) -> None:
    """Write a split's questions of both sorts to one set of official files."""
    written = out / "written"
    simulate_from_instances(data / "coco-count" / f"instances_{split}.json.gz", written, split=split)
    for name, records in (("OpenEnded_mscoco_{}_questions", "questions"), ("mscoco_{}_annotations", "annotations")):
        file = f"v2_{name.format(YEARS[split])}.json.gz"
        given, more = read(data / "coco-vqa" / file), read(written / file)
        for record in more[records]:
            record["question_id"] += WRITTEN_FROM
        write_json(out / file, given | {records: given[records] + more[records]})
    pairs = f"v2_mscoco_{YEARS[split]}_complementary_pairs.json"
    write_json(out / pairs, [[one + WRITTEN_FROM for one in pair] for pair in read(written / pairs)])


def main() -> None:
    """Write the questions and the features."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    for split in SPLITS:
        join(given.data, given.out, split)
    arrays = [given.data / "coco-vqa" / f"features_yolov4tiny_{split}.npz" for split in SPLITS]
    write_tsv(given.out / "features.tsv.gz", (photo for path in arrays for photo in photos_of(path)))


if __name__ == "__main__":
    main()
