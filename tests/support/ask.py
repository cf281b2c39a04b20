"""The shipped model with the embedded detector, loaded once, and the sample photos as it sees them."""

from functools import cache

from tallybox.photos import Photo, read_photo, sample_photos
from tallybox.vqa.answer import Answerer
from tests.support.photos import embedded_detector

BUSES, RIDERS, LOBBY = sample_photos()


@cache
def shipped_answerer() -> Answerer:
    """Return what `tallybox ask` answers with; do not change it."""
    return Answerer(detector=embedded_detector())


@cache
def buses() -> Photo:
    """Return a street in the rain with three buses and cars."""
    return read_photo(BUSES)


@cache
def riders() -> Photo:
    """Return two riders on their horses."""
    return read_photo(RIDERS)
