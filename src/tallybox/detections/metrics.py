"""Metrics of counts. Arrays are ``[P]``, one entry for each pair of an image and a category."""

from collections.abc import Collection

import numpy as np
from numpy.typing import ArrayLike, NDArray

COUNT_GROUPS = {0: "0", 1: "1", 2: "2-4", 5: "5+"}  # names of groups of counts, by the smallest of each


def groups_of(counts: ArrayLike) -> NDArray[np.int64]:
    """Return the index of the group that each count is in."""
    return np.searchsorted(list(COUNT_GROUPS), counts, side="right") - 1


def mean_by_group(values: ArrayLike, counts: ArrayLike) -> dict[str, float]:
    """Return the mean of the values in each group of counts that has some."""
    rows, numbers = groups_of(counts), np.asarray(values, np.float64)
    chosen = {name: rows == index for index, name in enumerate(COUNT_GROUPS.values())}
    return {name: float(numbers[of_group].mean()) for name, of_group in chosen.items() if of_group.any()}


def count_metrics(
    counts: ArrayLike, true_counts: ArrayLike, medians: ArrayLike | None = None, means: ArrayLike | None = None
) -> dict[str, float]:
    """Return the share of exact counts, the mean absolute and the root mean squared error.

    They are those of the most probable counts, the medians and the means of the predictions. A method with one number
    for all three gives ``counts`` only. To be exact, a count is rounded, half a count upwards.
    """
    best, truth = np.asarray(counts, np.float64), np.asarray(true_counts, np.float64)
    median = best if medians is None else np.asarray(medians, np.float64)
    mean = best if means is None else np.asarray(means, np.float64)
    return {
        "exact": float((np.floor(best + 0.5) == truth).mean()),
        "mae": float(np.abs(median - truth).mean()),
        "rmse": float(np.sqrt(((mean - truth) ** 2).mean())),
    }


def category_errors(
    category_ids: ArrayLike, means: ArrayLike, true_counts: ArrayLike, *, images: int, categories: Collection[int]
) -> dict[str, float | None]:
    """Return mRMSE and mRMSE-nz of Chattopadhyay et al. 2017 over every image and category.

    They are the RMSE of each category, over all images and over those that have it, averaged over ``categories``. Pairs
    that are not given have a count and a true count of 0. Without any object, mRMSE-nz is None.
    """
    truth = np.asarray(true_counts, np.float64)
    error = (np.asarray(means, np.float64) - truth) ** 2
    rows = np.unique(np.asarray(category_ids), return_inverse=True)[1]
    total, nonzero, number = (np.bincount(rows, values) for values in (error, error * (truth > 0), truth > 0))
    present = number > 0
    return {
        "mrmse": float(np.sqrt(total / images).sum() / len(categories)),
        "mrmse_nz": float(np.sqrt(nonzero[present] / number[present]).mean()) if present.any() else None,
    }
