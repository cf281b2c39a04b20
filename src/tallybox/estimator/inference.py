"""Inference: distributions of counts from the boxes of images and a fitted estimator.

Legend: M members, P pairs of an image and a category, K ``max_objects``.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from tallybox.detections.detections import Detections
from tallybox.detections.labels import Pairs
from tallybox.estimator.fitted import Fitted
from tallybox.estimator.inputs import PAIRS_PER_BATCH, ModelInputs, model_inputs
from tallybox.estimator.model import CountEnsemble, ModelOutput
from tallybox.estimator.prediction import Floats, PredictionArrays, mean_of, second_moment_of, summarise

CPU = torch.device("cpu")
Prior = Literal["population", "evaluation_pairs"]


def infer(ensemble: CountEnsemble, inputs: ModelInputs, rows: Tensor | None = None) -> ModelOutput:
    """Run the members on all pairs, or on those of ``rows [R]``, or each on its own of ``rows [M, R]``."""
    ensemble.eval()
    device = ensemble.count_shifts.device
    rows = torch.arange(len(inputs.scores)) if rows is None else rows
    rows = rows.expand(1, -1) if rows.dim() == 1 else rows
    order = inputs.sizes[rows].argsort(dim=-1, stable=True)  # pairs of similar size need less padding
    with torch.no_grad():
        batches = order.split(PAIRS_PER_BATCH, 1)
        parts = [ensemble(inputs.at(rows.gather(1, columns)).to(device)) for columns in batches]
    members = torch.arange(ensemble.members).unsqueeze(1)
    back = order.argsort(-1)
    return ModelOutput(*(torch.cat(tensors, 1).cpu()[members, back] for tensors in zip(*parts, strict=True)))


@lru_cache(maxsize=4)
def _placed(ensemble: CountEnsemble, device: torch.device) -> CountEnsemble:
    return deepcopy(ensemble).to(device)


@dataclass(frozen=True)
class Inference:
    """Distributions of pairs: one call of the ensemble serves every prior, totals and explanations."""

    fitted: Fitted
    inputs: ModelInputs
    probabilities: Floats  # [P, K + 1], as among the pairs that `fit` is trained on
    tail_mean: Floats  # [P]: the mean count beyond K of larger counts
    members: Floats  # [M, P, K + 1]: the distributions of the members

    def predictions(self, prior: Prior) -> PredictionArrays:
        """Return counts and intervals: for every category of every photo, or for the pairs that `fit` is trained on."""
        probabilities, levels = self.probabilities, self.fitted.interval_levels
        if prior == "population":
            probabilities, levels = self.population(), self.fitted.interval_levels_listed
        arrays = summarise(probabilities, self.tail_mean, levels)
        return arrays._replace(saturated=arrays.saturated | self.inputs.truncated.numpy())

    def population(self) -> Floats:
        """Return the distributions over every category of every photo, ``[P, K + 1]``."""
        return self.fitted.prevalence.apply(self.probabilities, *self.inputs.evidence())

    def moments(self) -> Floats:
        """Return moments, which add up to those of a total, ``[P, 3 + M]``: mean, variance, 1, means of the members."""
        together = self.population()
        mean = mean_of(together, self.tail_mean)
        variance = second_moment_of(together, self.tail_mean) - mean**2
        of_members = mean_of(self.fitted.prevalence.apply(self.members, *self.inputs.evidence()), self.tail_mean)
        return np.column_stack((mean, variance, np.ones_like(mean), *of_members))


def infer_pairs(fitted: Fitted, images: Sequence[Detections], pairs: Pairs, device: torch.device = CPU) -> Inference:
    """Run an estimator once on pairs of images and categories."""
    inputs = model_inputs(images, pairs, fitted.config, fitted.category_ids)
    output = infer(fitted.ensemble if device == CPU else _placed(fitted.ensemble, device), inputs)
    members = output.logits.double().softmax(-1).numpy()
    expected = output.expected.double().mean(0).numpy()
    if fitted.nms is not None:
        share, counts = fitted.nms_share, inputs.nms_counts.numpy()
        members = share * fitted.nms.probabilities(counts) + (1 - share) * members
        expected = share * fitted.nms.expected(counts) + (1 - share) * expected
    tail_mean = fitted.tail_mean + np.maximum(expected - fitted.config.max_objects, 0)
    return Inference(fitted, inputs, members.mean(0), tail_mean, members)
