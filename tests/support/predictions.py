"""Counts as JSON, compared."""

from collections.abc import Mapping
from typing import Any

import pytest


def assert_same_counts(found: Mapping[str, Mapping[str, Any]], expected: Mapping[str, Mapping[str, Any]]) -> None:
    """Expected counts may differ in the last digit: images are counted in other batches."""
    assert found.keys() == expected.keys()
    for name, one in found.items():
        assert one["expected"] == pytest.approx(expected[name]["expected"], abs=2e-4)
        assert {**one, "expected": None} == {**expected[name], "expected": None}


def total_of(estimator, images, categories=None):
    """Return the totals over images."""
    totals = estimator.totals(categories)
    for predictions in estimator.predict_many(images, categories):
        totals.add(predictions)
    return totals.compute()
