"""Scores of an estimator on labelled images, compared with baselines tuned on the images that it was fitted to."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np

from tallybox.concurrency import in_batches
from tallybox.detections.baselines import Metric
from tallybox.detections.categories import match_categories
from tallybox.detections.detections import Detections
from tallybox.detections.labels import CountingPair, TrueCounts, counting_pairs, every_pair, labelled_detections
from tallybox.detections.matching import match_images
from tallybox.detections.metrics import CategorySums, CountSums, CoverageSums
from tallybox.errors import InputError
from tallybox.estimator.config import IMAGES_PER_BATCH
from tallybox.estimator.estimator import CountEstimator
from tallybox.estimator.inference import Inference, infer_pairs
from tallybox.estimator.inputs import indexed_pairs
from tallybox.estimator.prediction import WIDTH_GROUPS, Integers


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
        over_categories = self.categories.compute(self.images, self.category_ids)
        return {
            "pairs": self.estimator.pairs,
            "estimator": self.estimator.compute(),
            **baselines,
            "coverage90": self.by_predicted_count.coverage(),
            "coverage90_by_predicted_count": self.by_predicted_count.coverage_by_group(),
            "width90_by_predicted_count": self.by_predicted_count.width_by_group(),
            "coverage90_by_true_count": self.by_true_count.coverage_by_group(),
            "right_by_width": self.by_width.coverage_by_group(WIDTH_GROUPS),
            "mrmse": over_categories["mrmse"],
            # JSON has no NaN, which is the figure if no labelled image has an object.
            "mrmse_nz": over_categories["mrmse_nz"] if over_categories["mrmse_nz"] >= 0 else None,
        }


def evaluate(estimator: CountEstimator, detections: Iterable[Detections], labels: TrueCounts) -> Evaluation:
    """Score an estimator on images that it was not fitted to; categories are matched by name if all have names."""
    names = dict(estimator.fitted.categories)
    if labels.categories:
        ids = match_categories(labels.categories, names)
        names = {ids[key]: name for key, name in labels.categories.items()} | names
        labels = labels.renumbered(ids, names)
    detections = match_images(detections, names)
    tuned = estimator.fitted.baselines
    empty = {name: {metric: CountSums() for metric in get_args(Metric)} for name in tuned}
    result, scored = Evaluation(empty, set(labels.labelled_ids())), set[int]()
    for batch in in_batches(labelled_detections(detections, labels), IMAGES_PER_BATCH):
        result.images += len(batch)
        every = list(every_pair(batch, labels))
        inference, truth = infer_labelled(estimator, batch, every)
        means, category_ids = inference.predictions("population").expected, [pair.category_id for pair in every]
        result.category_ids.update(category_ids)
        result.categories += CategorySums.of(category_ids, means, truth)
        # The pairs that are scored are some of these.
        chosen = {(pair.detections.image_id, pair.category_id) for pair in counting_pairs(batch, labels)}
        rows = np.array([(pair.detections.image_id, pair.category_id) in chosen for pair in every], np.bool_)
        pairs, truth = [pair for pair, is_chosen in zip(every, rows, strict=True) if is_chosen], truth[rows]
        predictions = inference.predictions("evaluation_pairs").at(rows)
        scored.update(pair.category_id for pair in pairs)
        lows, highs = predictions.lows, predictions.highs
        result.estimator += predictions.sums(truth)
        result.by_true_count += CoverageSums.of(lows, highs, truth, grouped_by=truth)
        result.by_predicted_count += CoverageSums.of(lows, highs, truth, grouped_by=predictions.counts)
        result.by_width += predictions.sums_by_width(truth)
        for name, sums in result.baselines.items():
            for metric in sums:
                sums[metric] += CountSums.of(tuned[name][metric].counts(pairs), truth)
    if not result.estimator.pairs:
        raise InputError("Nothing to score: no labelled image has an object or a box above 0.05.")
    estimator.report_unlearned(scored)
    return result


def train_metrics(estimator: CountEstimator, images: list[Detections], labels: TrueCounts) -> dict[str, float]:
    """Return the figures on the pairs that an estimator was fitted to."""
    sums = CountSums()
    for batch in in_batches(labelled_detections(images, labels), IMAGES_PER_BATCH):
        inference, truth = infer_labelled(estimator, batch, list(counting_pairs(batch, labels)))
        sums += inference.predictions("evaluation_pairs").sums(truth)
    return sums.compute()


def infer_labelled(
    estimator: CountEstimator, batch: list[Detections], pairs: list[CountingPair]
) -> tuple[Inference, Integers]:
    """Run an estimator on pairs of a batch of images; return their true counts ``[P]`` as well."""
    inference = infer_pairs(estimator.fitted, batch, indexed_pairs(batch, pairs))
    return inference, np.array([pair.true_count for pair in pairs], np.int64)
