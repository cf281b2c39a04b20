"""The weights of presence counting, and the functions that they define.

Legend: S segments of a function of one number, E cells each way of a function of two.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from tallybox.activation import activation_knots

CELLS = 8  # each way of the functions of two numbers: of an overlap and of a score
LOGIT_LIMIT = 14.0  # logits are clamped to this: scores of 0 and 1 have none
SMALLEST_SCORE = 1 / (1 + math.exp(LOGIT_LIMIT + 1))  # below the limit, with a finite logit
LOG_FLOOR = 1e-6  # added to a probability under the logarithm
LOGIT_BEND = 2.0  # knots are spread as evenly over the scores in the middle as over the logits further out than this

# Offsets in `PresenceFunctions.table`: four numbers, κ and η at their (E + 1)² knots by overlap first, and from
# CALIBRATION on, S + 1 numbers each, φ at its knots, τ at its knots and the scores at which φ's segments meet.
SLOPE, SHIFT, SHARPNESS, STEP, EVIDENCE = range(5)
OVERLAP = EVIDENCE + (CELLS + 1) ** 2
CALIBRATION = OVERLAP + (CELLS + 1) ** 2


def segments_of_table(table_size: int) -> int:
    """Return S from T, the length of `PresenceFunctions.table`."""
    return (table_size - CALIBRATION) // 3 - 1


def table_size(segments: int) -> int:
    """Return T, the length of `PresenceFunctions.table`."""
    return CALIBRATION + 3 * (segments + 1)


class PresenceWeights(NamedTuple):
    """The learned numbers of one presence counter, or of many: leading dimensions are free and broadcast."""

    slope: Tensor  # α [...]
    shift: Tensor  # β [...]
    calibration: Tensor  # φ [..., S]: how much it rises in each segment
    evidence: Tensor  # κ [..., E, E + 1]: its values at overlaps 1/E ... 1 and scores 0 ... 1
    overlap: Tensor  # η [..., E, E + 1]: how much it rises in each cell, and (the first column) for every score
    headroom: Tensor  # [...]: how far η's ceiling is below 1, in rises of a cell
    order: Tensor  # τ [..., S]: how much it rises in each segment
    step: Tensor  # [...]: how much τ rises at equal scores, where the order of boxes decides
    sharpness: Tensor  # γ [...]


def initial_weights(heads: int, segments: int) -> PresenceWeights:
    """Return weights ``[heads, ...]`` of a greedy count, in proportion to the overlap.

    A score is its own presence, a neighbour is no evidence, and a box suppresses boxes of lower score by its IoU
    with them. Several heads start with different shifts of the score, so that they do not learn the same.
    """
    overlap = torch.zeros(heads, CELLS, CELLS + 1)
    overlap[..., 0] = 1
    return PresenceWeights(
        slope=torch.ones(heads),
        shift=torch.linspace(-1, 1, heads) if heads > 1 else torch.zeros(1),
        calibration=calibration_edges(segments, torch.zeros(())).diff().mul(segments).repeat(heads, 1),
        evidence=torch.zeros(heads, CELLS, CELLS + 1),
        overlap=overlap,
        headroom=torch.zeros(heads),
        order=torch.zeros(heads, segments),
        step=torch.ones(heads),
        sharpness=torch.ones(heads),
    )


def score_coordinate(logit: Tensor) -> Tensor:
    """Return where a score lies among the knots, in [0, 1]; scores near 0 and near 1 are spread out.

    >>> score_coordinate(torch.tensor([0.001, 0.01, 0.1, 0.5, 0.9]).logit())
    tensor([0.0569, 0.1019, 0.2009, 0.5000, 0.7991])
    """
    logit = logit.clamp(-LOGIT_LIMIT, LOGIT_LIMIT)
    return 0.5 + 0.5 * (1 + LOGIT_BEND / LOGIT_LIMIT) * logit / (logit.abs() + LOGIT_BEND)


def calibration_edges(segments: int, like: Tensor) -> Tensor:
    """Return the scores at which φ's segments meet, ``[segments + 1]`` from 0 to 1: even steps of the coordinate."""
    coordinate = torch.arange(1, segments, dtype=like.dtype, device=like.device) / segments
    bent = (2 * coordinate - 1) / (1 + LOGIT_BEND / LOGIT_LIMIT)
    inner = torch.sigmoid(LOGIT_BEND * bent / (1 - bent.abs()))
    return pad(pad(inner, (1, 0)), (0, 1), value=1)


class PresenceFunctions(NamedTuple):
    """The functions at their knots, as the equations use them."""

    slope: Tensor  # α [...]
    shift: Tensor  # β [...]
    sharpness: Tensor  # γ [...]
    step: Tensor  # [...] in [0, 1]
    calibration: Tensor  # φ [..., S + 1] from 0 to 1, at `calibration_edges`
    order: Tensor  # τ without its step, [..., S + 1] from 0 to 1 - step
    evidence: Tensor  # κ [..., E + 1, E + 1] by overlap and score, 0 where nothing overlaps
    overlap: Tensor  # η [..., E + 1, E + 1] by overlap and 1 - score, 0 where nothing overlaps

    @classmethod
    def of(cls, weights: PresenceWeights) -> "PresenceFunctions":
        """Make the functions: rises are taken without their sign and add up to 1."""
        share = _shares(weights.overlap.flatten(-2), weights.headroom).unflatten(-1, weights.overlap.shape[-2:])
        # All 0: the step alone.
        smooth = pad(_shares(weights.order, weights.step).cumsum(-1), (1, 0))
        return cls(
            slope=weights.slope,
            shift=weights.shift,
            sharpness=weights.sharpness,
            step=1 - smooth[..., -1],
            calibration=activation_knots(weights.calibration),
            order=smooth,
            evidence=pad(weights.evidence, (0, 0, 1, 0)),
            overlap=pad(share.cumsum(-1).cumsum(-2), (0, 0, 1, 0)).clamp(max=1),
        )

    def table(self) -> Tensor:
        """Return all functions as one row of numbers ``[..., T]``, as the fused kernels read them."""
        numbers = torch.stack((self.slope, self.shift, self.sharpness, self.step), dim=-1)
        edges = calibration_edges(self.calibration.shape[-1] - 1, self.calibration).expand_as(self.calibration)
        matrices = (self.evidence.flatten(-2), self.overlap.flatten(-2))
        return torch.cat((numbers, *matrices, self.calibration, self.order, edges), dim=-1)


def _shares(rises: Tensor, rest: Tensor) -> Tensor:
    """Return the share of each of ``[..., n]`` in the sum of all and ``rest [...]``, signs aside; 0 of nothing."""
    weights = torch.cat((rises, rest.unsqueeze(-1)), dim=-1)
    sizes = torch.where(weights < 0, -weights, weights)  # its slope at 0 is 1: what starts at 0 can grow
    largest = sizes.detach().amax(-1, keepdim=True)
    all_zero = largest == 0
    # Dividing by the largest first keeps the sum finite.
    sizes = sizes / torch.where(all_zero, 1, largest)
    return sizes[..., :-1] / torch.where(all_zero, 1, sizes.sum(-1, keepdim=True))
