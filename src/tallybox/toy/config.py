"""Every constant of the paper's toy task, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ToyConfig:
    """The toy task as the paper runs it (section 5.1)."""

    boxes: int = 10  # boxes in an image, and so the largest count
    batch: int = 1024
    iterations: int = 1000
    learning_rate: float = 0.01  # of Adam
    evaluation_batches: int = 200
    segments: int = 16  # of each activation
