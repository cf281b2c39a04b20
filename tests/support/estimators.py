"""An estimator that learned on synthetic photos, once for all tests that only look at it."""

from functools import cache

from benchmarks.synthetic_photos import made_up_photos

from tallybox import CountEstimator


@cache
def small_estimator() -> CountEstimator:
    """Return one of two members; do not change it."""
    return CountEstimator(members=2).fit(*made_up_photos(40, seed=3))
