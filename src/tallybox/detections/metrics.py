"""How good counts are: sums that add up over images, files and machines, and the figures computed from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tallybox.errors import InputError

# Groups of counts that figures are given for: smallest, largest, name.
COUNT_GROUPS = ((0, 0, "0"), (1, 1, "1"), (2, 4, "2-4"), (5, None, "5+"))


@dataclass(frozen=True)
class CountSums:
    """Sums behind `exact`, `mae` and `rmse`; ``a + b`` is the sums of both.

    >>> both = CountSums.of([3, 0], [3, 1]) + CountSums.of([2], [4])
    >>> both.compute()
    {'exact': 0.3333333333333333, 'mae': 1.0, 'rmse': 1.2909944487358056}
    """

    pairs: int = 0
    exact: int = 0
    absolute_error: float = 0.0
    squared_error: float = 0.0

    @classmethod
    def of(
        cls,
        counts: ArrayLike,
        true_counts: ArrayLike,
        *,
        medians: ArrayLike | None = None,
        means: ArrayLike | None = None,
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

    >>> sums = CategorySums.of(category_ids=[1, 1, 18], means=[2.0, 0.0, 1.0], true_counts=[2, 1, 0])
    >>> sums.compute(images=4, category_ids=[1, 18])
    {'mrmse': 0.5, 'mrmse_nz': 0.7071067811865476}
    """

    squared_error: Mapping[int, float] = field(default_factory=dict)
    squared_error_nonzero: Mapping[int, float] = field(default_factory=dict)  # where the true count is not 0
    nonzero: Mapping[int, float] = field(default_factory=dict)  # how many pairs that is

    @classmethod
    def of(cls, category_ids: ArrayLike, means: ArrayLike, true_counts: ArrayLike) -> Self:
        """Sum over pairs: category, expected count and true count, all [P]."""
        truth = _vector("true_counts", true_counts)
        mean = _vector("means", means, len(truth))
        categories, rows = np.unique(np.asarray(category_ids), return_inverse=True)
        if rows.shape != truth.shape:
            raise InputError(
                f"category_ids must have shape [{len(truth)}] like true_counts, but got {list(rows.shape)}"
            )
        error = (mean - truth) ** 2
        shown = truth > 0

        def sums(values: NDArray[np.float64]) -> dict[int, float]:
            return dict(zip(categories.tolist(), np.bincount(rows, values).tolist(), strict=True))

        return cls(sums(error), sums(error * shown), sums(shown.astype(np.float64)))

    def __add__(self, other: CategorySums) -> CategorySums:
        def added(a: Mapping[int, float], b: Mapping[int, float]) -> dict[int, float]:
            return {category_id: a.get(category_id, 0) + b.get(category_id, 0) for category_id in {**a, **b}}

        return CategorySums(*(added(a, b) for a, b in zip(astuple(self), astuple(other), strict=True)))

    def compute(self, images: int, category_ids: Iterable[int]) -> dict[str, float]:
        """Return the RMSE of each category, over all images and over those that show it, averaged over categories.

        A category that no image shows has no RMSE on non-zero counts and is left out of that average.
        """
        categories = list(category_ids)
        outside = sorted(self.squared_error.keys() - set(categories))
        if outside:
            raise InputError(f"category_ids must hold every category that was added, but {outside[0]} is missing")
        if images < 1 or not categories:
            raise InputError(f"images and category_ids must not be empty, but got {images} and {len(categories)}")
        over_all = [(self.squared_error.get(c, 0.0) / images) ** 0.5 for c in categories]
        shown = [c for c in categories if self.nonzero.get(c, 0) > 0]
        over_nonzero = [(self.squared_error_nonzero[c] / self.nonzero[c]) ** 0.5 for c in shown]
        return {
            "mrmse": sum(over_all) / len(over_all),
            "mrmse_nz": sum(over_nonzero) / len(over_nonzero) if shown else float("nan"),
        }


@dataclass(frozen=True)
class CoverageSums:
    """How often intervals hold the true count and how wide they are, by groups of true or of predicted counts.

    >>> sums = CoverageSums.of(lows=[1, 0], highs=[2, 0], true_counts=[2, 7], grouped_by=[1, 0])
    >>> sums.coverage(), sums.coverage_by_group(), sums.width_by_group()
    (0.5, {'0': 0.0, '1': 1.0}, {'0': 0.0, '1': 1.0})
    """

    pairs: tuple[int, ...] = (0,) * len(COUNT_GROUPS)
    held: tuple[int, ...] = (0,) * len(COUNT_GROUPS)
    widths: tuple[int, ...] = (0,) * len(COUNT_GROUPS)  # largest minus smallest count of each interval

    @classmethod
    def of(cls, lows: ArrayLike, highs: ArrayLike, true_counts: ArrayLike, *, grouped_by: ArrayLike) -> Self:
        """Sum over pairs, all [P]: both ends of each interval, the true counts, and the counts that form groups."""
        truth = _vector("true_counts", true_counts)
        low, high = _vector("lows", lows, len(truth)), _vector("highs", highs, len(truth))
        counts = _vector("grouped_by", grouped_by, len(truth))
        inside = (low <= truth) & (truth <= high)
        groups = [
            (counts >= smallest) & (counts <= (np.inf if largest is None else largest))
            for smallest, largest, _ in COUNT_GROUPS
        ]
        return cls(
            tuple(int(group.sum()) for group in groups),
            tuple(int((group & inside).sum()) for group in groups),
            tuple(int((high - low)[group].sum()) for group in groups),
        )

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
        groups = zip(COUNT_GROUPS, self.pairs, sums, strict=True)
        return {name: total / pairs for (_, _, name), pairs, total in groups if pairs}


def _vector(name: str, values: ArrayLike, length: int | None = None) -> NDArray[np.float64]:
    vector = np.asarray(values, np.float64)
    if vector.ndim != 1 or (length is not None and len(vector) != length):
        expected = "[P]" if length is None else f"[{length}]"
        raise InputError(f"{name} must have shape {expected}, one for each pair, but got {list(vector.shape)}")
    if np.isnan(vector).any():
        raise InputError(f"{name} must be numbers, but got NaN at index {int(np.argmax(np.isnan(vector)))}")
    return vector
