"""`Counter`: the counting component as a layer."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from tallybox.checks import check_count
from tallybox.counter.functional import Result, checked_proposals, count_result, count_trace
from tallybox.counter.published import read_published_weight
from tallybox.counter.trace import CountTrace
from tallybox.kernels.dispatch import Backend, check_backend
from tallybox.kernels.proposals import for_every_head


class Counter(nn.Module):
    """Count objects from attention weights and overlapping boxes, differentiably (paper, section 4).

    ``heads=1`` is the paper; with more, each head has its own eight activations over the same proposals.
    ``logits=True`` applies a logistic to the attention first.

    >>> counter = Counter(max_objects=3)
    >>> attention = torch.tensor([1.0, 1.0, 1.0])
    >>> boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0], [2.0, 2.0, 3.0, 3.0]])
    >>> counter(attention, boxes).shape, round(counter.count(attention, boxes).item(), 4)
    (torch.Size([4]), 2.0)
    """

    def __init__(
        self,
        max_objects: int = 10,
        *,
        heads: int = 1,
        segments: int = 16,
        logits: bool = False,
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        for name, value in (("max_objects", max_objects), ("heads", heads), ("segments", segments)):
            check_count(name, value)
        check_backend(backend)
        self.max_objects = max_objects
        self.logits = logits
        self.backend: Backend = backend
        self.weight = nn.Parameter(torch.ones(heads, 8, segments))

    def forward(self, attention: Tensor, boxes: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return features ``[..., heads * (max_objects + 1)]``.

        ``attention [..., N]``, ``boxes [..., N, 4]`` corners, ``mask [..., N]`` True for a real proposal.
        """
        features = self._result(attention, boxes, mask, "features")
        return features if len(self.weight) == 1 else features.flatten(-2)

    def count(self, attention: Tensor, boxes: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the scalar c of the paper: ``[...]``, or ``[..., heads]`` with several heads."""
        return self._result(attention, boxes, mask, "count")

    def explain(self, attention: Tensor, boxes: Tensor, mask: Tensor | None = None) -> CountTrace:
        """Return every intermediate quantity of one call."""
        return count_trace(attention, boxes, mask, self.weight, max_objects=self.max_objects, logits=self.logits)

    def _result(self, attention: Tensor, boxes: Tensor, mask: Tensor | None, result: Result) -> Tensor:
        """Return count or features, with a dimension for the heads where there are several."""
        proposals = checked_proposals(attention, boxes, mask, max_objects=self.max_objects, logits=self.logits)
        if len(self.weight) > 1:
            return count_result(for_every_head(proposals), self.weight, self.max_objects, self.backend, result)
        results = count_result(proposals, self.weight, self.max_objects, self.backend, result)
        # A single head broadcasts along the leading dimensions; where there are none, it adds one.
        alone = attention.dim() == 1 and boxes.dim() == 2 and (mask is None or mask.dim() == 1)
        return results.squeeze(0) if alone else results

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

    def extra_repr(self) -> str:
        heads, _, segments = self.weight.shape
        return (
            f"max_objects={self.max_objects}, heads={heads}, segments={segments}, "
            f"logits={self.logits}, backend={self.backend!r}"
        )
