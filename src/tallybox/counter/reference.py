"""The paper's counting component, one small function an equation, in plain PyTorch.

Any floating dtype, any device. Inside this file every quantity of an image is a matrix, so that a
row of `knots` (the eight activations, see `Activations`) applies to each of them:

    a attention [..., n, 1]     A relevance, D distance, Sim, C [..., n, n]     c count [..., 1, 1]

Leading dimensions broadcast throughout. Equation numbers are the paper's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from tallybox.activation import activation_knots, interpolate_knots
from tallybox.boxes import box_iou

# Under the square root, as in the published code: keeps its slope finite where nothing is counted.
EDGE_FLOOR = 1e-20


# f1 ... f8: the rows of a weight [8, segments], in the order of `Activations`.
RELEVANCE_EDGE, DISTANCE_EDGE, SIMILARITY, RELEVANCE_ROW, DISTANCE_ROW = range(5)
ATTENTION_CONFIDENCE, DISTANCE_CONFIDENCE, CONFIDENCE = range(5, 8)


class Activations(NamedTuple):
    """The paper's f1 ... f8 by role: factors of an edge, of a row to compare, and of the confidence."""

    relevance_edge: Callable[[Tensor], Tensor]  # f1
    distance_edge: Callable[[Tensor], Tensor]  # f2
    similarity: Callable[[Tensor], Tensor]  # f3
    relevance_row: Callable[[Tensor], Tensor]  # f4
    distance_row: Callable[[Tensor], Tensor]  # f5
    attention_confidence: Callable[[Tensor], Tensor]  # f6
    distance_confidence: Callable[[Tensor], Tensor]  # f7
    confidence: Callable[[Tensor], Tensor]  # f8

    @classmethod
    def from_weight(cls, weight: Tensor) -> "Activations":
        """Build the eight functions from ``weight [..., 8, segments]``."""
        knots = activation_knots(weight)[..., None, None, :, :]  # [..., 1, 1, 8, segments + 1]
        return cls(*(partial(interpolate_knots, knots=knots[..., role, :]) for role in range(8)))


@dataclass(frozen=True, eq=False)
class Quantities:
    """What `count_quantities` computes; shapes as in the file's docstring."""

    relevance: Tensor
    deduplicated: Tensor
    similarity: Tensor
    scale: Tensor
    count_matrix: Tensor
    count: Tensor
    confidence: Tensor
    features: Tensor  # [..., max_objects + 1]


def relevance_matrix(attention: Tensor) -> Tensor:
    """A = a aᵀ (eq. 1)."""
    return attention * attention.mT


def proposal_distance(boxes: Tensor, mask: Tensor | None) -> Tensor:
    """D = 1 - IoU (eq. 2), exactly 0 for a box with itself: ``[..., n, 4]`` to ``[..., n, n]``, 0 where masked."""
    distance = 1 - box_iou(boxes, boxes)
    return distance if mask is None else torch.where(mask.unsqueeze(-1) & mask.unsqueeze(-2), distance, 0)


def deduplicated_edges(relevance: Tensor, distance: Tensor, f: Activations) -> Tensor:
    """Ã = f1(A) ⊙ f2(D): no edges within an object (eq. 3)."""
    return f.relevance_edge(relevance) * f.distance_edge(distance)


def compared_rows(relevance: Tensor, distance: Tensor, f: Activations) -> Tensor:
    """X = f4(A) ⊙ f5(D): proposals of one object have equal rows."""
    return f.relevance_row(relevance) * f.distance_row(distance)


def proposal_similarity(attention: Tensor, rows: Tensor, f: Activations) -> Tensor:
    """Sim_ij = f3(1 - |a_i - a_j|) ∏_k f3(1 - |X_ik - X_jk|) (eq. 4)."""
    difference = (rows.unsqueeze(-2) - rows.unsqueeze(-3)).abs()  # [..., i, j, k]
    # One dimension more than everywhere else: flatten (j, k), so that the activations still apply.
    row_similarity: Tensor = f.similarity(1 - difference.flatten(-2)).unflatten(-1, difference.shape[-2:])
    return f.similarity(1 - (attention - attention.mT).abs()) * row_similarity.prod(-1)


def proposal_scale(similarity: Tensor, real: Tensor | None) -> Tensor:
    """s_i = 1 / Σ_j Sim_ij (eq. 5): one over the number of proposals of the same object."""
    if real is None:
        return 1 / similarity.sum(-1, keepdim=True)
    pair_is_real = real & real.mT
    similarity_sum = torch.where(pair_is_real, similarity, 0).sum(-1, keepdim=True)
    return torch.where(real, 1 / torch.where(real, similarity_sum, 1), 0)


def count_matrix(deduplicated: Tensor, attention: Tensor, scale: Tensor, f: Activations) -> Tensor:
    """C = Ã ⊙ s sᵀ + diag(s ⊙ f1(a ⊙ a)): scaled edges with self-loops put back (eq. 6)."""
    self_loops = scale * f.relevance_edge(attention * attention)
    return deduplicated * (scale * scale.mT) + torch.diag_embed(self_loops.squeeze(-1))


def count_of_edges(matrix: Tensor, max_objects: int) -> Tensor:
    """c = √|E|, |E| = Σ C_ij (eq. 7)."""
    edges = matrix.sum((-2, -1), keepdim=True)
    return (edges + EDGE_FLOOR).sqrt().clamp(0, max_objects)


def count_one_hot(count: Tensor, max_objects: int) -> Tensor:
    """o_i = max(0, 1 - |c - i|) (eq. 8): ``[..., 1]`` to ``[..., max_objects + 1]``.

    Written as an interpolation between two one-hot vectors: the same values, and where c is a whole
    number below max_objects the slope is the one to its right instead of none. NaN gives NaN everywhere.
    """
    lower = count.detach().floor()
    upper_share = count - lower
    classes = torch.arange(max_objects + 1, device=count.device)
    at_lower = torch.where(classes == lower, 1 - upper_share, 0)
    one_hot = at_lower + torch.where(classes == (lower + 1).clamp(max=max_objects), upper_share, 0)
    return torch.where(count.isnan(), count, one_hot)


def count_confidence(attention: Tensor, distance: Tensor, real: Tensor | None, f: Activations) -> Tensor:
    """f8(p_a + p_D), the mean distances of f6(a) and f7(D) from one half (eq. 9-11).

    Means are over real proposals. An image without any is as certain as one whose every weight is 0.
    """
    from_attention = _mean_over((f.attention_confidence(attention) - 0.5).abs(), real)
    pair_is_real = None if real is None else real & real.mT
    from_distance = _mean_over((f.distance_confidence(distance) - 0.5).abs(), pair_is_real)
    return f.confidence(from_attention + from_distance)


def _mean_over(certainty: Tensor, real: Tensor | None) -> Tensor:
    if real is None:
        if certainty.shape[-2] == 0:
            return certainty.new_full((*certainty.shape[:-2], 1, 1), 0.5)
        return certainty.mean((-2, -1), keepdim=True)
    number = real.sum((-2, -1), keepdim=True)
    total = torch.where(real, certainty, 0).sum((-2, -1), keepdim=True)
    return torch.where(number > 0, total / number.clamp(min=1), 0.5)


def count_quantities(
    attention: Tensor, distance: Tensor, weight: Tensor, mask: Tensor | None, max_objects: int
) -> Quantities:
    """Compute everything from ``attention [..., n]``, ``distance [..., n, n]``, ``weight [..., 8, segments]``.

    ``mask [..., n]`` marks the real proposals (None: all); the attention of the others must be 0.
    """
    f = Activations.from_weight(weight)
    attention = attention.unsqueeze(-1)
    real = None if mask is None else mask.unsqueeze(-1)
    relevance = relevance_matrix(attention)
    deduplicated = deduplicated_edges(relevance, distance, f)
    similarity = proposal_similarity(attention, compared_rows(relevance, distance, f), f)
    scale = proposal_scale(similarity, real)
    matrix = count_matrix(deduplicated, attention, scale, f)
    count = count_of_edges(matrix, max_objects)
    confidence = count_confidence(attention, distance, real, f)
    features = count_one_hot(count.squeeze(-1), max_objects) * confidence.squeeze(-1)
    return Quantities(relevance, deduplicated, similarity, scale, matrix, count, confidence, features)
