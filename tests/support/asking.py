"""The shipped model with the embedded detector, loaded once, and the sample photos as it sees them."""

from __future__ import annotations

from functools import cache

from tallybox.asking import Answerer
from tallybox.photos import Photo, read_photo, sample_photos
from tests.support.photos import embedded_detector


@cache
def shipped_answerer() -> Answerer:
    """Return what `tallybox ask` answers with; do not change it."""
    return Answerer(detector=embedded_detector())


@cache
def sample_photo(name: str) -> Photo:
    """Return a sample photo: zidane.jpg shows two men, bus.jpg a bus and people."""
    return read_photo(next(path for path in sample_photos() if path.name == name))
