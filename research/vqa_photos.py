"""Experiment A's data: real photos with a small detector's features, human, template and written questions.

    python research/vqa_photos.py ../shared/data runs/vqa-photos       # about a minute on two cores
    tallybox vqa prepare runs/vqa-photos --features runs/vqa-photos/features.tsv --out runs/vqa-photos/prepared
    python research/supervise_attention.py runs/vqa-photos/prepared ../shared/data/coco-count/instances_train.json.gz

The folder given holds `coco-vqa` (features as arrays, questions of VQA v2 and GVTBench) and `coco-count` (COCO
instances, from which `research/instance_questions.py` writes questions with balanced pairs). Two photos that the
documentation shows answers about, samples of the package, are not learned from.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from instance_questions import simulate_from_instances
from written_questions import join

from tallybox.vqa.data.photos import PhotoFeatures
from tallybox.vqa.data.tsv import write_tsv

SPLITS = ("train", "val")
SAMPLES = frozenset({423617, 475678})  # buses in the rain, a lobby with suitcases; the third is not in the data


def photos_of(arrays: Path) -> Iterator[PhotoFeatures]:
    """Yield the photos of a file of features as arrays."""
    with np.load(arrays) as file:
        ends = file["num_boxes"].cumsum()
        every = zip(file["image_ids"].tolist(), file["sizes_wh"].tolist(), ends - file["num_boxes"], ends, strict=True)
        boxes, scores = file["boxes_xyxy"], file["scores"]
        for image_id, (width, height), first, stop in every:
            yield PhotoFeatures(
                str(image_id), (width, height), boxes[first:stop], scores[first:stop].astype(np.float32)
            )


def main() -> None:
    """Write the questions and the features."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    written = given.out / "written"
    for split in SPLITS:
        simulate_from_instances(given.data / "coco-count" / f"instances_{split}.json.gz", written, split=split)
        join(given.data / "coco-vqa", written, given.out, split, without_photos=SAMPLES)
    arrays = [given.data / "coco-vqa" / f"features_picodet_{split}.npz" for split in SPLITS]
    write_tsv(given.out / "features.tsv", (photo for path in arrays for photo in photos_of(path)))


if __name__ == "__main__":
    main()
