"""Leading dimensions that broadcast."""

from __future__ import annotations

import torch


def common_shape(*shapes: torch.Size) -> torch.Size:
    """Return the shape that all broadcast to; raise RuntimeError where they do not.

    `torch.broadcast_shapes` does the same, but takes 50 µs beside a GPU that is done in 70; nearly
    always the shapes are equal, or those that differ are all ones.
    """
    # Not while a graph is made: comparing its symbolic sizes would pin them down.
    if not torch.compiler.is_compiling():
        first = max(shapes, key=len)
        if all(shape == first or all(size == 1 for size in shape) for shape in shapes):
            return first
    shape: torch.Size = torch.broadcast_shapes(*shapes)
    return shape
