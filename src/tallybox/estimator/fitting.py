"""Fitting: baselines, inputs, the ensemble, NMS, and calibration on the photos that members left out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from tallybox.detections.baselines import Metric, tabulate, tune
from tallybox.detections.categories import COCO_CATEGORIES, listed_names
from tallybox.detections.detections import Detections
from tallybox.detections.labels import Pairs, TrueCounts, counting_pairs, labelled_detections
from tallybox.errors import InputError
from tallybox.estimator.calibration import LISTED_PROBABILITY, interval_levels, learn_prevalence
from tallybox.estimator.fitted import Fitted
from tallybox.estimator.inference import Inference, infer
from tallybox.estimator.inputs import EstimatorConfig, inputs_of_many
from tallybox.estimator.model import CountEnsemble
from tallybox.estimator.nms_counts import NmsCounts, learn_nms_counts, preferred_share
from tallybox.estimator.prediction import Floats, Integers, PredictionArrays, summarise
from tallybox.estimator.totals import learn_totals
from tallybox.estimator.training import PADDING, LabelledInputs, OnProgress, epochs_for, train

MIN_IMAGES = 4
# Bounds of `max_objects`, which by default only one in a thousand labels exceeds.
MAX_OBJECTS = (10, 60)
# If this share of pairs has more boxes than can take part, boxes that overlap a better one by more are left out. With
# each box of COCO repeated ten times, 0.7 and 0.85 were equally good.
CROWDED_SHARE, CROWDED_NMS_IOU = 0.05, 0.85


@dataclass(frozen=True)
class HeldOut:
    """Distributions of pairs, each without its own photo: of the ensemble, of NMS, and of their mixture."""

    ensemble: Floats  # [P, K + 1]
    nms: Floats  # [P, K + 1]
    expected: Floats  # [P]: of the ensemble
    nms_expected: Floats  # [P]

    def mixed(self, share: float, tail_mean: float) -> tuple[Floats, Floats]:
        """Return the distributions with a share of NMS ``[P, K + 1]``, and the mean counts beyond K ``[P]``."""
        expected = share * self.nms_expected + (1 - share) * self.expected
        beyond = np.maximum(expected - (self.nms.shape[1] - 1), 0)
        return share * self.nms + (1 - share) * self.ensemble, tail_mean + beyond


def fit(
    detections: Iterable[Detections], labels: TrueCounts, config: EstimatorConfig, *, seed: int, on_progress: OnProgress
) -> Fitted:
    """Fit to labelled images; the same seed gives the same numbers."""
    images = list(labelled_detections(detections, labels))
    pairs, truth = counting_pairs(images, labels)
    config = _sized(config, images, pairs, truth, labels)
    category_ids = tuple(np.unique(pairs.category_ids).tolist())
    table = tabulate(images, pairs)
    baselines = {
        name: {metric: tune(table, pairs, truth, metric, per_category=per_category) for metric in get_args(Metric)}
        for name, per_category in (("nms", False), ("nms_per_category", True))
    }
    places = np.random.default_rng(seed).permutation(len(images)).argsort()
    image_parts = torch.from_numpy(places % config.members)  # of equal size

    def label(pairs: Pairs, truth: Integers) -> LabelledInputs:
        inputs, parts = inputs_of_many(images, pairs, config, category_ids), image_parts[pairs.image_index]
        return LabelledInputs(config, len(category_ids), pairs, inputs, torch.from_numpy(truth), parts)

    labelled = label(pairs, truth)
    ensemble = train(labelled, seed=seed, epochs=epochs_for(len(truth)), on_progress=on_progress)
    nms_counts, parts = labelled.inputs.nms_counts.numpy(), labelled.parts.numpy()

    def learn_nms(rows: NDArray[np.bool_]) -> NmsCounts:
        return learn_nms_counts(nms_counts[rows], truth[rows], config.max_objects, config.proposals)

    nms, nms_of_parts = learn_nms(parts >= 0), [learn_nms(parts != part) for part in range(config.members)]
    above = truth[truth >= config.max_objects] - config.max_objects
    tail_mean = float((above.sum() + 0.5) / (len(above) + 1))
    held_out = _held_out(ensemble, nms_of_parts, labelled)
    rows, clipped = np.arange(len(truth)), truth.clip(max=config.max_objects)
    share = preferred_share(held_out.nms[rows, clipped], held_out.ensemble[rows, clipped])
    mixed = held_out.mixed(share, tail_mean)
    cross_validation = {
        "pairs": len(truth),
        "images": len(images),
        "nms_share": share,
        "estimator": _scores(*mixed, truth, parts),
        "nms": _scores(*held_out.mixed(1.0, tail_mean), truth, parts),
        "ensemble": _scores(*held_out.mixed(0.0, tail_mean), truth, parts),
    }
    names = labels.categories or {key: COCO_CATEGORIES.get(key, str(key)) for key in category_ids}
    fitted = Fitted(
        ensemble=ensemble,
        nms=nms,
        config=config,
        category_ids=category_ids,
        categories={int(key): str(name) for key, name in names.items()},
        tail_mean=tail_mean,
        nms_share=share,
        baselines=baselines,
        interval_levels=interval_levels(*mixed, truth),
        cross_validation=cross_validation,
        longer_side=int(np.median([max(image.image_size or (0,)) for image in images])),
    )
    every = label(*counting_pairs(images, labels, every=True))
    looked_for = len(images) * len(labels.labelled_ids().union(category_ids))
    return _over_every_category(fitted, every, _held_out(ensemble, nms_of_parts, every), looked_for, len(images))


def _sized(
    config: EstimatorConfig, images: Sequence[Detections], pairs: Pairs, truth: Integers, labels: TrueCounts
) -> EstimatorConfig:
    """Choose sizes by the labels; raise if these are too few, or are of other categories than the boxes."""
    detected = {category_id for image in images for category_id in np.unique(image.category_ids).tolist()}
    if not any(map(labels.is_labelled, detected)):
        names = labels.categories or COCO_CATEGORIES
        labelled, found = listed_names(labels.labelled_ids(), names), listed_names(detected, names) or "none"
        remedy = "If the detector numbers its classes from 0, give their names (category_names=, --names data.yaml)."
        raise InputError(f"No box is of a labelled category: labels name {labelled}, boxes are {found}. {remedy}")
    needed, labelled_parts = min(MIN_IMAGES, config.members), min(len(images), len(truth))
    if labelled_parts < needed:
        few = f"there are {len(images)} images with {len(truth)} pairs"
        raise InputError(f"Fitting needs at least {needed} labelled images and pairs, but {few}.")
    by_labels = int(np.clip(np.quantile(truth, 0.999, method="lower"), *MAX_OBJECTS))
    max_objects = config.max_objects or by_labels
    proposals = max(config.proposals, 2 * max_objects)
    boxes = np.array([(images[index].category_ids == key).sum() for index, key in zip(*pairs, strict=True)])
    return replace(
        config,
        members=min(config.members, labelled_parts),  # each leaves out another part
        max_objects=max_objects,
        proposals=proposals,
        nms_iou=CROWDED_NMS_IOU if (boxes > proposals).mean() > CROWDED_SHARE else config.nms_iou,
    )


def _held_out(ensemble: CountEnsemble, nms_of_parts: Sequence[NmsCounts], labelled: LabelledInputs) -> HeldOut:
    """Predict each photo by the member, and by the NMS, that left it out."""
    rows = labelled.by_part()
    logits, expected = infer(ensemble, labelled.inputs, rows.clamp(min=0))
    real = rows != PADDING
    order = rows[real].argsort()  # each pair is in one part
    counts, parts = labelled.inputs.nms_counts.numpy(), labelled.parts.numpy()
    nms, nms_expected = np.zeros((len(counts), logits.shape[-1])), np.zeros(len(counts))
    for part, learned in enumerate(nms_of_parts):
        of_part = parts == part
        nms[of_part], nms_expected[of_part] = learned.probabilities(counts[of_part]), learned.expected(counts[of_part])
    return HeldOut(
        logits[real][order].double().softmax(-1).numpy(), nms, expected[real][order].double().numpy(), nms_expected
    )


def _scores(probabilities: Floats, tail_mean: Floats, truth: Integers, parts: Integers) -> dict[str, Any]:
    """Return cross-validated figures; intervals of each part are calibrated on the other parts."""
    found = []
    for part in np.unique(parts):
        own, others = parts == part, parts != part
        levels = interval_levels(probabilities[others], tail_mean[others], truth[others])
        found.append(summarise(probabilities[own], tail_mean[own], levels))
    together, truth = PredictionArrays.joined(found), truth[parts.argsort(kind="stable")]
    return {**together.metrics(truth), **together.coverage(truth)}


def _over_every_category(
    fitted: Fitted, every: LabelledInputs, held_out: HeldOut, looked_for: int, images: int
) -> Fitted:
    """Learn the prevalence over all categories of all photos, how far intervals grow with it, and totals.

    ``every`` has each category that was detected or is there; ``looked_for`` is the number of all pairs.
    """
    probabilities, tail_mean = held_out.mixed(fitted.nms_share, fitted.tail_mean)
    (best, summary), truth = every.inputs.evidence(), every.true_counts.numpy()
    detected = best > 0
    unseen = (int((~detected).sum()) + 0.5) / (looked_for - int(detected.sum()) + 1)
    prevalence = learn_prevalence(
        probabilities[detected], best[detected], summary[detected], truth[detected] > 0, min(unseen, 0.5)
    )
    corrected = prevalence.apply(probabilities, best, summary)
    listed = detected & (corrected[:, 0] < 1 - LISTED_PROBABILITY)
    levels = interval_levels(corrected[listed], tail_mean[listed], truth[listed])
    fitted = replace(fitted, prevalence=prevalence, interval_levels_listed=levels)
    members = infer(fitted.ensemble, every.inputs).logits.double().softmax(-1).numpy()
    members = fitted.nms_share * held_out.nms + (1 - fitted.nms_share) * members
    moments = Inference(fitted, every.inputs, probabilities, tail_mean, members).moments()
    return replace(fitted, totals=learn_totals(moments, every.pairs, truth, images, prevalence.undetected))
