"""What `Counter` and `PresenceCounter` share: settings, parameters, inputs and outputs."""

from dataclasses import fields
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from tallybox.checks import check_count
from tallybox.kernels.dispatch import Backend, check_backend
from tallybox.kernels.proposals import Proposals, checked_proposals


class Trace:
    """Every intermediate quantity of one call; a base of dataclasses of tensors."""

    def to_dict(self) -> dict[str, Any]:
        """Return the quantities by name as nested lists, ready for JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]  # a dataclass
        return {name: None if value is None else value.detach().cpu().tolist() for name, value in values.items()}


TraceOfLayer = TypeVar("TraceOfLayer", bound=Trace)


class CountingLayer(nn.Module, Generic[TraceOfLayer]):
    """Base of both layers; all methods take what `forward` takes."""

    keeps_all: ClassVar[bool]  # whether all proposals take part, or those of largest attention

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
        self.segments = segments
        self.logits = logits
        self.backend: Backend = backend
        for name, initial in self._initial_parameters().items():
            self.register_parameter(name, nn.Parameter(initial))

    def reset_parameters(self) -> None:
        """Set the parameters to those of a new layer; several heads start slightly different, so that they can part."""
        with torch.no_grad():
            for name, initial in self._initial_parameters().items():
                self.get_parameter(name).copy_(initial)

    def forward(
        self,
        attention: Tensor,
        boxes: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        distance: Tensor | None = None,
    ) -> Tensor:
        """Return the features of all heads, ``[..., heads * features of a head]``.

        ``attention [..., N]``, ``boxes [..., N, 4]`` corners, ``mask [..., N]`` True for a real proposal. Instead of
        boxes, ``distance [..., N, N]`` in [0, 1] may say how dissimilar two proposals are.
        """
        features: Tensor = self._results(attention, boxes, mask, distance).features
        return features if self.heads == 1 else features.flatten(-2)

    def count(
        self,
        attention: Tensor,
        boxes: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        distance: Tensor | None = None,
    ) -> Tensor:
        """Return the count: ``[...]``, or ``[..., heads]`` with several heads."""
        counts: Tensor = self._results(attention, boxes, mask, distance).counts
        return counts

    def explain(
        self,
        attention: Tensor,
        boxes: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        distance: Tensor | None = None,
    ) -> TraceOfLayer:
        """Return every intermediate quantity of one call."""
        return self._trace(self._proposals(attention, boxes, mask, distance))

    def extra_repr(self) -> str:
        names = ("max_objects", "heads", "segments", "logits", "backend")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def _results(self, attention: Tensor, boxes: Tensor | None, mask: Tensor | None, distance: Tensor | None) -> Any:
        """Return a named tuple of results, with a dimension for the heads if there are several."""
        proposals = self._proposals(attention, boxes, mask, distance)
        if self.heads > 1:
            return self._compute(proposals.for_every_head())
        results = self._compute(proposals)
        # A single head broadcasts along the leading dimensions; if there are none, it adds one.
        return type(results)(*(result.squeeze(0) for result in results)) if proposals.is_one_image() else results

    def _initial_parameters(self) -> dict[str, Tensor]:
        """Return the parameters of a new layer by name, each ``[heads, ...]``."""
        raise NotImplementedError

    def _proposals(
        self, attention: Tensor, boxes: Tensor | None, mask: Tensor | None, distance: Tensor | None
    ) -> Proposals:
        """Check the inputs of a call, and prepare them."""
        kept = None if self.keeps_all else self.max_objects
        return checked_proposals(attention, boxes, mask, distance, max_objects=kept, logits=self.logits)

    def _compute(self, proposals: Proposals) -> Any:
        """Return a named tuple with ``features`` and ``counts``."""
        raise NotImplementedError

    def _trace(self, proposals: Proposals) -> TraceOfLayer:
        """Return the trace of one call."""
        raise NotImplementedError
