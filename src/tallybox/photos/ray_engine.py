"""Counting photos on many machines, with Ray Data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tallybox.photos.counter import CountedPhoto, PhotoCounter


def count_each_with_ray(
    counter: PhotoCounter, paths: Sequence[Path], categories: Sequence[int | str] | None = None
) -> Iterator[CountedPhoto]:
    """Yield what `PhotoCounter.count_each` yields, in the same order, from many machines."""
    raise NotImplementedError
