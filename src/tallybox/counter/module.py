"""`Counter`: the counting component as a layer."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from tallybox.counter.functional import CountResults, count_results, count_trace
from tallybox.counter.published import read_published_weight
from tallybox.counter.trace import CountTrace
from tallybox.kernels.dispatch import Backend
from tallybox.kernels.layer import CountingLayer
from tallybox.kernels.proposals import Proposals


class Counter(CountingLayer[CountTrace]):
    """Count objects from attention weights and overlapping boxes, differentiably (paper, section 4).

    A call returns features ``[..., heads * (max_objects + 1)]``; `count` returns the scalar c of the paper.
    ``heads=1`` is the paper; with more, each head has its own eight activations over the same proposals.
    ``logits=True`` applies a logistic to the attention first.

    >>> counter = Counter(max_objects=3)
    >>> attention = torch.tensor([1.0, 1.0, 1.0])
    >>> boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0], [2.0, 2.0, 3.0, 3.0]])
    >>> counter(attention, boxes).shape, round(counter.count(attention, boxes).item(), 4)
    (torch.Size([4]), 2.0)
    """

    keeps_all = False
    weight: nn.Parameter  # [heads, 8, segments]

    @classmethod
    def from_published(
        cls, state_dict: Mapping[str, Tensor], max_objects: int, *, logits: bool = False, backend: Backend = "auto"
    ) -> "Counter":
        """Convert a checkpoint of the published module, alone or inside a larger model's.

        The published module applies a logistic unless built with ``already_sigmoided=True``: pass ``logits=True`` for
        such a model.
        """
        weight = read_published_weight(state_dict)
        counter = cls(max_objects, segments=weight.shape[-1], logits=logits, backend=backend)
        counter.to(weight.dtype).load_state_dict({"weight": weight.unsqueeze(0)})
        return counter

    def _initial_parameters(self) -> dict[str, Tensor]:
        """Return activations that are the identity; those of several heads are slightly bent."""
        weight = torch.ones(self.heads, 8, self.segments)
        if self.heads > 1:
            # transformers replaces torch.linspace, which then ignores the device that is the default.
            bend = torch.linspace(-0.1, 0.1, self.heads, device=weight.device)
            weight = weight + bend[:, None, None] * torch.linspace(-1, 1, self.segments, device=weight.device)
        return {"weight": weight}

    def _compute(self, proposals: Proposals) -> CountResults:
        return count_results(proposals, self.weight, self.max_objects, self.backend)

    def _trace(self, proposals: Proposals) -> CountTrace:
        return count_trace(proposals, self.weight, self.max_objects)
