"""All that fitting does: baselines, questions, thinning, members, and what their held-out photos teach."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import get_args

import numpy as np
import torch
from numpy.typing import NDArray

from tallybox.detections.baselines import Metric, ThresholdCounter, tabulate, tune
from tallybox.detections.category_names import category_name_of
from tallybox.detections.container import Detections, ImageId
from tallybox.detections.labels import (
    CountingPair,
    TrueCounts,
    counting_pairs,
    every_pair,
    labelled_detections,
)
from tallybox.errors import InputError
from tallybox.estimator.calibration import (
    AS_PREDICTED,
    LISTED_PROBABILITY,
    Prevalence,
    interval_levels,
    learn_prevalence,
)
from tallybox.estimator.configuration import NO_THINNING, EstimatorConfig
from tallybox.estimator.model import CountModel
from tallybox.estimator.prediction import Floats, IntervalLevels, PredictionArrays, mean_beyond, summarise
from tallybox.estimator.questions import IMAGES_AT_ONCE, Questions, ask, join
from tallybox.estimator.training import EPOCHS, Examples, answer, epochs_for, held_out_loss, min_steps, train_member

OnProgress = Callable[[int, int], None]  # done, total
Baselines = Mapping[str, Mapping[Metric, ThresholdCounter]]  # "nms", "nms_per_category", each tuned for each metric

MIN_IMAGES = 4
# Largest counts that are told apart: as many as all but one in a thousand labels need, within these.
MAX_OBJECTS = (10, 60)
# Thinning is tried where this share of pairs has more boxes than can take part.
CROWDED_SHARE = 0.05
THINNINGS = (0.85, 0.7, NO_THINNING)
# The first of them unless another's loss on held-out photos is smaller by this: with 150 photos, each box of COCO
# repeated ten times, trials preferred now one and now another, 0.03 apart.
CLEARLY_BETTER = 0.03
UNCALIBRATED_LEVEL = 0.8  # about 90 % of the probability
THINNING_PAIRS, THINNING_STEPS = 4000, 150


@dataclass(frozen=True)
class Fitted:
    """Everything that is learned, and stored in an estimator's file."""

    config: EstimatorConfig
    category_ids: tuple[int, ...]  # those with labels; row r + 1 of a model's tables is the r-th
    categories: Mapping[int, str]
    members: tuple[CountModel, ...]
    baselines: Baselines
    levels: IntervalLevels  # for the pairs of the contract
    levels_listed: IntervalLevels  # for every category that may be there, however rare it is
    prevalence: Prevalence
    excess: float  # mean count beyond max_objects of pairs that have more


@dataclass(frozen=True)
class FitReport:
    """What came of fitting."""

    pairs: int
    photos: int
    true_counts: NDArray[np.int64]  # [P]
    held_out: PredictionArrays  # each pair by the one member that did not learn from its photo


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
    pairs = list(counting_pairs(images, labels))
    needed, known = min(MIN_IMAGES, config.members), min(len(images), len(pairs))
    if known < needed:
        raise InputError(
            f"an estimator must learn from at least {needed} labelled images and pairs, but got {len(images)} images "
            f"with {len(pairs)} pairs"
        )
    config = replace(config, members=min(config.members, known))  # each leaves out a part of its own
    if not any(len(image) for image in images):
        raise InputError(f"an estimator must learn from boxes, but none of the {len(images)} labelled images has any")
    truth = np.array([pair.true_count for pair in pairs], np.int64)
    if max_objects is None:
        max_objects = int(np.clip(np.quantile(truth, 0.999, method="lower"), *MAX_OBJECTS))
    config = replace(config, max_objects=max_objects, proposals=max(config.proposals, 2 * max_objects))
    category_ids = tuple(sorted({pair.category_id for pair in pairs}))
    table = tabulate(pairs)
    baselines = {
        name: {metric: tune(table, metric, per_category=per_category) for metric in get_args(Metric)}
        for name, per_category in (("nms", False), ("nms_per_category", True))
    }
    parts = _parts(images, config.members, seed)
    config = _with_thinning(config, images, pairs, truth, category_ids, parts, seed)
    examples = _examples(config, images, pairs, truth, category_ids, parts)
    epochs = max(EPOCHS, epochs_for(len(pairs), min_steps(len(pairs))))
    members = tuple(
        train_member(
            config,
            len(category_ids),
            examples,
            member,
            seed * 1000 + member,
            partial(_show, on_progress, member, config.members),
            epochs,
        )
        for member in range(config.members)
    )
    above = truth[truth >= config.max_objects] - config.max_objects
    excess = float((above.sum() + 0.5) / (len(above) + 1))
    probabilities, expected = held_out_answers(members, examples)
    beyond = mean_beyond(excess, expected, config.max_objects)
    levels = interval_levels(probabilities, beyond, truth)
    prevalence, levels_listed = _over_every_category(config, members, images, labels, category_ids, parts, excess)
    names = dict(labels.categories) or {key: category_name_of(key) for key in category_ids}
    fitted = Fitted(config, category_ids, names, members, baselines, levels, levels_listed, prevalence, excess)
    return fitted, FitReport(len(pairs), len(images), truth, summarise(probabilities, beyond, levels))


def untrained(config: EstimatorConfig, categories: Mapping[int, str]) -> Fitted:
    """Return what there is before anything is learned: the component, which takes scores for probabilities."""
    levels = IntervalLevels(*[UNCALIBRATED_LEVEL] * len(IntervalLevels._fields))
    return Fitted(
        config=config,
        category_ids=(),
        categories=categories,
        members=(CountModel(config, 0).eval(),),
        baselines={},
        levels=levels,
        levels_listed=levels,
        prevalence=AS_PREDICTED,
        excess=0.5,
    )


def _show(on_progress: OnProgress, member: int, members: int, done: int, epochs: int) -> None:
    on_progress(member * epochs + done, members * epochs)


def category_rows(category_ids: tuple[int, ...], asked: NDArray[np.int64]) -> torch.Tensor:
    """Return the rows of a model's tables for categories [Q]; 0 for those without labels."""
    known = np.array(category_ids, np.int64)
    if not len(known):
        return torch.zeros(len(asked), dtype=torch.int64)
    place = np.searchsorted(known, asked).clip(max=len(known) - 1)
    return torch.from_numpy(np.where(known[place] == asked, place + 1, 0))


def held_out_answers(members: tuple[CountModel, ...], examples: Examples) -> tuple[Floats, Floats]:
    """Predict each photo by the member that left it out: distributions [Q, K + 1], the component's counts [Q]."""
    probabilities = np.zeros((len(examples.questions), members[0].config.max_objects + 1))
    expected = np.zeros(len(examples.questions))
    for part, member in enumerate(members):
        chosen = (examples.parts == part).nonzero().flatten()
        answers = answer(member, examples.questions, examples.category_rows, chosen)
        rows = chosen.numpy()  # numpy takes a tensor of one number for that number
        probabilities[rows] = answers.logits.double().softmax(-1).numpy()
        expected[rows] = answers.expected.double().numpy()
    return probabilities, expected


def _parts(images: list[Detections], parts: int, seed: int) -> dict[ImageId | None, int]:
    """Deal the photos out to parts of equal size."""
    order = np.random.default_rng(seed).permutation(len(images))
    return {images[index].image_id: place % parts for place, index in enumerate(order.tolist())}


def _ask(config: EstimatorConfig, images: list[Detections], pairs: list[CountingPair]) -> Questions:
    """Ask about pairs, which come image by image, some images at a time: an image may have thousands of boxes."""
    where = {image.image_id: index for index, image in enumerate(images)}
    index = np.array([where[pair.detections.image_id] for pair in pairs], np.int64)
    category_ids = np.array([pair.category_id for pair in pairs], np.int64)
    parts = []
    for first in range(0, len(images), IMAGES_AT_ONCE):
        rows = (index >= first) & (index < first + IMAGES_AT_ONCE)
        some = images[first : first + IMAGES_AT_ONCE]
        parts.append(
            ask(
                some,
                index[rows] - first,
                category_ids[rows],
                proposals=config.proposals,
                thinning=config.thinning,
            )
        )
    return join(parts)


def _examples(
    config: EstimatorConfig,
    images: list[Detections],
    pairs: list[CountingPair],
    truth: NDArray[np.int64],
    category_ids: tuple[int, ...],
    parts: Mapping[ImageId | None, int],
) -> Examples:
    questions = _ask(config, images, pairs)
    rows = category_rows(category_ids, questions.categories.numpy())
    part = torch.tensor([parts[pair.detections.image_id] for pair in pairs])
    return Examples(questions, rows, torch.from_numpy(truth), part)


def _with_thinning(
    config: EstimatorConfig,
    images: list[Detections],
    pairs: list[CountingPair],
    truth: NDArray[np.int64],
    category_ids: tuple[int, ...],
    parts: Mapping[ImageId | None, int],
    seed: int,
) -> EstimatorConfig:
    """Choose by a short trial on held-out photos how near-identical boxes are thinned, if there are that many."""
    number = np.array([(pair.detections.category_ids == pair.category_id).sum() for pair in pairs])
    if (number > config.proposals).mean() <= CROWDED_SHARE:
        return config
    some = slice(0, THINNING_PAIRS)
    epochs = epochs_for(len(truth[some]), THINNING_STEPS)
    losses = {}
    for thinning in THINNINGS:
        trial = replace(config, thinning=thinning)
        examples = _examples(trial, images, pairs[some], truth[some], category_ids, parts)
        model = train_member(trial, len(category_ids), examples, 0, seed, lambda done, of: None, epochs)
        losses[thinning] = held_out_loss(model, examples, (examples.parts == 0).nonzero().flatten())
    losses[THINNINGS[0]] -= CLEARLY_BETTER
    return replace(config, thinning=min(losses, key=lambda thinning: losses[thinning]))


def _over_every_category(
    config: EstimatorConfig,
    members: tuple[CountModel, ...],
    images: list[Detections],
    labels: TrueCounts,
    category_ids: tuple[int, ...],
    parts: Mapping[ImageId | None, int],
    excess: float,
) -> tuple[Prevalence, IntervalLevels]:
    """Learn how often a category is there over all categories of all photos, and how wide intervals are then."""
    pairs = list(every_pair(images, labels))
    truth = np.array([pair.true_count for pair in pairs], np.int64)
    examples = _examples(config, images, pairs, truth, category_ids, parts)
    probabilities, expected = held_out_answers(members, examples)
    best = np.where(examples.questions.sizes.numpy() > 0, examples.questions.scores[:, 0].numpy(), 0)
    detected = best > 0
    looked_for = max(len(labels.categories), len(category_ids))
    undetected = len(images) * looked_for - int(detected.sum())
    unseen = (int((~detected).sum()) + 0.5) / (undetected + 1)
    summary = examples.questions.summary.double().numpy()
    prevalence = learn_prevalence(
        probabilities[detected], best[detected], summary[detected], truth[detected] > 0, min(unseen, 0.5)
    )
    corrected = prevalence.apply(probabilities, best, summary)
    listed = detected & (corrected[:, 0] < 1 - LISTED_PROBABILITY)
    beyond = mean_beyond(excess, expected[listed], config.max_objects)
    return prevalence, interval_levels(corrected[listed], beyond, truth[listed])
