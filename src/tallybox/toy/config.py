"""Every constant of the toy task, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ToyConfig:
    """The toy task as the paper runs it (section 5.1), and how presence counting is trained on it."""

    boxes: int = 10  # boxes in an image, and so the largest count
    batch: int = 1024
    iterations: int = 1000
    learning_rate: float = 0.01  # of Adam, for the paper's models
    evaluation_batches: int = 200
    segments: int = 16  # of each activation
    presence_heads: int = 1  # 324 parameters with the readout; a third head is worth 0.004 and twice the time
    presence_learning_rate: float = 0.03  # the peak: up from a 25th of it, then down to nothing
