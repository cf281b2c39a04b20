"""What an estimator learns from how many labelled photos, and how far its probabilities and intervals can be trusted.

    python research/learning_curve.py run docs/results/estimator --data ../shared/data/coco-count
    python research/learning_curve.py draw docs/results/estimator    # the pictures of docs/estimator.md
    python research/learning_curve.py table docs/results/estimator   # its tables

The first command fits on the first 30, 100, 300, 1,000 and all 3,000 photos by ascending id, scores each estimator on
the 1,000 validation photos, and fits once more on a random half of the training photos to score it on the other half:
other photos than those of validation, but some of them served to choose sizes and rates. It goes on where it stopped.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallybox import CountEstimator, Detections
from tallybox.detections.files import read_counts, read_detections
from tallybox.detections.labels import (
    ABSENT_SCORE_ABOVE,
    CountingPair,
    TrueCounts,
    counting_pairs,
    every_pair,
    labelled_detections,
)
from tallybox.detections.metrics import CountSums, CoverageSums
from tallybox.estimator.estimator import Prior
from tallybox.estimator.evaluation import answer_pairs, evaluate, sums_of
from tallybox.estimator.questions import in_batches
from tallybox.figures.canvas import BLUE, GREEN, GREY, ORANGE, PURPLE, picture
from tallybox.runs import RunFolder, read_results

PHOTOS = (30, 100, 300, 1000, 3000)
HALF = "half of the training photos"
BINS = 10  # of the probability of the most probable count


def listed_pairs(images: Iterable[Detections], labels: TrueCounts) -> Iterator[CountingPair]:
    """Yield what `tallybox count` lists: every category with a box that scores more than 0.05."""
    for pair in every_pair(images, labels):
        if pair.detections.best_scores().get(pair.category_id, 0) > ABSENT_SCORE_ABOVE:
            yield pair


def reliability(
    estimator: CountEstimator,
    images: list[Detections],
    labels: TrueCounts,
    pairs_of: Callable[[Iterable[Detections], TrueCounts], Iterator[CountingPair]],
    prior: Prior,
) -> dict[str, Any]:
    """Return figures over pairs, and for each bin of what an estimator gave its count how often it was right."""
    sums, coverage = CountSums(), CoverageSums()
    number, said, right = np.zeros(BINS), np.zeros(BINS), np.zeros(BINS)
    widths = 0
    for batch in in_batches(labelled_detections(images, labels)):
        pairs = list(pairs_of(batch, labels))
        if not pairs:
            continue
        truth: NDArray[np.int64] = np.array([pair.true_count for pair in pairs], np.int64)
        answered = answer_pairs(estimator, batch, pairs, prior)
        sums += sums_of(answered, truth)
        coverage += CoverageSums.of(answered.lows, answered.highs, truth)
        widths += int((answered.highs - answered.lows).sum())
        best = answered.probabilities.max(1)
        bins = (best * BINS).astype(int).clip(max=BINS - 1)
        number += np.bincount(bins, minlength=BINS)
        said += np.bincount(bins, best, minlength=BINS)
        right += np.bincount(bins, answered.counts == truth, minlength=BINS)
    return {
        "pairs": sums.pairs,
        **sums.compute(),
        "coverage90": coverage.compute(),
        "mean_width": widths / sums.pairs,
        "bins": {"number": number.tolist(), "said": said.round(3).tolist(), "right": right.tolist()},
    }


def measure(learn: list[Detections], known: TrueCounts, unseen: list[Detections], truth: TrueCounts) -> dict[str, Any]:
    """Fit on some photos and score on others."""
    start = time.perf_counter()
    estimator = CountEstimator().fit(learn, known)
    seconds = round(time.perf_counter() - start, 1)
    return {
        "seconds": seconds,
        **evaluate(estimator, unseen, truth).compute(),
        "scored": reliability(estimator, unseen, truth, counting_pairs, "scored"),
        "scored_every": reliability(estimator, unseen, truth, counting_pairs, "every"),
        "listed": reliability(estimator, unseen, truth, listed_pairs, "every"),
    }


def run(folder: Path, data: Path) -> None:
    """Measure what is not measured yet."""
    results = RunFolder(folder, {"data": data.name, "photos": list(PHOTOS), "seed": 0})
    there = {(result["learned_from"], result["photos"]) for result in results.results()}
    labels = read_counts(data / "instances_train.json.gz")
    train = list(read_detections(data / "detections_yolov4tiny_train.json.gz"))
    validation = list(read_detections(data / "detections_yolov4tiny_val.json.gz"))
    truth = read_counts(data / "instances_val.json.gz")
    for photos in PHOTOS:
        if ("first", photos) not in there:
            print(f"learning from {photos} photos", file=sys.stderr)
            found = measure(train, labels.first_images(photos), validation, truth)
            results.append([{"learned_from": "first", "photos": photos, **found}])
    halves = split(labels)
    if (HALF, len(halves[0])) not in there:
        print(f"learning from {HALF}", file=sys.stderr)
        found = measure(train, halves[0], train, halves[1])
        results.append([{"learned_from": HALF, "photos": len(halves[0]), **found}])


def split(labels: TrueCounts) -> list[TrueCounts]:
    """Return the labels of two random halves of the photos."""
    ids = list(labels.counts)
    order = np.random.default_rng(7).permutation(len(ids)).tolist()
    halves = order[: len(ids) // 2], order[len(ids) // 2 :]
    return [labels.only(ids[place] for place in half) for half in halves]


def draw(folder: Path) -> None:
    """Draw both pictures from the results."""
    results = read_results(folder / "results.jsonl")
    first = sorted((r for r in results if r["learned_from"] == "first"), key=lambda r: r["photos"])
    draw_learning_curve(folder / "learning_curve.svg", first)
    draw_reliability(folder / "reliability.svg", first[-1])


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
        print(f"\n{kind}\n\n| labelled photos | all | 0 | 1 | 2-4 | 5+ | mean width | exact | MAE |")
        print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
        for result in results:
            found = result[kind]
            held = [found["coverage90"][group] for group in ("all", "0", "1", "2-4", "5+")]
            cells = " | ".join(f"{figure:.3f}" for figure in (*held, found["mean_width"], found["exact"], found["mae"]))
            print(f"| {result['photos']:,} | {cells} |")


def draw_learning_curve(path: Path, results: list[dict[str, Any]]) -> None:
    """Draw exact and MAE over the number of labelled photos."""
    photos = [result["photos"] for result in results]
    lines = (("estimator", "tallybox", BLUE), ("nms_per_category", "NMS, tuned per category", ORANGE))
    lines += (("nms", "NMS, one threshold pair", GREY),)
    with picture(path, 9, 3.4) as figure:
        for axes, metric, title in zip(figure.subplots(1, 2), ("exact", "mae"), ("exact", "MAE"), strict=True):
            for key, name, colour in lines:
                axes.plot(photos, [result[key][metric] for result in results], "o-", color=colour, label=name, ms=4)
            axes.set(xscale="log", xticks=photos, xlabel="labelled photos", title=title)
            axes.set_xticklabels([f"{number:,}" for number in photos])
            axes.minorticks_off()
            axes.grid(axis="y", lw=0.4)
        figure.axes[0].set_ylabel("share of counts that are right")
        figure.axes[1].set_ylabel("mean absolute error")
        figure.axes[1].legend()


def draw_reliability(path: Path, result: dict[str, Any]) -> None:
    """Draw how often counts are right over what they were given, and what intervals hold by true count."""
    kinds = (("scored", "pairs of the benchmark", BLUE), ("listed", "all that tallybox count lists", GREEN))
    with picture(path, 9, 3.6) as figure:
        left, right = figure.subplots(1, 2)
        left.plot([0, 1], [0, 1], color=GREY, lw=0.8)
        for key, name, colour in kinds:
            bins = {name: np.array(values) for name, values in result[key]["bins"].items()}
            enough = bins["number"] >= 20
            x, y = (bins[side][enough] / bins["number"][enough] for side in ("said", "right"))
            spread = np.sqrt(y * (1 - y) / bins["number"][enough])
            left.errorbar(x, y, spread, fmt="o-", color=colour, ms=4, lw=1, capsize=2, label=name)
        left.set(xlim=(0, 1), ylim=(0, 1), xlabel="probability of the most probable count", ylabel="share right")
        left.legend(loc="lower right")
        groups = ("all", "0", "1", "2-4", "5+")
        for shift, (key, _, colour) in zip((-0.18, 0.18), kinds, strict=True):
            heights = [result[key]["coverage90"][group] for group in groups]
            bars = right.bar(np.arange(len(groups)) + shift, heights, 0.34, color=colour)
            right.bar_label(bars, fmt="%.2f", fontsize=7)
        right.axhline(0.9, color=PURPLE, lw=0.8)
        right.set(ylim=(0.5, 1), xticks=range(len(groups)), xlabel="true count", ylabel="held by 90 % intervals")
        right.set_xticklabels(groups)


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "draw", "table"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/coco-count"))
    given = parser.parse_args()
    if given.what == "run":
        run(given.folder, given.data)
    elif given.what == "draw":
        draw(given.folder)
    else:
        table(given.folder)


if __name__ == "__main__":
    main()
