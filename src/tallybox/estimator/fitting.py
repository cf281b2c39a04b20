"""Fitting: baselines, inputs, thinning, members, and calibration on the photos that members left out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import get_args

import numpy as np
import torch
from numpy.typing import NDArray

from tallybox.detections.baselines import Metric, tabulate, tune
from tallybox.detections.categories import COCO_CATEGORIES, category_name_of, listed_names
from tallybox.detections.detections import Detections
from tallybox.detections.labels import CountingPair, TrueCounts, counting_pairs, every_pair, labelled_detections
from tallybox.detections.metrics import CountSums
from tallybox.errors import InputError
from tallybox.estimator.calibration import LISTED_PROBABILITY, Prevalence, interval_levels, learn_prevalence
from tallybox.estimator.config import NO_THINNING, EstimatorConfig, check_size
from tallybox.estimator.fitted import CurvePoint, Fitted, distributions, infer, moments_of
from tallybox.estimator.inputs import indexed_pairs, inputs_of_many
from tallybox.estimator.model import CountModel, ModelOutput
from tallybox.estimator.prediction import IntervalLevels, PredictionArrays, summarise
from tallybox.estimator.totals import learn_totals
from tallybox.estimator.training import LabelledInputs, OnProgress, epochs_for, epochs_of, held_out_loss, train_member

Label = Callable[[EstimatorConfig, Sequence[CountingPair]], LabelledInputs]

MIN_IMAGES = 4
# Bounds of `max_objects`, which by default only one in a thousand labels exceeds.
MAX_OBJECTS = (10, 60)
# Thinning is tried where this share of pairs has more boxes than can take part.
CROWDED_SHARE = 0.05
THINNINGS = (0.85, 0.7, NO_THINNING)
# The first thinning is taken unless the loss of another on held-out photos is smaller by this: on 150 photos, with each
# box of COCO repeated ten times, trials preferred different ones by 0.03.
CLEARLY_BETTER = 0.03
THINNING_PAIRS, THINNING_STEPS = 4000, 150
# The learning curve's first point: the share of the photos that its members learn from, the number of these members,
# and the minimum of photos. A further point at half of the photos took twice the time and gave the same slope.
CURVE_SHARE, CURVE_MEMBERS, MIN_CURVE_PHOTOS = 0.25, 2, 40


@dataclass(frozen=True)
class FitReport:
    """How many pairs and photos a fit learned from, and its predictions of held-out photos."""

    pairs: int
    photos: int
    true_counts: NDArray[np.int64]  # [P]
    held_out: PredictionArrays  # of each pair, by the member that did not learn from its photo


def fit(
    detections: Iterable[Detections],
    labels: TrueCounts,
    config: EstimatorConfig,
    *,
    max_objects: int | None,
    seed: int,
    on_progress: OnProgress,
) -> tuple[Fitted, FitReport]:
    """Learn from labelled images; the same seed gives the same numbers."""
    images = list(labelled_detections(detections, labels))
    _check_categories(images, labels)
    pairs = list(counting_pairs(images, labels))
    needed, labelled_parts = min(MIN_IMAGES, config.members), min(len(images), len(pairs))
    if labelled_parts < needed:
        raise InputError(
            f"an estimator must learn from at least {needed} labelled images and pairs, but got {len(images)} images "
            f"with {len(pairs)} pairs"
        )
    config = replace(config, members=min(config.members, labelled_parts))  # each leaves out another part
    if not any(len(image) for image in images):
        raise InputError(f"an estimator must learn from boxes, but none of the {len(images)} labelled images has any")
    truth = np.array([pair.true_count for pair in pairs], np.int64)
    if max_objects is None:
        max_objects = int(np.clip(np.quantile(truth, 0.999, method="lower"), *MAX_OBJECTS))
    config = replace(config, max_objects=max_objects, proposals=max(config.proposals, 2 * max_objects))
    category_ids = tuple(sorted({pair.category_id for pair in pairs}))
    check_size("the number of labelled categories", len(category_ids))
    table = tabulate(pairs)
    baselines = {
        name: {metric: tune(table, metric, per_category=per_category) for metric in get_args(Metric)}
        for name, per_category in (("nms", False), ("nms_per_category", True))
    }
    places = np.random.default_rng(seed).permutation(len(images)).argsort()
    label = partial(_label, images, category_ids, places % config.members)  # parts of equal size
    config = _with_thinning(config, pairs, label, seed)
    labelled, epochs = label(config, pairs), epochs_for(len(pairs))
    members = tuple(
        train_member(labelled, part, seed=seed * 1000 + part, epochs=epochs, on_progress=on_progress)
        for part in range(config.members)
    )
    above = truth[truth >= config.max_objects] - config.max_objects
    excess = float((above.sum() + 0.5) / (len(above) + 1))
    probabilities, beyond = distributions([_held_out(members, labelled)], excess)
    levels = interval_levels(probabilities, beyond, truth)
    held_out = summarise(probabilities, beyond, levels)
    every = label(config, list(every_pair(images, labels)))
    every_held_out = _held_out(members, every)
    looked_for = len(images) * len(labels.labelled_ids().union(category_ids))
    prevalence, levels_listed = _over_every_category(every, every_held_out, looked_for, excess)
    names = dict(labels.categories) or {key: category_name_of(key) for key in category_ids}
    fitted = Fitted(config, category_ids, names, members, baselines, levels, levels_listed, prevalence, excess)
    outputs = [infer(member, every.inputs) for member in members]
    moments, _ = moments_of(fitted, every.inputs, [every_held_out], outputs)
    totals = learn_totals(moments, every.pairs, every.true_counts.numpy(), len(images), prevalence.undetected)
    curve = _learning_curve(labelled, held_out, excess=excess, levels=levels, seed=seed)
    fitted = replace(fitted, totals=totals, learning_curve=curve)
    return fitted, FitReport(len(pairs), len(images), truth, held_out)


def _check_categories(images: Sequence[Detections], labels: TrueCounts) -> None:
    """Raise where there are boxes, but none is of a labelled category: the numbers of classes are not category ids."""
    detected = {category_id for image in images for category_id in np.unique(image.category_ids).tolist()}
    if detected and not any(map(labels.is_labelled, detected)):
        names = labels.categories or COCO_CATEGORIES
        raise InputError(
            f"boxes must be of categories that the labels name ({listed_names(labels.labelled_ids(), names)}), but got "
            f"only others ({listed_names(detected, names)}); class numbers of a YOLO model? translate them to category "
            "ids, or give the boxes in a CSV with the names of their categories"
        )


def _label(
    images: list[Detections],
    category_ids: tuple[int, ...],
    image_parts: NDArray[np.int64],
    config: EstimatorConfig,
    labelled_pairs: Sequence[CountingPair],
) -> LabelledInputs:
    pairs = indexed_pairs(images, labelled_pairs)
    return LabelledInputs(
        config,
        len(category_ids),
        pairs,
        inputs_of_many(images, pairs, config, category_ids),
        torch.tensor([pair.true_count for pair in labelled_pairs]),
        torch.from_numpy(image_parts[pairs.image_index]),
    )


def _held_out(members: Sequence[CountModel], labelled: LabelledInputs) -> ModelOutput:
    """Predict each photo by the member that left it out."""
    logits = torch.zeros(len(labelled.parts), labelled.config.max_objects + 1)
    expected = torch.zeros(len(labelled.parts))
    for part, member in enumerate(members):
        rows = labelled.of_part(part)
        logits[rows], expected[rows] = infer(member, labelled.inputs, rows)
    return ModelOutput(logits, expected)


def _with_thinning(config: EstimatorConfig, pairs: Sequence[CountingPair], label: Label, seed: int) -> EstimatorConfig:
    """Choose, where boxes are many, how near-identical ones are thinned, by short trials on held-out photos."""
    number = np.array([(pair.detections.category_ids == pair.category_id).sum() for pair in pairs])
    if (number > config.proposals).mean() <= CROWDED_SHARE:
        return config
    pairs = pairs[:THINNING_PAIRS]
    losses = {}
    for thinning in THINNINGS:
        labelled = label(replace(config, thinning=thinning), pairs)
        model = train_member(labelled, 0, seed=seed, epochs=epochs_of(len(pairs), THINNING_STEPS))
        losses[thinning] = held_out_loss(model, labelled, labelled.of_part(0))
    losses[THINNINGS[0]] -= CLEARLY_BETTER
    return replace(config, thinning=min(losses, key=lambda thinning: losses[thinning]))


def _over_every_category(
    every: LabelledInputs, held_out: ModelOutput, looked_for: int, excess: float
) -> tuple[Prevalence, IntervalLevels]:
    """Learn the prevalence over all categories of all photos, and how far intervals grow with it.

    ``every`` has each category that was detected or is there; ``looked_for`` is the number of all pairs.
    """
    probabilities, beyond = distributions([held_out], excess)
    (best, summary), truth = every.inputs.evidence(), every.true_counts.numpy()
    detected = best > 0
    unseen = (int((~detected).sum()) + 0.5) / (looked_for - int(detected.sum()) + 1)
    prevalence = learn_prevalence(
        probabilities[detected], best[detected], summary[detected], truth[detected] > 0, min(unseen, 0.5)
    )
    corrected = prevalence.apply(probabilities, best, summary)
    listed = detected & (corrected[:, 0] < 1 - LISTED_PROBABILITY)
    return prevalence, interval_levels(corrected[listed], beyond[listed], truth[listed])


def _learning_curve(
    labelled: LabelledInputs, held_out: PredictionArrays, *, excess: float, levels: IntervalLevels, seed: int
) -> tuple[CurvePoint, ...]:
    """Return two points of how accuracy grows with the number of labelled photos, or none where there are few photos.

    The first point is of members that learn from a share of the photos and count in all others; the second is of the
    estimator's members, each of which counts in the part that it left out, as ``held_out`` predicts it.
    """
    image_index, truth = labelled.pairs.image_index, labelled.true_counts.numpy()
    photos = int(image_index.max(initial=-1)) + 1
    if photos < MIN_CURVE_PHOTOS:
        return ()
    order = np.random.default_rng(seed).permutation(photos)
    number, sums = round(CURVE_SHARE * photos), CountSums()
    for member in range(CURVE_MEMBERS):
        learns = np.isin(image_index, order[member * number : (member + 1) * number])
        split = replace(labelled, parts=torch.from_numpy(learns.astype(np.int64)))  # it leaves part 0 out
        model = train_member(split, 0, seed=seed * 1000 + 500 + member, epochs=epochs_for(int(learns.sum())))
        rows = split.of_part(0)
        predictions = summarise(*distributions([infer(model, labelled.inputs, rows)], excess), levels)
        sums += predictions.sums(truth[rows.numpy()])
    learned_from = round(photos * (1 - 1 / labelled.config.members))
    return _point(number, sums), _point(learned_from, held_out.sums(truth))


def _point(photos: int, sums: CountSums) -> CurvePoint:
    figures = sums.compute()
    return CurvePoint(photos, round(figures["exact"], 4), round(figures["mae"], 4))
