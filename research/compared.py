"""Count with other ways to handle overlapping boxes, for docs/understand/compared.md.

    pip install ensemble-boxes      # Soft-NMS and weighted boxes fusion
    python research/compared.py ../shared/data/coco-count docs/results/estimator/compared.json    # five minutes

Every method is tuned on a random half of COCO's training photos and scored on the other half, the one of
`research/learning_curve.py`. Each has two parameters on a grid: one for overlap, and the lowest score that counts. They
are chosen for the share of exact counts and again for the mean absolute error, as for tuned NMS.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ensemble_boxes import soft_nms, weighted_boxes_fusion
from learning_curve import split, training_part
from numpy.typing import NDArray

from tallybox import CountEstimator, Detections
from tallybox.boxes import nms
from tallybox.concurrency import in_batches
from tallybox.detections.baselines import IOU_THRESHOLDS, SCORE_THRESHOLDS
from tallybox.detections.labels import TrueCounts, counting_pairs, labelled_detections
from tallybox.detections.metrics import groups_of
from tallybox.estimator.inference import infer_pairs
from tallybox.estimator.inputs import IMAGES_PER_BATCH

Scores = NDArray[np.float32]
SIGMAS = (0.05, 0.1, 0.2, 0.35, 0.5, 1.0)  # of Soft-NMS's Gaussian
GROUPS = ("0", "1", "2-4", "5+")
LOWEST = 0.05  # boxes below are not in the files


def nms_scores(image: Detections, overlap: float) -> Scores:
    """Return the scores of the boxes that NMS leaves."""
    return image.scores[nms(image.boxes, image.scores, [overlap])[0]]


def soft_nms_scores(image: Detections, sigma: float) -> Scores:
    """Return the scores that Soft-NMS lowers."""
    labels = [0] * len(image)
    return np.asarray(soft_nms([_fractions(image)], [image.scores], [labels], method=2, sigma=sigma, thresh=LOWEST)[1])


def fused_scores(image: Detections, overlap: float) -> Scores:
    """Return the scores of the boxes that weighted boxes fusion makes."""
    labels = [0] * len(image)
    return np.asarray(weighted_boxes_fusion([_fractions(image)], [image.scores], [labels], iou_thr=overlap)[1])


def _fractions(image: Detections) -> NDArray[np.float32]:
    return (image.boxes / max(image.boxes.max(), 1)).clip(0, 1)  # the package wants boxes in [0, 1]


def tabulate(
    images: Sequence[Detections], scores_of: Callable[[Detections, float], Scores], settings: Sequence[float]
) -> NDArray[np.float64]:
    """Count the boxes of each pair with every setting and lowest score, ``[P, settings, scores]``."""
    lowest = np.asarray(SCORE_THRESHOLDS, np.float32) - 1e-6
    counts = np.zeros((len(images), len(settings), len(lowest)))
    for place, image in enumerate(images):
        if len(image):
            for column, setting in enumerate(settings):
                counts[place, column] = (scores_of(image, setting)[:, None] >= lowest).sum(0)
    return counts


def labelled_pairs(images: Sequence[Detections], labels: TrueCounts) -> tuple[list[Detections], NDArray[np.int64]]:
    """Return the boxes of each pair, and the true counts."""
    labelled = list(labelled_detections(images, labels))
    pairs, truth = counting_pairs(labelled, labels)
    return [labelled[index].of_category(key) for index, key in zip(*pairs, strict=True)], truth


def figures(exact_counts: NDArray[Any], median_counts: NDArray[Any], truth: NDArray[Any]) -> dict[str, Any]:
    """Return exact and MAE, in all and by true count."""
    exact, error = exact_counts == truth, np.abs(median_counts - truth)
    groups = groups_of(truth)
    return {
        "exact": round(float(exact.mean()), 4),
        "mae": round(float(error.mean()), 4),
        "exact_by_true_count": {name: round(float(exact[groups == i].mean()), 4) for i, name in enumerate(GROUPS)},
        "mae_by_true_count": {name: round(float(error[groups == i].mean()), 4) for i, name in enumerate(GROUPS)},
    }


def main() -> None:
    """Measure all methods."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    labels, images = training_part(given.data)
    tuned_on, scored_on = split(labels)
    train, known = labelled_pairs(images, tuned_on)
    test, truth = labelled_pairs(images, scored_on)
    sums = [image.scores.sum() for image in test]
    results = {"sum of the scores": figures(np.floor(np.array(sums) + 0.5), np.array(sums), truth)}
    methods = (("NMS", nms_scores, IOU_THRESHOLDS), ("Soft-NMS", soft_nms_scores, SIGMAS))
    methods += (("weighted boxes fusion", fused_scores, IOU_THRESHOLDS),)
    for name, scores_of, settings in methods:
        tried = tabulate(train, scores_of, settings)
        errors = np.abs(tried - known[:, None, None])
        best = [np.unravel_index(loss.mean(0).argmin(), loss.shape[1:]) for loss in (errors > 0, errors)]
        tried = tabulate(test, scores_of, settings)
        results[name] = figures(*(tried[:, i, j] for i, j in best), truth)
        results[name]["chosen"] = [[settings[i], SCORE_THRESHOLDS[j]] for i, j in best]
        print(name, results[name], flush=True)
    estimator = CountEstimator().fit(images, tuned_on)
    batches = []
    for batch in in_batches(labelled_detections(images, scored_on), IMAGES_PER_BATCH):
        pairs, true_counts = counting_pairs(batch, scored_on)
        if len(true_counts):
            found = infer_pairs(estimator.fitted, batch, pairs).predictions("evaluation_pairs")
            best = found.probabilities.max(1)
            batches.append((found.most_probable, found.counts, true_counts, found.lows, found.highs, best))
    most_probable, medians, truth, lows, highs, best = map(np.concatenate, zip(*batches, strict=True))
    is_covered, bins = (lows <= truth) & (truth <= highs), (best * 10).astype(int).clip(max=9)
    by_median = [is_covered[groups_of(medians) == group] for group in range(len(GROUPS))]
    results["tallybox"] = {
        **figures(most_probable, medians, truth),
        "coverage90": round(float(is_covered.mean()), 4),
        "covered_by_predicted_count": {
            name: [int(some.sum()), len(some)] for name, some in zip(GROUPS, by_median, strict=True)
        },
        "reliability": [  # by tenth of the probability of the most probable count: its mean, right answers, answers
            [
                round(float(best[bins == tenth].mean()), 4),
                int((most_probable == truth)[bins == tenth].sum()),
                int((bins == tenth).sum()),
            ]
            for tenth in np.unique(bins)
        ],
    }
    given.out.write_text(
        json.dumps({"pairs": len(test), "photos": len(scored_on), "methods": results}, indent=1) + "\n"
    )
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
