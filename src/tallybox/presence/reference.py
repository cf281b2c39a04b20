"""Presence counting, one small function an equation, in plain PyTorch. Any floating dtype, any device.

    L logit [..., N]     s suppression [..., N, N]     p presence [..., N]     P distribution [..., K + 1]

Leading dimensions broadcast, those of the functions included. docs/understand/presence.md derives the equations.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from tallybox.presence.weights import (
    LOG_FLOOR,
    LOGIT_LIMIT,
    SMALLEST_SCORE,
    PresenceFunctions,
    calibration_edges,
    score_coordinate,
)

# Rounds from p⁰ towards the fixed point of the presences.
ROUNDS = 2


class PresenceQuantities(NamedTuple):
    """What `presence_quantities` computes."""

    evidence: Tensor  # κ_ij [..., N, N]: the evidence of j for i
    calibrated: Tensor  # p⁰ [..., N]
    suppression: Tensor  # s_ij [..., N, N]: how much j, if present, shows the object of i
    presence: Tensor  # p [..., N]
    distribution: Tensor  # P [..., K + 1]


def score_logit(attention: Tensor, *, logits: bool) -> Tensor:
    """L, within its limits; beyond them its slope is 0."""
    if not logits:
        attention = attention.logit(SMALLEST_SCORE)
    return attention.clamp(-LOGIT_LIMIT, LOGIT_LIMIT)


def precedes(logit: Tensor, boxes: Tensor | None) -> Tensor:
    """Whether j comes before i, ``[..., i, j]``: a total order of proposals, by score, then by corners.

    Equal scores are ordered by x1, y1, x2, y2, and proposals equal in all of these by index, which changes no
    result because they are equal. So no result depends on the order of the boxes.
    """
    corners = () if boxes is None else boxes.detach().unbind(-1)
    logit = logit.detach()
    shape = torch.broadcast_shapes(logit.shape, *(corner.shape for corner in corners))
    before = torch.zeros(*shape, shape[-1], dtype=torch.bool, device=logit.device)
    equal = ~before
    for key in (-logit, *corners):
        of_i, of_j = key.unsqueeze(-1), key.unsqueeze(-2)
        before = before | (equal & (of_j < of_i))
        equal = equal & (of_j == of_i)
    index = torch.arange(shape[-1], device=logit.device)
    return before | (equal & (index < index.unsqueeze(-1)))


def interpolate(position: Tensor, knots: Tensor) -> Tensor:
    """Evaluate functions of one number at ``position [..., n]``, in segments; ``knots [..., S + 1]``."""
    # Bounds are kept in whole numbers, where NaN has become one: it shows in the result, not as a bad index.
    lower = position.detach().floor().long().clamp(0, knots.shape[-1] - 2)
    left, right = _ends(lower, knots)
    return left + (position - lower) * (right - left)


def _ends(lower: Tensor, knots: Tensor) -> tuple[Tensor, Tensor]:
    """Return what functions are at the knots ``lower [..., n]`` and at those behind them."""
    leading = torch.broadcast_shapes(lower.shape[:-1], knots.shape[:-1])
    knots = knots.expand(*leading, knots.shape[-1])
    lower = lower.expand(*leading, lower.shape[-1])
    return knots.gather(-1, lower), knots.gather(-1, lower + 1)


def at_scores(table: Tensor, coordinate: Tensor) -> Tensor:
    """Fix the second argument of a function of two, ``[..., E + 1, E + 1]``, at ``[..., N]``: ``[..., N, E + 1]``."""
    return interpolate(
        (coordinate * (table.shape[-1] - 1)).unsqueeze(-2),  # one function for each of the E + 1 overlaps
        table,
    ).mT


def at_overlaps(rows: Tensor, overlap: Tensor) -> Tensor:
    """Evaluate functions of the overlap, one for each i, ``[..., N, E + 1]``, at ``[..., i, j]``."""
    return interpolate(overlap * (rows.shape[-1] - 1), rows)


def neighbour_evidence(coordinate: Tensor, overlap: Tensor, f: PresenceFunctions) -> Tensor:
    """κ_ij = κ(IoU_ij, score_j)."""
    return at_overlaps(at_scores(f.evidence, coordinate), overlap).mT


def calibrated_score(logit: Tensor, evidence: Tensor, f: PresenceFunctions) -> Tensor:
    """p⁰_i = φ(σ(z_i)), z_i = α L_i + β + Σ_j κ_ij."""
    z = f.slope.unsqueeze(-1) * logit + f.shift.unsqueeze(-1) + evidence.sum(-1)
    segments = f.calibration.shape[-1] - 1
    edges = calibration_edges(segments, z)
    lower = (score_coordinate(z.detach()) * segments).floor().long().clamp(0, segments - 1)
    # Segments are found by their coordinate, but are straight in the score itself: φ can be the identity.
    start, end = edges[lower], edges[lower + 1]
    part = (z.sigmoid() - start) / (end - start)
    left, right = _ends(lower, f.calibration)
    return (left + part * (right - left)).clamp(0, 1)


def pair_order(logit: Tensor, before: Tensor, f: PresenceFunctions) -> Tensor:
    """τ_ij = τ(σ(γ (L_j - L_i))), and its step where j comes before i."""
    difference = logit.unsqueeze(-2) - logit.unsqueeze(-1)  # [..., i, j] = L_j - L_i
    lead = (f.sharpness[..., None, None] * difference).sigmoid()
    pairs = (lead * (f.order.shape[-1] - 1)).flatten(-2)
    smooth: Tensor = interpolate(pairs, f.order).unflatten(-1, lead.shape[-2:])
    return smooth + torch.where(before, f.step[..., None, None], 0)


def fixed_point(calibrated: Tensor, suppression: Tensor) -> Tensor:
    """p_i = p⁰_i ∏_j (1 - s_ij p_j), in rounds from p⁰."""
    presence = calibrated
    for _ in range(ROUNDS):
        presence = calibrated * (1 - suppression * presence.unsqueeze(-2)).prod(-1)
    return presence


def poisson_binomial(presence: Tensor, max_objects: int) -> Tensor:
    """Return how probable each count of independent presences is: ``[..., N]`` to ``[..., max_objects + 1]``.

    The last entry is the probability of ``max_objects`` or more. Counts of two groups add up, so groups are
    joined in pairs; every step adds products of probabilities, so nothing cancels.

    >>> poisson_binomial(torch.tensor([0.5, 0.5, 1.0]), 2)
    tensor([0.0000, 0.2500, 0.7500])
    """
    if presence.shape[-1] == 0:
        presence = presence.new_zeros(*presence.shape[:-1], 1)
    groups = torch.nn.functional.pad(torch.stack((1 - presence, presence), -1), (0, max_objects - 1))
    counts = torch.arange(max_objects + 1, device=presence.device)
    total = (counts.unsqueeze(-1) + counts).clamp(max=max_objects)
    joins = (total.unsqueeze(-1) == counts).flatten(0, 1).to(presence.dtype)
    with _full_precision(presence.device.type):
        while groups.shape[-2] > 1:
            pairs = groups.shape[-2] // 2
            first, second = groups[..., : 2 * pairs : 2, :], groups[..., 1 : 2 * pairs : 2, :]
            joined = (first.unsqueeze(-1) * second.unsqueeze(-2)).flatten(-2) @ joins
            groups = torch.cat((joined, groups[..., 2 * pairs :, :]), dim=-2)
    return groups.squeeze(-2)


def _full_precision(device_type: str) -> AbstractContextManager[object]:
    """Keep autocast from taking products of matrices in half precision."""
    return nullcontext() if device_type == "meta" else torch.autocast(device_type, enabled=False)


def count_features_of(presence: Tensor, distribution: Tensor) -> Tensor:
    """Log-probabilities of 0 ... max_objects, and the expected count: ``[..., max_objects + 2]``."""
    return torch.cat(((distribution + LOG_FLOOR).log(), presence.sum(-1, keepdim=True)), dim=-1)


def presence_quantities(
    logit: Tensor, overlap: Tensor, before: Tensor, mask: Tensor | None, f: PresenceFunctions, max_objects: int
) -> PresenceQuantities:
    """Compute everything from ``logit [..., N]``, ``overlap [..., N, N]`` = IoU and ``before [..., N, N]``.

    ``mask [..., N]`` marks the real proposals (None: all).
    """
    number = logit.shape[-1]
    is_pair = ~torch.eye(number, dtype=torch.bool, device=logit.device)
    if mask is not None:
        is_pair = is_pair & mask.unsqueeze(-1) & mask.unsqueeze(-2)
    coordinate = score_coordinate(logit)
    evidence = torch.where(is_pair, neighbour_evidence(coordinate, overlap, f), 0)
    calibrated = calibrated_score(logit, evidence, f)
    if mask is not None:
        calibrated = torch.where(mask, calibrated, 0)
    shared = at_overlaps(at_scores(f.overlap, 1 - coordinate), overlap)  # η(IoU_ij, 1 - score_i)
    suppression = torch.where(is_pair, shared * pair_order(logit, before, f), 0)
    presence = fixed_point(calibrated, suppression)
    return PresenceQuantities(evidence, calibrated, suppression, presence, poisson_binomial(presence, max_objects))
