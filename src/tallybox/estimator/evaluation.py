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
from tallybox.estimator.prediction import PredictionArrays


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
    parts: list[PredictionArrays] = []  # of the pairs that are scored
    every = []  # of every pair: image, category, true and expected count, and whether it is scored
    matched = match_images(detections, names, named=estimator.fitted.named)
    for batch in in_batches(labelled_detections(matched, labels), IMAGES_PER_BATCH):
        pairs, truth = counting_pairs(batch, labels, every=True)
        inference = infer_pairs(estimator.fitted, batch, pairs)
        chosen = set(zip(*counting_pairs(batch, labels)[0], strict=True))
        is_scored = np.array([pair in chosen for pair in zip(*pairs, strict=True)], np.bool_)
        parts.append(inference.predictions("evaluation_pairs").at(is_scored))
        means = inference.predictions("population").expected
        every.append((pairs.image_index + len(images), pairs.category_ids, truth, means, is_scored))
        images += batch
    if not any(len(part.counts) for part in parts):
        raise InputError("Nothing to score: no labelled image has an object or a box above 0.05.")
    found = PredictionArrays.joined(parts)
    image_index, category_ids, true_counts, means, is_scored = map(np.concatenate, zip(*every, strict=True))
    pairs, truth = Pairs(image_index[is_scored], category_ids[is_scored]), true_counts[is_scored]
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
        **category_errors(category_ids, means, true_counts, images=len(images), categories=categories),
    }


def train_metrics(estimator: CountEstimator, images: list[Detections], labels: TrueCounts) -> dict[str, float]:
    """Return the figures on the pairs that an estimator was fitted to."""
    parts, true_counts = [], []
    for batch in in_batches(labelled_detections(images, labels), IMAGES_PER_BATCH):
        pairs, truth = counting_pairs(batch, labels)
        parts.append(infer_pairs(estimator.fitted, batch, pairs).predictions("evaluation_pairs"))
        true_counts.append(truth)
    return PredictionArrays.joined(parts).metrics(np.concatenate(true_counts))
