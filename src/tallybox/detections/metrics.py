"""Metrics of counts: sums that add up over images, files and machines, and the figures computed from them."""

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tallybox.errors import InputError

Groups = Mapping[int, str]  # names of groups of values, by the smallest value of each
COUNT_GROUPS: Groups = {0: "0", 1: "1", 2: "2-4", 5: "5+"}
NO_SUMS = (0,) * len(COUNT_GROUPS)


def groups_of(values: ArrayLike, groups: Groups = COUNT_GROUPS) -> NDArray[np.int64]:
    """Return the index of the group that each value is in.

    >>> groups_of([0, 1, 2, 4, 5, 30]).tolist()
    [0, 1, 2, 2, 3, 3]
    """
    return np.searchsorted(list(groups), values, side="right") - 1


@dataclass(frozen=True)
class CountSums:
    """Sums behind `exact`, `mae` and `rmse`; ``a + b`` is the sums of both."""

    pairs: int = 0
    exact: int = 0
    absolute_error: float = 0.0
    squared_error: float = 0.0

    @classmethod
    def of(
        cls, counts: ArrayLike, true_counts: ArrayLike, medians: ArrayLike | None = None, means: ArrayLike | None = None
    ) -> Self:
        """Sum over pairs: the most probable counts, the medians and the means of the predictions, all [P].

        A method with one number for all three gives ``counts`` only. To be exact, a count is rounded, half a count
        upwards.
        """
        best = _vector("counts", counts)
        truth = _vector("true_counts", true_counts, len(best))
        median = best if medians is None else _vector("medians", medians, len(best))
        mean = best if means is None else _vector("means", means, len(best))
        return cls(
            pairs=len(truth),
            exact=int((np.floor(best + 0.5) == truth).sum()),
            absolute_error=float(np.abs(median - truth).sum()),
            squared_error=float(((mean - truth) ** 2).sum()),
        )

    def __add__(self, other: "CountSums") -> "CountSums":
        return CountSums(*_add(astuple(self), astuple(other)))

    def compute(self) -> dict[str, float]:
        """Return the share of exact counts, the mean absolute and the root mean squared error; NaN without pairs."""
        if self.pairs == 0:
            return dict.fromkeys(("exact", "mae", "rmse"), float("nan"))
        return {
            "exact": self.exact / self.pairs,
            "mae": self.absolute_error / self.pairs,
            "rmse": float(np.sqrt(self.squared_error / self.pairs)),
        }


@dataclass(frozen=True)
class CategorySums:
    """Sums behind mRMSE and mRMSE-nz of Chattopadhyay et al. 2017, over every image and category.

    Pairs that are not added have a count and a true count of 0; so `compute` needs the number of images.
    """

    # For each category: the squared error, the squared error where the true count is not 0, and how many such pairs.
    by_category: Mapping[int, tuple[float, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, category_ids: ArrayLike, means: ArrayLike, true_counts: ArrayLike) -> Self:
        """Sum over pairs: category, expected count and true count, all [P]."""
        truth = _vector("true_counts", true_counts)
        mean = _vector("means", means, len(truth))
        categories, rows = np.unique(np.asarray(category_ids), return_inverse=True)
        if rows.shape != truth.shape:
            raise InputError(f"category_ids must have shape [{len(truth)}] like true_counts, but got {[*rows.shape]}")
        error, nonzero = (mean - truth) ** 2, truth > 0
        sums = (np.bincount(rows, values).tolist() for values in (error, error * nonzero, nonzero))
        return cls(dict(zip(categories.tolist(), zip(*sums, strict=True), strict=True)))

    def __add__(self, other: "CategorySums") -> "CategorySums":
        total = dict(self.by_category)
        for category_id, sums in other.by_category.items():
            total[category_id] = _add(total.get(category_id, (0.0, 0.0, 0.0)), sums)
        return CategorySums(total)

    def compute(self, images: int, category_ids: Iterable[int]) -> dict[str, float]:
        """Return the RMSE of each category, over all images and over those that have it, averaged over categories.

        A category that is in no image has no RMSE on non-zero counts and is left out of that average.
        """
        categories = list(category_ids)
        if outside := sorted(self.by_category.keys() - set(categories)):
            raise InputError(f"category_ids must hold every category that was added, but {outside[0]} is missing")
        if images < 1 or not categories:
            raise InputError(f"images and category_ids must not be empty, but got {images} and {len(categories)}")
        over_all = [(error / images) ** 0.5 for error, _, _ in self.by_category.values()]
        over_nonzero = [(error / pairs) ** 0.5 for _, error, pairs in self.by_category.values() if pairs]
        nonzero_mean = sum(over_nonzero) / len(over_nonzero) if over_nonzero else float("nan")
        return {"mrmse": sum(over_all) / len(categories), "mrmse_nz": nonzero_mean}


@dataclass(frozen=True)
class CoverageSums:
    """How often intervals hold the true count and how wide they are, by groups of pairs."""

    pairs: tuple[int, ...] = NO_SUMS
    held: tuple[int, ...] = NO_SUMS
    widths: tuple[int, ...] = NO_SUMS  # largest minus smallest count of each interval

    @classmethod
    def of(
        cls,
        lows: ArrayLike,
        highs: ArrayLike,
        true_counts: ArrayLike,
        *,
        grouped_by: ArrayLike,
        groups: Groups = COUNT_GROUPS,
    ) -> Self:
        """Sum over pairs, all [P]: both ends of each interval, the true counts, and the values that form groups."""
        truth = _vector("true_counts", true_counts)
        low, high = _vector("lows", lows, len(truth)), _vector("highs", highs, len(truth))
        group = groups_of(_vector("grouped_by", grouped_by, len(truth)), groups)
        inside = (low <= truth) & (truth <= high)
        sums = (np.bincount(group, values, len(groups)) for values in (None, inside, high - low))
        return cls(*(tuple(map(int, by_group)) for by_group in sums))

    def __add__(self, other: "CoverageSums") -> "CoverageSums":
        return CoverageSums(*map(_add, astuple(self), astuple(other)))

    def coverage(self) -> float:
        """Return the share of intervals that hold the true count; NaN without pairs."""
        return sum(self.held) / sum(self.pairs) if sum(self.pairs) else float("nan")

    def coverage_by_group(self, groups: Groups = COUNT_GROUPS) -> dict[str, float]:
        """Return that share for each group that has pairs."""
        return self._means(self.held, groups)

    def width_by_group(self) -> dict[str, float]:
        """Return the mean width of intervals for each group of counts that has pairs."""
        return self._means(self.widths, COUNT_GROUPS)

    def _means(self, sums: tuple[int, ...], groups: Groups) -> dict[str, float]:
        rows = zip(groups.values(), self.pairs, sums, strict=True)
        return {name: total / pairs for name, pairs, total in rows if pairs}


def _add(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a + b for a, b in zip(first, second, strict=True))


def _vector(name: str, values: ArrayLike, length: int | None = None) -> NDArray[np.float64]:
    vector = np.asarray(values, np.float64)
    if vector.ndim != 1 or (length is not None and len(vector) != length):
        expected = "[P]" if length is None else f"[{length}]"
        raise InputError(f"{name} must have shape {expected}, one for each pair, but got {list(vector.shape)}")
    if np.isnan(vector).any():
        raise InputError(f"{name} must be numbers, but got NaN at index {int(np.argmax(np.isnan(vector)))}")
    return vector
