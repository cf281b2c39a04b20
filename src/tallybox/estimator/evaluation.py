"""Scores of an estimator on labelled images, beside the baselines that were tuned on what it learned from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from tallybox.detections.baselines import Metric
from tallybox.detections.container import Detections
from tallybox.detections.labels import CountingPair, TrueCounts, counting_pairs, every_pair, labelled_detections
from tallybox.detections.metrics import CategorySums, CountSums, CoverageSums
from tallybox.errors import InputError
from tallybox.estimator.estimator import CountEstimator
from tallybox.estimator.fitting import FitReport
from tallybox.estimator.inference import Prior, predict_arrays
from tallybox.estimator.inputs import in_batches, pair_indices
from tallybox.estimator.prediction import PredictionArrays

# Widths of intervals (high - low), by the group of `CoverageSums` that each is summed in.
WIDTHS = {"0": "0", "1": "1-2", "2-4": "3-4", "5+": "5+"}


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found; ``compute`` gives figures."""

    estimator: CountSums
    baselines: dict[str, dict[Metric, CountSums]]
    by_true_count: CoverageSums
    by_predicted_count: CoverageSums
    by_width: CoverageSums  # of counts, not of intervals
    categories: CategorySums  # over every category of every image
    images: int
    category_ids: frozenset[int]

    def compute(self) -> dict[str, Any]:
        """Return the figures of the contract, mRMSE and coverage by true count; NMS is tuned anew for each metric."""
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
            "right_by_width": _named_widths(self.by_width),
            **self.categories.compute(self.images, self.category_ids),
        }


def evaluate(estimator: CountEstimator, detections: Iterable[Detections], labels: TrueCounts) -> Evaluation:
    """Score an estimator on images that it did not learn from."""
    fitted = estimator.fitted
    sums, categories, images = CountSums(), CategorySums(), 0
    by_true_count, by_predicted_count, by_width = CoverageSums(), CoverageSums(), CoverageSums()
    baselines = {name: {metric: CountSums() for metric in get_args(Metric)} for name in fitted.baselines}
    met = set(labels.labelled_ids())
    for batch in in_batches(labelled_detections(detections, labels)):
        images += len(batch)
        pairs, truth = _with_truth(counting_pairs(batch, labels))
        if pairs:
            found = predict_pairs(estimator, batch, pairs, "scored")
            sums += sums_of(found, truth)
            by_true_count += CoverageSums.of(found.lows, found.highs, truth, grouped_by=truth)
            by_predicted_count += CoverageSums.of(found.lows, found.highs, truth, grouped_by=found.counts)
            by_width += _right_by_width(found, truth)
            for name, tuned in fitted.baselines.items():
                for metric, counter in tuned.items():
                    baselines[name][metric] += CountSums.of(counter.counts(pairs), truth)
        pairs, truth = _with_truth(every_pair(batch, labels))
        if pairs:
            found = predict_pairs(estimator, batch, pairs, "every")
            category_ids = [pair.category_id for pair in pairs]
            met.update(category_ids)
            categories += CategorySums.of(category_ids, found.expected, truth)
    if not sums.pairs:
        raise InputError("there must be a pair to score, but no labelled image has an object or a box above 0.05")
    by_groups = (by_true_count, by_predicted_count, by_width)
    return Evaluation(sums, baselines, *by_groups, categories, images, frozenset(met))


def sums_of(found: PredictionArrays, true_counts: NDArray[np.int64]) -> CountSums:
    """Sum up predictions: exact by the most probable count, MAE by the median, RMSE by the mean."""
    return CountSums.of(found.most_probable, true_counts, medians=found.counts, means=found.expected)


def train_metrics(estimator: CountEstimator, images: list[Detections], labels: TrueCounts) -> dict[str, float]:
    """Return the figures on the pairs that an estimator learned from."""
    sums = CountSums()
    for batch in in_batches(labelled_detections(images, labels)):
        pairs, truth = _with_truth(counting_pairs(batch, labels))
        if pairs:
            sums += sums_of(predict_pairs(estimator, batch, pairs, "scored"), truth)
    return sums.compute()


def held_out_metrics(report: FitReport) -> dict[str, float]:
    """Return the figures on the same pairs, each predicted by the member that did not learn from its photo."""
    return sums_of(report.held_out, report.true_counts).compute()


def held_out_right_by_width(report: FitReport) -> dict[str, float]:
    """Return which share of these predictions have the right count, by the width of their intervals."""
    return _named_widths(_right_by_width(report.held_out, report.true_counts))


def _right_by_width(found: PredictionArrays, true_counts: NDArray[np.int64]) -> CoverageSums:
    groups = np.array([0, 1, 2, 5])[np.searchsorted([1, 3, 5], found.highs - found.lows, side="right")]
    return CoverageSums.of(found.counts, found.counts, true_counts, grouped_by=groups)


def _named_widths(sums: CoverageSums) -> dict[str, float]:
    return {WIDTHS[group]: share for group, share in sums.coverage_by_group().items()}


def predict_pairs(
    estimator: CountEstimator, batch: list[Detections], pairs: list[CountingPair], prior: Prior
) -> PredictionArrays:
    """Predict pairs of a batch of images."""
    return predict_arrays(estimator.fitted, batch, *pair_indices(batch, pairs), prior=prior)


def _with_truth(pairs: Iterator[CountingPair]) -> tuple[list[CountingPair], NDArray[np.int64]]:
    listed = list(pairs)
    return listed, np.array([pair.true_count for pair in listed], np.int64)
