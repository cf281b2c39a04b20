"""How many numbers a fused forward pass keeps for the way back: as much for the kernels as for a graph being made."""

from __future__ import annotations


def state_size_cpu(images: int, number: int) -> int:
    """Count and certainty [I], scale [I, N], and for each pair of boxes a row product of Sim or D [I, N, N]."""
    return images * (2 + number + number * number)


def state_size_cuda(images: int, number: int, counters: int, segments: int) -> int:
    """Count and certainty [I], scale [I, N], X and products [I, N, N]; of counters base and rise [M, 8, S].

    And a place for the blocks of each counter to count themselves [M].
    """
    return images * (2 + number + 2 * number * number) + counters * (16 * segments + 1)
