"""How good counts are: sums that add up over images, files and machines, and the figures computed from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tallybox.errors import InputError

# Groups of counts that figures are given for, by the smallest count of each.
COUNT_GROUPS = {0: "0", 1: "1", 2: "2-4", 5: "5+"}
NO_SUMS = (0,) * len(COUNT_GROUPS)


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

    def __add__(self, other: CountSums) -> CountSums:
        return CountSums(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def compute(self) -> dict[str, float]:
        """Return the share of exact counts, the mean absolute and the root mean squared error; NaN of no pairs."""
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

    # For each category: squared error, that where the true count is not 0, and how many pairs the latter are.
    by_category: Mapping[int, tuple[float, float, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, category_ids: ArrayLike, means: ArrayLike, true_counts: ArrayLike) -> Self:
        """Sum over pairs: category, expected count and true count, all [P]."""
        truth = _vector("true_counts", true_counts)
        mean = _vector("means", means, len(truth))
        categories, rows = np.unique(np.asarray(category_ids), return_inverse=True)
        if rows.shape != truth.shape:
            raise InputError(f"category_ids must have shape [{len(truth)}] like true_counts, but got {[*rows.shape]}")
        error, shown = (mean - truth) ** 2, truth > 0
        sums = (np.bincount(rows, values).tolist() for values in (error, error * shown, shown))
        return cls(dict(zip(categories.tolist(), zip(*sums, strict=True), strict=True)))

    def __add__(self, other: CategorySums) -> CategorySums:
        total = dict(self.by_category)
        for category_id, (error, nonzero_error, nonzero) in other.by_category.items():
            before = total.get(category_id, (0.0, 0.0, 0.0))
            total[category_id] = (before[0] + error, before[1] + nonzero_error, before[2] + nonzero)
        return CategorySums(total)

    def compute(self, images: int, category_ids: Iterable[int]) -> dict[str, float]:
        """Return the RMSE of each category, over all images and over those that show it, averaged over categories.

        A category that no image shows has no RMSE on non-zero counts and is left out of that average.
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
    """How often intervals hold the true count and how wide they are, by groups of true or of predicted counts."""

    pairs: tuple[int, ...] = NO_SUMS
    held: tuple[int, ...] = NO_SUMS
    widths: tuple[int, ...] = NO_SUMS  # largest minus smallest count of each interval

    @classmethod
    def of(cls, lows: ArrayLike, highs: ArrayLike, true_counts: ArrayLike, *, grouped_by: ArrayLike) -> Self:
        """Sum over pairs, all [P]: both ends of each interval, the true counts, and the counts that form groups."""
        truth = _vector("true_counts", true_counts)
        low, high = _vector("lows", lows, len(truth)), _vector("highs", highs, len(truth))
        counts = _vector("grouped_by", grouped_by, len(truth))
        inside = (low <= truth) & (truth <= high)
        groups = np.searchsorted(list(COUNT_GROUPS), counts, side="right") - 1
        sums = (np.bincount(groups, values, len(COUNT_GROUPS)) for values in (None, inside, high - low))
        return cls(*(tuple(map(int, of_groups)) for of_groups in sums))

    def __add__(self, other: CoverageSums) -> CoverageSums:
        both = zip(astuple(self), astuple(other), strict=True)
        return CoverageSums(*(tuple(a + b for a, b in zip(mine, theirs, strict=True)) for mine, theirs in both))

    def coverage(self) -> float:
        """Return the share of intervals that hold the true count; NaN of no pairs."""
        return sum(self.held) / sum(self.pairs) if sum(self.pairs) else float("nan")

    def coverage_by_group(self) -> dict[str, float]:
        """Return that share for each group that occurs."""
        return self._means(self.held)

    def width_by_group(self) -> dict[str, float]:
        """Return the mean width of intervals for each group that occurs."""
        return self._means(self.widths)

    def _means(self, sums: tuple[int, ...]) -> dict[str, float]:
        groups = zip(COUNT_GROUPS.values(), self.pairs, sums, strict=True)
        return {name: total / pairs for name, pairs, total in groups if pairs}


def _vector(name: str, values: ArrayLike, length: int | None = None) -> NDArray[np.float64]:
    vector = np.asarray(values, np.float64)
    if vector.ndim != 1 or (length is not None and len(vector) != length):
        expected = "[P]" if length is None else f"[{length}]"
        raise InputError(f"{name} must have shape {expected}, one for each pair, but got {list(vector.shape)}")
    if np.isnan(vector).any():
        raise InputError(f"{name} must be numbers, but got NaN at index {int(np.argmax(np.isnan(vector)))}")
    return vector
