"""`PresenceCounter`: presence counting as a layer."""

import torch
from torch import Tensor, nn

from tallybox.checks import check_count
from tallybox.kernels.dispatch import Backend, check_backend
from tallybox.kernels.proposals import checked_proposals
from tallybox.presence.functional import PresenceResults, presence_results, presence_trace
from tallybox.presence.trace import PresenceTrace
from tallybox.presence.weights import PresenceWeights, initial_weights


class PresenceCounter(nn.Module):
    """Count objects from scored, overlapping boxes as a distribution, differentiably.

    Each proposal gets a presence: the probability that it shows an object that no other proposal shows. The count
    is their sum, distributed as a sum of independent events. All N proposals take part. With several heads, each
    has its own functions over the same proposals.

    >>> import torch
    >>> presence = PresenceCounter(max_objects=3)
    >>> scores = torch.tensor([1.0, 1.0, 0.5])
    >>> boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0], [2.0, 2.0, 3.0, 3.0]])
    >>> presence.distribution(scores, boxes).round(decimals=3)  # one object for sure, a second as likely as not
    tensor([[0.0000, 0.5000, 0.5000, 0.0000]], grad_fn=<RoundBackward1>)
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
        self.heads = heads
        self.logits = logits
        self.backend: Backend = backend
        for name, weight in initial_weights(heads, segments)._asdict().items():
            self.register_parameter(name, nn.Parameter(weight))

    def reset_parameters(self) -> None:
        """Start again as a greedy count; several heads start with different shifts of the score."""
        with torch.no_grad():
            initial = initial_weights(self.heads, segments=self.weights.order.shape[-1])
            for weight, value in zip(self.weights, initial, strict=True):
                weight.copy_(value)

    @property
    def weights(self) -> PresenceWeights:
        """The parameters, each ``[heads, ...]``."""
        return PresenceWeights(*(getattr(self, name) for name in PresenceWeights._fields))

    def forward(
        self,
        attention: Tensor,
        boxes: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        distance: Tensor | None = None,
    ) -> Tensor:
        """Return features ``[..., heads * (max_objects + 2)]``: log-probabilities of 0 ... max_objects, expected count.

        ``attention [..., N]``, ``boxes [..., N, 4]`` corners, ``mask [..., N]`` True for a real proposal. Instead of
        boxes, ``distance [..., N, N]`` in [0, 1] may say how dissimilar two proposals are.
        """
        features = self._results(attention, boxes, mask, distance).features
        return features if self.heads == 1 else features.flatten(-2)

    def presence(
        self,
        attention: Tensor,
        boxes: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        distance: Tensor | None = None,
    ) -> Tensor:
        """Return each proposal's presence, ``[..., heads, N]``; 0 where masked."""
        presence = self._results(attention, boxes, mask, distance).presence
        return presence.unsqueeze(-2) if self.heads == 1 else presence

    def distribution(
        self,
        attention: Tensor,
        boxes: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        distance: Tensor | None = None,
    ) -> Tensor:
        """Return the probabilities of 0 ... max_objects, ``[..., heads, max_objects + 1]``; the last is "or more"."""
        distribution = self._results(attention, boxes, mask, distance).distribution
        return distribution.unsqueeze(-2) if self.heads == 1 else distribution

    def count(
        self,
        attention: Tensor,
        boxes: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        distance: Tensor | None = None,
    ) -> Tensor:
        """Return the expected count: ``[...]``, or ``[..., heads]`` with several heads."""
        return self._results(attention, boxes, mask, distance).presence.sum(-1)

    def explain(
        self,
        attention: Tensor,
        boxes: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        distance: Tensor | None = None,
    ) -> PresenceTrace:
        """Return every intermediate quantity of one call."""
        proposals = checked_proposals(attention, boxes, mask, distance, logits=self.logits)
        return presence_trace(proposals, self.weights, max_objects=self.max_objects, logits=self.logits)

    def _results(
        self, attention: Tensor, boxes: Tensor | None, mask: Tensor | None, distance: Tensor | None
    ) -> PresenceResults:
        """Count, with a dimension for the heads if there are several."""
        proposals = checked_proposals(attention, boxes, mask, distance, logits=self.logits)
        alone = self.heads == 1 and proposals.is_one_image
        if self.heads > 1:
            proposals = proposals.for_every_head()
        results = presence_results(
            proposals, self.weights, max_objects=self.max_objects, logits=self.logits, backend=self.backend
        )
        # A single head broadcasts along the leading dimensions; if there are none, it adds one.
        return PresenceResults(*(result.squeeze(0) for result in results)) if alone else results

    def extra_repr(self) -> str:
        segments = self.weights.calibration.shape[-1]
        return (
            f"max_objects={self.max_objects}, heads={self.heads}, segments={segments}, "
            f"logits={self.logits}, backend={self.backend!r}"
        )
