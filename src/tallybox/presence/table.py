"""How fused kernels hold a counter's functions: one row of numbers.

α, β, γ and the step of τ; then φ and τ at their S + 1 knots; then κ and η at their (E + 1)² knots, by overlap first.
"""

from __future__ import annotations

from torch import Tensor

from tallybox.presence.weights import CELLS, PresenceWeights


def counters_and_segments(weights: list[Tensor]) -> tuple[int, int]:
    """Return how many counters the weights are of, and their segments."""
    calibration = PresenceWeights(*weights).calibration
    segments = calibration.shape[-1]
    return calibration.numel() // segments, segments


def table_size(segments: int) -> int:
    """Return how many numbers a row has."""
    return 4 + 2 * (segments + 1) + 2 * (CELLS + 1) ** 2


def state_size_cuda(number: int, max_objects: int) -> int:
    """Return how many numbers an image leaves for its backward pass on CUDA."""
    return number * number + 4 * number + (number + 1) * (max_objects + 1)


ROWS, PAIR_ROWS = 10, 7  # numbers for each proposal and for each pair that `cpu.parts` names


def state_size_cpu(number: int) -> int:
    """Return how many numbers an image leaves for its backward pass on CPU."""
    return ROWS * number + PAIR_ROWS * number * (number - 1) // 2
