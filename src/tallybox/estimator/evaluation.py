"""Scores of an estimator on labelled images, beside the baselines that were tuned on what it learned from."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np

from tallybox.concurrency import in_batches
from tallybox.detections.baselines import Metric
from tallybox.detections.categories import match_categories
from tallybox.detections.detections import Detections, match_images
from tallybox.detections.labels import CountingPair, TrueCounts, counting_pairs, every_pair, labelled_detections
from tallybox.detections.metrics import CategorySums, CountSums, CoverageSums
from tallybox.errors import InputError
from tallybox.estimator.estimator import CountEstimator
from tallybox.estimator.fitted import Prior, predict_arrays
from tallybox.estimator.inputs import BATCH, indexed_pairs
from tallybox.estimator.prediction import Integers, PredictionArrays

WIDTH_GROUPS = {0: "0", 1: "1-2", 3: "3-4", 5: "5+"}  # of intervals, high - low


@dataclass
class Evaluation:
    """Sums over everything that `evaluate` scored; ``compute`` turns them into figures."""

    baselines: dict[str, dict[Metric, CountSums]]
    category_ids: set[int]
    images: int = 0
    estimator: CountSums = field(default_factory=CountSums)
    by_true_count: CoverageSums = field(default_factory=CoverageSums)
    by_predicted_count: CoverageSums = field(default_factory=CoverageSums)
    by_width: CoverageSums = field(default_factory=CoverageSums)  # of the counts themselves, by `WIDTH_GROUPS`
    categories: CategorySums = field(default_factory=CategorySums)  # over every category of every image

    def compute(self) -> dict[str, Any]:
        """Return all figures by name; of each baseline, a metric is scored with the thresholds tuned for it."""
        baselines = {
            name: {metric: sums.compute()[metric] for metric, sums in tuned.items()}
            for name, tuned in self.baselines.items()
        }
        return {
            "pairs": self.estimator.pairs,
            "estimator": self.estimator.compute(),
            **baselines,
            "coverage90": self.by_predicted_count.coverage(),
            "coverage90_by_predicted_count": self.by_predicted_count.coverage_by_group(),
            "width90_by_predicted_count": self.by_predicted_count.width_by_group(),
            "coverage90_by_true_count": self.by_true_count.coverage_by_group(),
            "right_by_width": self.by_width.coverage_by_group(WIDTH_GROUPS),
            **self.categories.compute(self.images, self.category_ids),
        }


def evaluate(estimator: CountEstimator, detections: Iterable[Detections], labels: TrueCounts) -> Evaluation:
    """Score an estimator on images that it did not learn from."""
    names = dict(estimator.fitted.categories)
    if labels.categories:
        ids = match_categories(labels.categories, names)
        names = {ids[key]: name for key, name in labels.categories.items()} | names
        labels = labels.renumbered(ids, names)
    detections = match_images(detections, names)
    tuned = estimator.fitted.baselines
    empty = {name: {metric: CountSums() for metric in get_args(Metric)} for name in tuned}
    result, scored = Evaluation(empty, set(labels.labelled_ids())), set[int]()
    for batch in in_batches(labelled_detections(detections, labels), BATCH):
        result.images += len(batch)
        pairs = list(counting_pairs(batch, labels))
        scored.update(pair.category_id for pair in pairs)
        predictions, truth = predict_pairs(estimator, batch, pairs, "scored")
        lows, highs = predictions.lows, predictions.highs
        result.estimator += predictions.sums(truth)
        result.by_true_count += CoverageSums.of(lows, highs, truth, grouped_by=truth)
        result.by_predicted_count += CoverageSums.of(lows, highs, truth, grouped_by=predictions.counts)
        result.by_width += _sums_by_width(predictions, truth)
        for name, sums in result.baselines.items():
            for metric in sums:
                sums[metric] += CountSums.of(tuned[name][metric].counts(pairs), truth)
        pairs = list(every_pair(batch, labels))
        predictions, truth = predict_pairs(estimator, batch, pairs, "every")
        category_ids = [pair.category_id for pair in pairs]
        result.category_ids.update(category_ids)
        result.categories += CategorySums.of(category_ids, predictions.expected, truth)
    if not result.estimator.pairs:
        raise InputError("there must be a pair to score, but no labelled image has an object or a box above 0.05")
    estimator.report_unlearned(scored)
    return result


def train_metrics(estimator: CountEstimator, images: list[Detections], labels: TrueCounts) -> dict[str, float]:
    """Return the figures on the pairs that an estimator learned from."""
    sums = CountSums()
    for batch in in_batches(labelled_detections(images, labels), BATCH):
        predictions, truth = predict_pairs(estimator, batch, list(counting_pairs(batch, labels)), "scored")
        sums += predictions.sums(truth)
    return sums.compute()


def right_by_width(predictions: PredictionArrays, true_counts: Integers) -> dict[str, float]:
    """Return which share of predictions have the right count, by the width of their intervals."""
    return _sums_by_width(predictions, true_counts).coverage_by_group(WIDTH_GROUPS)


def _sums_by_width(predictions: PredictionArrays, true_counts: Integers) -> CoverageSums:
    counts, widths = predictions.counts, predictions.highs - predictions.lows
    return CoverageSums.of(counts, counts, true_counts, grouped_by=widths, groups=WIDTH_GROUPS)


def predict_pairs(
    estimator: CountEstimator, batch: list[Detections], pairs: list[CountingPair], prior: Prior
) -> tuple[PredictionArrays, Integers]:
    """Predict pairs of a batch of images; return their true counts ``[P]`` as well."""
    predictions = predict_arrays(estimator.fitted, batch, indexed_pairs(batch, pairs), prior=prior)
    return predictions, np.array([pair.true_count for pair in pairs], np.int64)
