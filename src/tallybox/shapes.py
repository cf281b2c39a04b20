"""Leading dimensions that broadcast."""

from __future__ import annotations

from functools import lru_cache
from itertools import zip_longest

import torch


def common_shape(*shapes: torch.Size) -> torch.Size:
    """Return the shape that all broadcast to; raise RuntimeError where they do not.

    `torch.broadcast_shapes` does the same, but takes 50 µs beside a GPU that is done in 70, and the first time it
    imports what graphs are made with, a second on a CPU.

    >>> common_shape(torch.Size([3, 1]), torch.Size([4]))
    torch.Size([3, 4])
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]  # torch neither lists nor annotates it
        shape: torch.Size = torch.broadcast_shapes(*shapes)  # looking at a graph's symbolic sizes would pin them down
        return shape
    return _known_common_shape(*shapes)


@lru_cache(maxsize=4096)  # a model asks for the same ones again and again
def _known_common_shape(*shapes: torch.Size) -> torch.Size:
    first = max(shapes, key=len)
    if all(shape == first for shape in shapes):
        return first
    common = [1] * len(first)
    for place, sizes in enumerate(zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1), start=1):
        others = {size for size in sizes if size != 1}
        if len(others) > 1:
            raise RuntimeError(f"shapes {', '.join(str(list(shape)) for shape in shapes)} do not broadcast")
        common[-place] = others.pop() if others else 1
    return torch.Size(common)
