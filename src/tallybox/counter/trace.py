"""Every intermediate quantity of one call of the counting component."""

from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor


@dataclass(frozen=True, eq=False)
class CountTrace:
    """What the component computed on the way to its features, named as in docs/understand/method.md.

    ``n`` is the number of proposals kept, at most ``max_objects``. With several heads the quantities
    that depend on the activations have a dimension ``heads`` after the leading ones.
    """

    attention: Tensor  # a        [..., n] in [0, 1], after the logistic; 0 where masked
    boxes: Tensor | None  # b     [..., n, 4] corners; None if distances were given
    mask: Tensor  # [..., n] bool, True for a real proposal
    indices: Tensor  # [..., n] which of the N proposals was kept
    relevance: Tensor  # A        [..., n, n] = a aᵀ
    distance: Tensor  # D         [..., n, n] = 1 - IoU
    deduplicated: Tensor  # Ã     [..., n, n] = f1(A) f2(D)
    similarity: Tensor  # Sim     [..., n, n]
    scale: Tensor  # s            [..., n] = 1 / row sums of Sim
    count_matrix: Tensor  # C     [..., n, n]
    count: Tensor  # c            [...]
    confidence: Tensor  # f8(p_a + p_D) [...]
    features: Tensor  # õ         [..., heads * (max_objects + 1)]

    def to_dict(self) -> dict[str, Any]:
        """Return the quantities by name as nested lists, ready for JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: None if value is None else value.detach().cpu().tolist() for name, value in values.items()}
