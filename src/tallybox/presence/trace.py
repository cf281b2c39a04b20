"""Every intermediate quantity of one call of presence counting."""

from dataclasses import dataclass

from torch import Tensor

from tallybox.kernels.layer import Trace


@dataclass(frozen=True, eq=False)
class PresenceTrace(Trace):
    """What the component computed on the way to its features, named as in docs/understand/presence.md."""

    attention: Tensor  # [..., N] in [0, 1], after the logistic; 0 where masked
    boxes: Tensor | None  # [..., N, 4] corners; None if distances were given
    mask: Tensor  # [..., N] bool, True for a real proposal
    overlap: Tensor  # IoU [..., N, N]
    evidence: Tensor  # κ [..., heads, N, N]: the evidence of proposal j for i
    calibrated: Tensor  # p⁰ [..., heads, N]: presence before suppression
    suppression: Tensor  # s [..., heads, N, N]: how much j, if present, shows the object of i
    presence: Tensor  # p [..., heads, N]
    distribution: Tensor  # P [..., heads, max_objects + 1]; the last is "max_objects or more"
    count: Tensor  # Σ p [...], or [..., heads] with several heads
    features: Tensor  # [..., heads * (max_objects + 2)]
