"""Leading dimensions that broadcast, and what shapes alone decide."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from itertools import zip_longest
from typing import Any, TypeVar

import torch

Decided = TypeVar("Decided")

PLAIN = {int, str, type(None)}  # a bool would pass for the number it equals
MOST_REMEMBERED = 4096  # a model asks for the same shapes again and again; files of photos, for ever new ones


def by_shape(decide: Callable[..., Decided]) -> Callable[..., Decided]:
    """Remember what a function decides from the shapes, dtypes and devices of tensors, and from other plain values.

    Working it out in Python takes as long as a GPU takes for a small batch. An error is not remembered.

    >>> @by_shape
    ... def number(boxes):
    ...     print("works it out")
    ...     return boxes.shape[-2]
    >>> number(torch.zeros(3, 4)), number(torch.ones(3, 4))
    works it out
    (3, 3)
    """
    remembered: dict[tuple[Any, ...], Decided] = {}

    @wraps(decide)
    def decided(*arguments: Any) -> Decided:
        if is_symbolic():
            return decide(*arguments)
        try:
            key = tuple([a if type(a) in PLAIN else (a.shape, a.dtype, a.device) for a in arguments])
            known = remembered.get(key)
        except (AttributeError, TypeError):  # neither plain nor a tensor, which is for the function to say
            return decide(*arguments)
        if known is None:
            if len(remembered) >= MOST_REMEMBERED:
                remembered.clear()
            known = remembered[key] = decide(*arguments)
        return known

    return decided


def is_symbolic() -> bool:
    """Tell whether a graph is being made, where looking at a size or at values would pin them down."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]  # torch neither lists nor annotates it


def common_shape(*shapes: torch.Size) -> torch.Size:
    """Return the shape that all broadcast to; raise RuntimeError where they do not.

    `torch.broadcast_shapes` does the same, but takes 50 µs beside a GPU that is done in 70, and the first time it
    imports what graphs are made with, a second on a CPU.

    >>> common_shape(torch.Size([3, 1]), torch.Size([4]))
    torch.Size([3, 4])
    """
    if is_symbolic():
        shape: torch.Size = torch.broadcast_shapes(*shapes)
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
