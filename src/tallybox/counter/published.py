"""A one-line swap for the published counting module: same call, same numbers, same checkpoints.

`tallybox.compat` is this module. The published module allocates 16 activations and uses 8, by number; entry 0 of each
17-long weight is a fixed zero, which some copies of the module leave out. Its other quirks are kept here and only here:
the absolute 1e-12 in the IoU (so a box without area is distant from itself, and units matter), no mask, an error for
fewer proposals than objects, and unchecked values (some users pad with logits of minus infinity).
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tallybox.activation import piecewise_linear
from tallybox.boxes import box_area, box_intersection
from tallybox.checks import check_count, check_floating, check_proposal_shapes, is_transformed
from tallybox.counter.functional import count_results
from tallybox.counter.reference import Activations, Quantities, count_one_hot, count_quantities, proposal_similarity
from tallybox.errors import InputError
from tallybox.kernels.proposals import Proposals, prepare_proposals

__all__ = ["Counter", "PiecewiseLin"]

PUBLISHED_UNION_FLOOR = 1e-12
# With areas from here on the floor moves no IoU by more than 1e-7, the precision of float32.
MIN_AREA_FOR_FUSED = 1e-5
USED_ACTIVATIONS = 8
ALLOCATED_ACTIVATIONS = 16


def published_key(activation: int) -> str:
    """Return the published name of an activation's weight; number k is the paper's f(k + 1)."""
    return f"f.{activation}.weight"


def read_published_weight(state_dict: Mapping[str, Tensor]) -> Tensor:
    """Return the eight activations of the one counter in a checkpoint, ``[8, segments]``."""
    first = published_key(0)
    prefixes = [key.removesuffix(first) for key in state_dict if key == first or key.endswith("." + first)]
    if len(prefixes) != 1:
        found = ", ".join(map(repr, prefixes)) or "none"
        raise InputError(
            f"state_dict must hold one published counter ({first} and more, after any prefix), but got {found}; "
            "pass the counter's part alone"
        )
    rows = []
    for activation in range(USED_ACTIVATIONS):
        key = prefixes[0] + published_key(activation)
        if key not in state_dict:
            raise InputError(f"state_dict must hold {key}, but it is missing; the checkpoint is incomplete")
        rows.append(drop_fixed_zero(key, state_dict[key]))
    return torch.stack(rows)


def drop_fixed_zero(key: str, weight: Tensor) -> Tensor:
    """Return the segments' weights alone, ``[segments]``, of a 17 or 16 long published weight."""
    if weight.dim() != 1 or len(weight) not in (16, 17):
        raise InputError(f"{key} must have 16 or 17 entries, but got shape {list(weight.shape)}")
    if len(weight) == 16:
        return weight
    if weight[0] != 0:
        raise InputError(
            f"{key} must start with the fixed zero of the published module, but got {weight[0].item()}; "
            "this checkpoint was not made by it"
        )
    return weight[1:]


class PiecewiseLin(nn.Module):
    """One activation in the published layout: a fixed zero, then ``n`` segments.

    The published module allocates activations that it never uses. Here they are buffers, so that checkpoints keep their
    keys and no parameter is left without a gradient.
    """

    def __init__(self, n: int = 16, *, used: bool = True) -> None:
        super().__init__()
        self.n = n
        weight = torch.ones(n + 1)
        weight[0] = 0
        if used:
            self.weight = nn.Parameter(weight)
        else:
            self.register_buffer("weight", weight)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the function elementwise."""
        return piecewise_linear(x, self.weight[1:])


class Counter(nn.Module):
    """The published module's interface: ``forward(boxes [B, 4, N], attention [B, N]) -> [B, objects + 1]``.

    It runs on the fused backends in float32 if every box that takes part has an area of at least 1e-5. Smaller boxes
    (padding, for example), float64 and compiled calls take the reference, where the published 1e-12 shows.

    >>> boxes = torch.tensor([[[0.0, 2.0], [0.0, 2.0], [1.0, 3.0], [1.0, 3.0]]])
    >>> Counter(2, already_sigmoided=True)(boxes, torch.ones(1, 2)).round(decimals=4)
    tensor([[0., 0., 1.]], grad_fn=<RoundBackward1>)
    """

    def __init__(self, objects: int, already_sigmoided: bool = False) -> None:
        super().__init__()
        check_count("objects", objects)
        self.objects = objects
        self.already_sigmoided = already_sigmoided
        self.f = nn.ModuleList(PiecewiseLin(used=k < USED_ACTIVATIONS) for k in range(ALLOCATED_ACTIVATIONS))

    @property
    def weight(self) -> Tensor:
        """The eight activations that are used, ``[8, 16]``."""
        return torch.stack([self.get_parameter(published_key(k))[1:] for k in range(USED_ACTIVATIONS)])

    def forward(self, boxes: Tensor, attention: Tensor) -> Tensor:
        """Return features ``[B, objects + 1]`` from ``boxes [B, 4, N]`` and ``attention [B, N]``."""
        check_floating("boxes", boxes)
        check_floating("attention", attention)
        if boxes.dim() != 3 or boxes.shape[1] != 4 or attention.dim() != 2:
            raise InputError(
                "boxes and attention must have shapes [B, 4, N] and [B, N], "
                f"but got {list(boxes.shape)} and {list(attention.shape)}"
            )
        if attention.shape[1] < self.objects:
            raise InputError(
                f"attention must have at least objects={self.objects} proposals, but got {attention.shape[1]}; "
                "tallybox.Counter takes fewer"
            )
        check_proposal_shapes(attention, boxes.mT, None, None, weight_leading=torch.Size())
        logits = not self.already_sigmoided
        return published_features(attention, boxes.mT, self.weight, max_objects=self.objects, logits=logits)

    def to_one_hot(self, scores: Tensor) -> Tensor:
        """Turn numbers ``[B, 1]`` into ``[B, objects + 1]``, linear between whole numbers."""
        return count_one_hot(scores.clamp(0, self.objects), self.objects)

    def iou(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the IoU of every pair, ``[B, 4, N]`` and ``[B, 4, M]`` to ``[B, N, M]``."""
        return published_iou(a.mT, b.mT)

    def deduplicate(self, dedup_score: Tensor, att: Tensor) -> tuple[Tensor, Tensor]:
        """Return how many proposals each pair ``[B, n, n]`` and each proposal ``[B, n]`` stand for."""
        similarity = proposal_similarity(att.unsqueeze(-1), dedup_score.mT, Activations.from_weight(self.weight))
        of_proposal = similarity.sum(-1)
        return of_proposal.unsqueeze(-1) * of_proposal.unsqueeze(-2), of_proposal

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Bring a checkpoint to this layout: no data-parallel prefix, 17 entries, unused activations filled in."""
        for activation in range(ALLOCATED_ACTIVATIONS):
            own_key = published_key(activation)
            key = prefix + own_key
            if "module." + key in state_dict:
                state_dict[key] = state_dict.pop("module." + key)
            if key in state_dict:
                state_dict[key] = nn.functional.pad(drop_fixed_zero(key, state_dict[key]), (1, 0))
            elif activation >= USED_ACTIVATIONS:
                state_dict[key] = self.get_buffer(own_key)
        super()._load_from_state_dict(state_dict, prefix, *args)


def published_iou(boxes_a: Tensor, boxes_b: Tensor) -> Tensor:
    """Return the published IoU of every pair, ``[..., N, 4]``, ``[..., M, 4]`` to ``[..., N, M]``."""
    intersection = box_intersection(boxes_a, boxes_b)
    union = box_area(boxes_a).unsqueeze(-1) + box_area(boxes_b).unsqueeze(-2) - intersection
    return intersection / (union + PUBLISHED_UNION_FLOOR)


def published_features(attention: Tensor, boxes: Tensor, weight: Tensor, *, max_objects: int, logits: bool) -> Tensor:
    """Count as published, fused if that makes no difference: features ``[..., max_objects + 1]``."""
    kept = prepare_proposals(attention, boxes, None, max_objects=max_objects, logits=logits)
    if kept.attention.dtype == torch.float32 and not torch.compiler.is_compiling() and not is_transformed(*kept):
        assert kept.boxes is not None
        if bool((box_area(kept.boxes.detach()) >= MIN_AREA_FOR_FUSED).all()):
            return count_results(kept, weight, max_objects, "auto").features
    return _quantities(kept, weight, max_objects)[-1].features


def published_quantities(
    attention: Tensor, boxes: Tensor, weight: Tensor, *, max_objects: int, logits: bool
) -> tuple[Proposals, Tensor, Quantities]:
    """Count as published, from ``attention [..., N]``, ``boxes [..., N, 4]`` and ``weight [8, segments]``.

    Returns the kept proposals, their distances ``[..., n, n]``, and the rest.
    """
    kept = prepare_proposals(attention, boxes, None, max_objects=max_objects, logits=logits)
    return kept, *_quantities(kept, weight, max_objects)


def _quantities(kept: Proposals, weight: Tensor, max_objects: int) -> tuple[Tensor, Quantities]:
    assert kept.boxes is not None
    distance = 1 - published_iou(kept.boxes, kept.boxes)
    return distance, count_quantities(kept.attention, distance, weight.to(distance.dtype), None, max_objects)
