"""Every intermediate quantity of one call of the counting component."""

from dataclasses import dataclass

from torch import Tensor

from tallybox.kernels.layer import Trace


@dataclass(frozen=True, eq=False)
class CountTrace(Trace):
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
