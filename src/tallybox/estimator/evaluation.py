"""Scores of an estimator on labelled images, compared with baselines tuned on the images that it was fitted to."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from tallybox.concurrency import in_batches
from tallybox.detections.categories import match_categories
from tallybox.detections.detections import Detections
from tallybox.detections.labels import CountingPair, TrueCounts, counting_pairs, labelled_detections
from tallybox.detections.matching import match_images
from tallybox.detections.metrics import category_errors, count_metrics, mean_by_group
from tallybox.errors import InputError
from tallybox.estimator.estimator import CountEstimator
from tallybox.estimator.inference import Inference, infer_pairs
from tallybox.estimator.inputs import IMAGES_PER_BATCH, indexed_pairs
from tallybox.estimator.prediction import Integers, PredictionArrays


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
    scored: list[CountingPair] = []
    parts: list[PredictionArrays] = []
    every: list[tuple[int, float, int]] = []  # category, expected and true count of every pair
    images = 0
    matched = match_images(detections, names, named=estimator.fitted.named)
    for batch in in_batches(labelled_detections(matched, labels), IMAGES_PER_BATCH):
        images += len(batch)
        pairs = list(counting_pairs(batch, labels, every=True))
        inference, truth = infer_labelled(estimator, batch, pairs)
        means = inference.predictions("population").expected
        every += zip((pair.category_id for pair in pairs), means.tolist(), truth.tolist(), strict=True)
        # The pairs that are scored are some of these.
        chosen = {(pair.detections.image_id, pair.category_id) for pair in counting_pairs(batch, labels)}
        rows = [row for row, pair in enumerate(pairs) if (pair.detections.image_id, pair.category_id) in chosen]
        scored += (pairs[row] for row in rows)
        parts.append(inference.predictions("evaluation_pairs").at(rows))
    if not scored:
        raise InputError("Nothing to score: no labelled image has an object or a box above 0.05.")
    found, truth = PredictionArrays.joined(parts), np.array([pair.true_count for pair in scored])
    category_ids, means_of_all, truth_of_all = zip(*every, strict=True)
    categories = {*labels.labelled_ids(), *category_ids}
    return {
        "pairs": len(scored),
        "estimator": found.metrics(truth),
        **{
            name: {metric: count_metrics(counter.counts(scored), truth)[metric] for metric, counter in tuned.items()}
            for name, tuned in estimator.fitted.baselines.items()
        },
        **found.coverage(truth),
        "width90_by_predicted_count": mean_by_group(found.highs - found.lows, found.counts),
        "coverage90_by_true_count": mean_by_group(found.covers(truth), truth),
        **category_errors(category_ids, means_of_all, truth_of_all, images=images, categories=categories),
    }


def train_metrics(estimator: CountEstimator, images: list[Detections], labels: TrueCounts) -> dict[str, float]:
    """Return the figures on the pairs that an estimator was fitted to."""
    parts, true_counts = [], []
    for batch in in_batches(labelled_detections(images, labels), IMAGES_PER_BATCH):
        inference, truth = infer_labelled(estimator, batch, list(counting_pairs(batch, labels)))
        parts.append(inference.predictions("evaluation_pairs"))
        true_counts.append(truth)
    return PredictionArrays.joined(parts).metrics(np.concatenate(true_counts))


def infer_labelled(
    estimator: CountEstimator, batch: list[Detections], pairs: list[CountingPair]
) -> tuple[Inference, Integers]:
    """Run an estimator on pairs of a batch of images; return their true counts ``[P]`` as well."""
    inference = infer_pairs(estimator.fitted, batch, indexed_pairs(batch, pairs))
    return inference, np.array([pair.true_count for pair in pairs], np.int64)
