"""From a detector's JSON and a CSV of counts to a fitted counter.

python count_from_coco.py                            # on synthetic photos, written as files first
python count_from_coco.py detections.json counts.csv # on your own
"""

import sys
from pathlib import Path

from tallybox import CountEstimator, evaluate, read_counts, read_detections


def main(detections: Path, counts: Path) -> None:
    """Fit on the first three quarters of the labelled images and count in the rest."""
    labels = read_counts(counts)
    known = labels.only(sorted(labels.counts)[: len(labels) * 3 // 4])
    estimator = CountEstimator().fit(read_detections(detections), known)
    estimator.save("counter.safetensors")

    others = labels.only(labels.counts.keys() - known.counts.keys())
    figures = evaluate(estimator, read_detections(detections), others)
    exact, nms = (100 * figures[name]["exact"] for name in ("estimator", "nms"))
    print(f"exactly right: {exact:.0f} % of counts (tuned NMS: {nms:.0f} %)")
    unseen = [image for image in read_detections(detections) if image.image_id in others.counts]
    for image, predictions in estimator.predict_each(unseen[:3]):
        counted = [f"{name} {p} ({p.low}–{p.high})" for name, p in predictions.by_name().items()]
        print(f"image {image.image_id}: {', '.join(counted)}")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        from synthetic_files import write_files

        main(*write_files(Path("synthetic")))
