"""A one-line swap for the published counting module: same call, same numbers, same checkpoints.

Its quirks are kept here and only here: the absolute 1e-12 in the IoU (so a box without area is distant from itself, and
units matter), no mask, an error for fewer proposals than objects, and values taken as they come (some users pad with
logits of minus infinity).
"""

from typing import Any

import torch
from torch import Tensor, nn

from tallybox.boxes import box_area, box_intersection
from tallybox.checks import check_count, check_floating, check_proposal_shapes
from tallybox.counter.published import ALLOCATED_ACTIVATIONS, USED_ACTIVATIONS, drop_fixed_zero, published_key
from tallybox.counter.reference import Quantities, count_quantities
from tallybox.errors import InputError
from tallybox.kernels.proposals import Proposals, prepare_proposals

PUBLISHED_UNION_FLOOR = 1e-12
SEGMENTS = 16


class PublishedActivation(nn.Module):
    """One activation in the published layout: a fixed zero, then 16 segments.

    The published module allocates activations that it never uses. Here they are buffers, so that checkpoints keep their
    keys and no parameter is left without a gradient.
    """

    def __init__(self, *, used: bool) -> None:
        super().__init__()
        weight = torch.ones(SEGMENTS + 1)
        weight[0] = 0
        if used:
            self.weight = nn.Parameter(weight)
        else:
            self.register_buffer("weight", weight)


class Counter(nn.Module):
    """The published module's interface: ``forward(boxes [B, 4, N], attention [B, N]) -> [B, objects + 1]``.

    >>> boxes = torch.tensor([[[0.0, 2.0], [0.0, 2.0], [1.0, 3.0], [1.0, 3.0]]])
    >>> Counter(2, already_sigmoided=True)(boxes, torch.ones(1, 2)).round(decimals=4)
    tensor([[0., 0., 1.]], grad_fn=<RoundBackward1>)
    """

    def __init__(self, objects: int, already_sigmoided: bool = False) -> None:
        super().__init__()
        check_count("objects", objects)
        self.objects = objects
        self.already_sigmoided = already_sigmoided
        self.f = nn.ModuleList(PublishedActivation(used=k < USED_ACTIVATIONS) for k in range(ALLOCATED_ACTIVATIONS))

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
        boxes_xyxy = boxes.mT
        check_proposal_shapes(attention, boxes_xyxy, None, weight_leading=torch.Size())
        weight = torch.stack([self.get_parameter(published_key(k))[1:] for k in range(USED_ACTIVATIONS)])
        logits = not self.already_sigmoided
        found = published_quantities(attention, boxes_xyxy, weight, max_objects=self.objects, logits=logits)
        return found[-1].features

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


def published_quantities(
    attention: Tensor, boxes: Tensor, weight: Tensor, *, max_objects: int, logits: bool
) -> tuple[Proposals, Tensor, Quantities]:
    """Count as published, from ``attention [..., N]``, ``boxes [..., N, 4]`` and ``weight [8, segments]``.

    Returns the proposals that are kept, their distances ``[..., n, n]``, and the rest.
    """
    kept = prepare_proposals(attention, boxes, None, max_objects=max_objects, logits=logits)
    intersection, area = box_intersection(kept.boxes, kept.boxes), box_area(kept.boxes)
    union = area.unsqueeze(-1) + area.unsqueeze(-2) - intersection + PUBLISHED_UNION_FLOOR
    distance = 1 - intersection / union
    return kept, distance, count_quantities(kept.attention, distance, weight.to(distance.dtype), None, max_objects)
