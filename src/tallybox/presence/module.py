"""`PresenceCounter`: presence counting as a layer."""

from torch import Tensor

from tallybox.kernels.layer import CountingLayer
from tallybox.kernels.proposals import Proposals
from tallybox.presence.functional import PresenceResults, presence_results, presence_trace
from tallybox.presence.trace import PresenceTrace
from tallybox.presence.weights import PresenceWeights, initial_weights


class PresenceCounter(CountingLayer[PresenceTrace]):
    """Count objects from scored, overlapping boxes as a distribution, differentiably.

    Each proposal gets a presence: the probability that it shows an object that no other proposal shows. The count
    is their sum, distributed as a sum of independent events. All N proposals take part. With several heads, each
    has its own functions over the same proposals.

    A call returns features ``[..., heads * (max_objects + 2)]``: log-probabilities of 0 ... max_objects, and the
    expected count, which `count` returns alone.

    >>> import torch
    >>> presence = PresenceCounter(max_objects=3)
    >>> scores = torch.tensor([1.0, 1.0, 0.5])
    >>> boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0], [2.0, 2.0, 3.0, 3.0]])
    >>> presence.distribution(scores, boxes).round(decimals=3)  # one object for sure, a second as likely as not
    tensor([[0.0000, 0.5000, 0.5000, 0.0000]], grad_fn=<RoundBackward1>)
    """

    keeps_all = True

    @property
    def weights(self) -> PresenceWeights:
        """The parameters, each ``[heads, ...]``."""
        return PresenceWeights(*(getattr(self, name) for name in PresenceWeights._fields))

    def presence(
        self,
        attention: Tensor,
        boxes: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        distance: Tensor | None = None,
    ) -> Tensor:
        """Return each proposal's presence, ``[..., heads, N]``; 0 where masked."""
        presence: Tensor = self._results(attention, boxes, mask, distance).presence
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
        distribution: Tensor = self._results(attention, boxes, mask, distance).distribution
        return distribution.unsqueeze(-2) if self.heads == 1 else distribution

    def _initial_parameters(self) -> dict[str, Tensor]:
        return initial_weights(self.heads, self.segments)._asdict()

    def _compute(self, proposals: Proposals) -> PresenceResults:
        return presence_results(
            proposals, self.weights, max_objects=self.max_objects, logits=self.logits, backend=self.backend
        )

    def _trace(self, proposals: Proposals) -> PresenceTrace:
        return presence_trace(proposals, self.weights, max_objects=self.max_objects, logits=self.logits)
