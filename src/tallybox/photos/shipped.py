"""The estimator that ships with the package: fitted to the embedded PicoDet-S. See docs/estimator-card.md."""

from __future__ import annotations

from pathlib import Path

from tallybox.estimator.estimator import CountEstimator

SHIPPED_ESTIMATOR = Path(__file__).parent / "data" / "picodet_estimator.safetensors"


def shipped_estimator() -> CountEstimator:
    """Load it.

    >>> shipped_estimator().category_name(18)
    'dog'
    """
    return CountEstimator.load(SHIPPED_ESTIMATOR)
