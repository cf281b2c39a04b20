"""Scores of an estimator on labelled images, compared with baselines tuned on the images that it was fitted to."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from tallybox.concurrency import in_batches
from tallybox.detections.categories import match_categories
from tallybox.detections.detections import Detections
from tallybox.detections.labels import Pairs, TrueCounts, counting_pairs, labelled_detections, match_images
from tallybox.detections.metrics import category_errors, count_metrics, mean_by_group
from tallybox.errors import InputError
from tallybox.estimator.estimator import CountEstimator
from tallybox.estimator.inference import infer_pairs
from tallybox.estimator.inputs import IMAGES_PER_BATCH
from tallybox.estimator.prediction import Floats, Integers, PredictionArrays


def evaluate(estimator: CountEstimator, detections: Iterable[Detections], labels: TrueCounts) -> dict[str, Any]:
    """Score an estimator on images that it was not fitted to; categories are matched by name if all have names.

    Returns figures by name, as ``tallybox evaluate --json`` prints them. Of each baseline, a metric is scored with the
    thresholds tuned for it.
    """
    names = dict(estimator.fitted.categories)
    if labels.categories:
        ids = match_categories(labels.categories, names)
        names = {ids[key]: name for key, name in labels.categories.items()} | names
        labels = labels.renumbered(ids, names)
    images: list[Detections] = []
    scored: list[tuple[Pairs, Integers]] = []  # with their true counts
    parts: list[PredictionArrays] = []
    every: list[tuple[Integers, Floats, Integers]] = []  # categories, expected and true counts of every pair
    matched = match_images(detections, names, named=estimator.fitted.named)
    for batch in in_batches(labelled_detections(matched, labels), IMAGES_PER_BATCH):
        pairs, truth = counting_pairs(batch, labels, every=True)
        inference = infer_pairs(estimator.fitted, batch, pairs)
        every.append((pairs.category_ids, inference.predictions("population").expected, truth))
        # The pairs that are scored are some of these.
        chosen = set(zip(*counting_pairs(batch, labels)[0], strict=True))
        rows = [row for row, pair in enumerate(zip(*pairs, strict=True)) if pair in chosen]
        scored.append((Pairs(pairs.image_index[rows] + len(images), pairs.category_ids[rows]), truth[rows]))
        parts.append(inference.predictions("evaluation_pairs").at(rows))
        images += batch
    if not any(len(truth) for _, truth in scored):
        raise InputError("Nothing to score: no labelled image has an object or a box above 0.05.")
    found, truth = PredictionArrays.joined(parts), np.concatenate([truth for _, truth in scored])
    pairs = Pairs(*map(np.concatenate, zip(*(pairs for pairs, _ in scored), strict=True)))
    category_ids, means_of_all, truth_of_all = map(np.concatenate, zip(*every, strict=True))
    categories = {*labels.labelled_ids(), *category_ids.tolist()}
    return {
        "pairs": len(truth),
        "estimator": found.metrics(truth),
        **{
            name: {
                metric: count_metrics(counter.counts(images, pairs), truth)[metric] for metric, counter in tuned.items()
            }
            for name, tuned in estimator.fitted.baselines.items()
        },
        **found.coverage(truth),
        "width90_by_predicted_count": mean_by_group(found.highs - found.lows, found.counts),
        "coverage90_by_true_count": mean_by_group(found.covers(truth), truth),
        **category_errors(category_ids, means_of_all, truth_of_all, images=len(images), categories=categories),
    }


def train_metrics(estimator: CountEstimator, images: list[Detections], labels: TrueCounts) -> dict[str, float]:
    """Return the figures on the pairs that an estimator was fitted to."""
    parts, true_counts = [], []
    for batch in in_batches(labelled_detections(images, labels), IMAGES_PER_BATCH):
        pairs, truth = counting_pairs(batch, labels)
        parts.append(infer_pairs(estimator.fitted, batch, pairs).predictions("evaluation_pairs"))
        true_counts.append(truth)
    return PredictionArrays.joined(parts).metrics(np.concatenate(true_counts))
