"""An estimator that learned on made-up photos, once for all tests that only look at it."""

from functools import cache

from tallybox import CountEstimator
from tallybox.bench.photos import made_up_photos


@cache
def small_estimator() -> CountEstimator:
    """Return one of two members; do not change it."""
    return CountEstimator(members=2).fit(*made_up_photos(40, seed=3))
