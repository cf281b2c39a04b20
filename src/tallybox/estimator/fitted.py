"""Inference: predicted counts from the boxes of images and a fitted estimator.

Legend: P pairs of an image and a category, K ``max_objects``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from tallybox.concurrency import single_threaded_torch
from tallybox.detections.baselines import Metric, ThresholdCounter
from tallybox.detections.detections import Detections
from tallybox.errors import InputError
from tallybox.estimator.calibration import AS_PREDICTED, Prevalence
from tallybox.estimator.config import EstimatorConfig
from tallybox.estimator.inputs import IndexedPairs, ModelInputs, model_inputs
from tallybox.estimator.model import CountModel, ModelOutput
from tallybox.estimator.prediction import TAIL, Floats, IntervalLevels, PredictionArrays, summarise, write_out_tail

Prior = Literal["every", "scored"]
Baselines = Mapping[str, Mapping[Metric, ThresholdCounter]]  # "nms", "nms_per_category", each tuned for each metric

UNCALIBRATED_LEVEL = 0.8  # with it, intervals hold about 90 % of the probability


class CurvePoint(NamedTuple):
    """How well members that learned from some photos count in others."""

    photos: int
    exact: float
    mae: float


class TotalCalibration(NamedTuple):
    """Factors of totals and of the widths of their intervals.

    The defaults are those of the shipped estimator, from held-out parts of the photos that it learned from.
    """

    scale: float = 0.95  # of intervals, as totals over held-out photos need it
    photos: int = 3000  # labelled photos; the fewer, the larger the error that all images share
    factor: float = 1.0  # true over expected totals on held-out photos, of all categories
    factors: Mapping[int, float] | None = None  # the same of each category, by its id

    def scale_for(self, images: int) -> float:
        """Return the scale for a total over so many images."""
        return float(self.scale * (1 + images / self.photos) ** 0.5)

    def factors_of(self, category_ids: Iterable[int]) -> Floats:
        """Return the factor of each category, ``[C]``."""
        return np.array([(self.factors or {}).get(key, self.factor) for key in category_ids])


@dataclass(frozen=True)
class Fitted:
    """Everything that is learned, and stored in an estimator's file."""

    config: EstimatorConfig
    category_ids: tuple[int, ...]  # those with labels; row r + 1 of a model's tables is the r-th
    categories: Mapping[int, str]
    members: tuple[CountModel, ...]
    baselines: Baselines
    levels: IntervalLevels  # for the pairs of `counting_pairs`
    levels_listed: IntervalLevels  # for every category that may be there, however rare it is
    prevalence: Prevalence
    excess: float  # mean count beyond max_objects of pairs that have more
    totals: TotalCalibration = TotalCalibration()  # noqa: RUF009 - it cannot be changed
    learning_curve: tuple[CurvePoint, ...] = ()  # by ascending number of photos; none where there were few
    detector: tuple[str, ...] = ()  # SPEC and phrases of what detected the boxes; none where they came from a file


def untrained(config: EstimatorConfig, categories: Mapping[int, str]) -> Fitted:
    """Return an estimator's content before it learns: the untrained component, which takes scores as probabilities."""
    levels = IntervalLevels(*[UNCALIBRATED_LEVEL] * len(IntervalLevels._fields))
    return Fitted(
        config=config,
        category_ids=(),
        categories=dict(categories),  # a copy that can be pickled, whatever mapping is given
        members=(CountModel(config, 0).eval(),),
        baselines={},
        levels=levels,
        levels_listed=levels,
        prevalence=AS_PREDICTED,
        excess=0.5,
    )


def predict_arrays(
    fitted: Fitted, images: Sequence[Detections], pairs: IndexedPairs, *, prior: Prior
) -> PredictionArrays:
    """Predict pairs of images and categories."""
    if prior not in get_args(Prior):
        raise InputError(f'prior must be "every" or "scored", but got {prior!r}')
    inputs = model_inputs(images, pairs, fitted.config, fitted.category_ids)
    probabilities, beyond = distributions([infer(member, inputs) for member in fitted.members], fitted.excess)
    levels = fitted.levels
    if prior == "every":
        probabilities, levels = fitted.prevalence.apply(probabilities, *inputs.evidence()), fitted.levels_listed
    predictions = summarise(probabilities, beyond, levels)
    return predictions._replace(saturated=predictions.saturated | inputs.truncated.numpy())


def predict_moments(fitted: Fitted, images: Sequence[Detections], pairs: IndexedPairs) -> tuple[Floats, Floats]:
    """Return moments of pairs, which add up to those of a total, ``[P, 3 + M]``, and the probabilities of 0 ``[P]``.

    Moments are mean, variance, 1, and the means of the M members.
    """
    inputs = model_inputs(images, pairs, fitted.config, fitted.category_ids)
    outputs = [infer(member, inputs) for member in fitted.members]
    return moments_of(fitted, inputs, outputs, outputs)


def moments_of(
    fitted: Fitted, inputs: ModelInputs, averaged: Sequence[ModelOutput], members: Sequence[ModelOutput]
) -> tuple[Floats, Floats]:
    """Return what `predict_moments` returns: mean and variance by the ``averaged`` outputs, and each member's mean."""
    evidence = inputs.evidence()

    def with_tail(outputs: Sequence[ModelOutput]) -> Floats:
        probabilities, beyond = distributions(outputs, fitted.excess)
        return write_out_tail(fitted.prevalence.apply(probabilities, *evidence), beyond)

    counts, together = np.arange(fitted.config.max_objects + TAIL), with_tail(averaged)
    mean = together @ counts
    variance = together @ counts**2 - mean**2
    of_members = [with_tail([output]) @ counts for output in members]
    return np.stack((mean, variance, np.ones_like(mean), *of_members), axis=1), together[:, 0]


def distributions(outputs: Sequence[ModelOutput], excess: float) -> tuple[Floats, Floats]:
    """Return the mean distribution of outputs ``[P, K + 1]``, and the mean count beyond K of larger counts ``[P]``."""
    probabilities = np.sum([output.logits.double().softmax(-1).numpy() / len(outputs) for output in outputs], axis=0)
    expected = np.sum([output.expected.double().numpy() / len(outputs) for output in outputs], axis=0)
    return probabilities, excess + np.maximum(expected - (probabilities.shape[1] - 1), 0)


def infer(model: CountModel, inputs: ModelInputs, chosen: Tensor | None = None) -> ModelOutput:
    """Run a model on all pairs, or on those that are chosen, in groups of similar size and without gradients."""
    sizes = inputs.sizes
    chosen = torch.arange(len(sizes)) if chosen is None else chosen
    logits = torch.empty(len(chosen), model.config.max_objects + 1)
    expected = torch.empty(len(chosen))
    order = sizes[chosen].argsort(stable=True)
    model.eval()
    with torch.no_grad(), single_threaded_torch():
        for rows in order.split(512):
            if len(rows):
                logits[rows], expected[rows] = model(inputs.at(chosen[rows]))
    return ModelOutput(logits, expected)
