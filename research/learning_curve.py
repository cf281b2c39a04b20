"""What an estimator learns from how many labelled photos, and how far its probabilities and intervals can be trusted.

    python research/learning_curve.py run docs/results/estimator --data ../shared/data/coco-count
    python research/learning_curve.py table docs/results/estimator   # the tables of its README.md

The first command fits on the first 30, 100, 300, 1,000 and all 2,998 photos by ascending id (two of the 3,000 are the
package's sample photos and left out) and scores each estimator on the 1,000 validation photos. It fits once more on a
random half of the training photos to score it on the other half: other photos than those of validation, but all of them
served to choose sizes and rates. It goes on where it stopped. The last estimator of the curve is the one that ships:

    python research/learning_curve.py ship docs/results/estimator    # fits it again and writes it into the package
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from tallybox import CountEstimator, Detections
from tallybox.detections.labels import TrueCounts, counting_pairs, labelled_detections
from tallybox.detections.metrics import mean_by_group
from tallybox.detections.readers import read_counts, read_detections
from tallybox.estimator.calibration import LISTED_PROBABILITY
from tallybox.estimator.evaluation import evaluate
from tallybox.estimator.inference import Prior, infer_pairs
from tallybox.photos.shipped import SHIPPED_ESTIMATOR
from tallybox.runs import append_results, open_run, read_results

SAMPLE_PHOTOS = (423617, 475678)  # shown in the docs, so not learned from
PHOTOS = (30, 100, 300, 1000, 2998)
HALF = "half of the training photos"
GROUPS = ("0", "1", "2-4", "5+")
BINS = 10  # of the probability of the most probable count


def reliability(
    estimator: CountEstimator, images: list[Detections], labels: TrueCounts, prior: Prior, *, listed: bool = False
) -> dict[str, Any]:
    """Return figures over pairs, and for each bin of what an estimator gave its count how often it was right.

    With ``listed`` only over what `tallybox count` lists: categories that are there with a probability of over 0.1.
    """
    labelled = list(labelled_detections(images, labels))
    pairs, truth = counting_pairs(labelled, labels, every=listed)
    found = infer_pairs(estimator.fitted, labelled, pairs).predictions(prior)
    if listed:
        shown = found.probabilities[:, 0] < 1 - LISTED_PROBABILITY
        found, truth = found.at(shown), truth[shown]
    widths, best = found.highs - found.lows, found.probabilities.max(1)
    bins = (best * BINS).astype(int).clip(max=BINS - 1)
    number, probability, right = (
        np.bincount(bins, values, minlength=BINS) for values in (None, best, found.most_probable == truth)
    )
    return {
        "pairs": len(truth),
        **found.metrics(truth),
        **found.coverage(truth),
        "width90_by_predicted_count": mean_by_group(widths, found.counts),
        "coverage90_by_true_count": mean_by_group(found.covers(truth), truth),
        "mean_width": float(widths.mean()),
        "bins": {"number": number.tolist(), "probability": probability.round(3).tolist(), "right": right.tolist()},
    }


def measure(learn: list[Detections], known: TrueCounts, unseen: list[Detections], truth: TrueCounts) -> dict[str, Any]:
    """Fit on some photos and score on others."""
    start = time.perf_counter()
    estimator = CountEstimator().fit(learn, known)
    seconds = round(time.perf_counter() - start, 1)
    return {
        "seconds": seconds,
        **evaluate(estimator, unseen, truth),
        "scored": reliability(estimator, unseen, truth, "evaluation_pairs"),
        "scored_every": reliability(estimator, unseen, truth, "population"),
        "listed": reliability(estimator, unseen, truth, "population", listed=True),
    }


def run(folder: Path, data: Path) -> None:
    """Measure what is not measured yet."""
    results_path = open_run(folder, {"data": data.name, "photos": list(PHOTOS), "seed": 0})
    there = {(result["learned_from"], result["photos"]) for result in read_results(results_path)}
    labels, train = training_part(data)
    validation = list(read_detections(data / "detections_picodet_val.json.gz"))
    truth = read_counts(data / "instances_val.json.gz")
    for photos in PHOTOS:
        if ("first", photos) not in there:
            print(f"learning from {photos} photos", file=sys.stderr)
            found = measure(train, labels.only(sorted(labels.counts)[:photos]), validation, truth)
            append_results(results_path, [{"learned_from": "first", "photos": photos, **found}])
    halves = split(labels)
    if (HALF, len(halves[0])) not in there:
        print(f"learning from {HALF}", file=sys.stderr)
        found = measure(train, halves[0], train, halves[1])
        append_results(results_path, [{"learned_from": HALF, "photos": len(halves[0]), **found}])


def training_part(data: Path) -> tuple[TrueCounts, list[Detections]]:
    """Return the labels and detections of the training photos without the package's sample photos."""
    labels = read_counts(data / "instances_train.json.gz")
    labels = labels.only(image_id for image_id in labels.counts if image_id not in SAMPLE_PHOTOS)
    return labels, list(read_detections(data / "detections_picodet_train.json.gz"))


def ship(data: Path) -> None:
    """Fit the estimator that ships with the package."""
    labels, train = training_part(data)
    CountEstimator().fit(train, labels).save(SHIPPED_ESTIMATOR)


def split(labels: TrueCounts) -> list[TrueCounts]:
    """Return the labels of two random halves of the photos."""
    ids = list(labels.counts)
    order = np.random.default_rng(7).permutation(len(ids)).tolist()
    halves = order[: len(ids) // 2], order[len(ids) // 2 :]
    return [labels.only(ids[place] for place in half) for half in halves]


def table(folder: Path) -> None:
    """Print the tables of the page."""
    results = read_results(folder / "results.jsonl")
    print("| labelled photos | exact | MAE | NMS exact | NMS MAE | per category, exact | MAE |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for result in results:
        known = f"{result['photos']:,}" + ("" if result["learned_from"] == "first" else f", {result['learned_from']}")
        figures = [
            result[key][metric] for key in ("estimator", "nms", "nms_per_category") for metric in ("exact", "mae")
        ]
        cells = " | ".join(f"{figure:.3f}" for figure in figures)
        print(f"| {known} | {cells} |")
    for kind in ("scored", "listed"):
        print(f"\n{kind}\n\n| photos | all | 0 | 1 | 2 to 4 | 5 and more | width at 1 | at 2 to 4 | exact | MAE |")
        print("|---:|" + "---:|" * 9)
        for result in results:
            found = result[kind]
            held = [
                found["coverage90"],
                *(found["coverage90_by_predicted_count"].get(group, np.nan) for group in GROUPS),
            ]
            wide = [found["width90_by_predicted_count"].get(group, np.nan) for group in ("1", "2-4")]
            cells = " | ".join(f"{figure:.3f}" for figure in (*held, *wide, found["exact"], found["mae"]))
            print(f"| {result['photos']:,} | {cells} |")


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "table", "ship"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/coco-count"))
    given = parser.parse_args()
    if given.what == "run":
        run(given.folder, given.data)
    elif given.what == "ship":
        ship(given.data)
    else:
        table(given.folder)


if __name__ == "__main__":
    main()
