"""`Counter`: the counting component as a layer."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from tallybox.checks import check_count
from tallybox.counter.functional import Result, count_result, count_trace
from tallybox.counter.published import read_published_weight
from tallybox.counter.trace import CountTrace
from tallybox.kernels.dispatch import Backend, check_backend
from tallybox.kernels.proposals import Proposals, checked_proposals


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
        self.weight = nn.Parameter(torch.empty(heads, 8, segments))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start every activation as the identity; several heads start slightly bent, so that they can differ."""
        heads, _, segments = self.weight.shape
        bend = torch.linspace(-0.1, 0.1, heads) if heads > 1 else torch.zeros(1)
        with torch.no_grad():
            self.weight.copy_(1 + bend[:, None, None] * torch.linspace(-1, 1, segments))

    def forward(
        self,
        attention: Tensor,
        boxes: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        distance: Tensor | None = None,
    ) -> Tensor:
        """Return features ``[..., heads * (max_objects + 1)]``.

        ``attention [..., N]``, ``boxes [..., N, 4]`` corners, ``mask [..., N]`` True for a real proposal. Instead of
        boxes, ``distance [..., N, N]`` in [0, 1] may say how dissimilar two proposals are.
        """
        features = self._result(self._proposals(attention, boxes, mask, distance), "features")
        return features if len(self.weight) == 1 else features.flatten(-2)

    def count(
        self,
        attention: Tensor,
        boxes: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        distance: Tensor | None = None,
    ) -> Tensor:
        """Return the scalar c of the paper: ``[...]``, or ``[..., heads]`` with several heads."""
        return self._result(self._proposals(attention, boxes, mask, distance), "count")

    def explain(
        self,
        attention: Tensor,
        boxes: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        distance: Tensor | None = None,
    ) -> CountTrace:
        """Return every intermediate quantity of one call."""
        return count_trace(self._proposals(attention, boxes, mask, distance), self.weight, self.max_objects)

    def _proposals(
        self, attention: Tensor, boxes: Tensor | None, mask: Tensor | None, distance: Tensor | None
    ) -> Proposals:
        return checked_proposals(attention, boxes, mask, distance, max_objects=self.max_objects, logits=self.logits)

    def _result(self, proposals: Proposals, result: Result) -> Tensor:
        """Return count or features, with a dimension for the heads if there are several."""
        if len(self.weight) > 1:
            return count_result(proposals.for_every_head(), self.weight, self.max_objects, self.backend, result)
        results = count_result(proposals, self.weight, self.max_objects, self.backend, result)
        # A single head broadcasts along the leading dimensions; if there are none, it adds one.
        return results.squeeze(0) if proposals.is_one_image else results

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
