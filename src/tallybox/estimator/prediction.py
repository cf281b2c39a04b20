"""Predictions: a distribution of counts, its median and mean, and an interval.

Legend: P pairs of an image and a category, K ``max_objects``, T counts with the tail written out.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tallybox.detections.categories import category_id_of
from tallybox.detections.metrics import count_metrics, groups_of, mean_by_group
from tallybox.errors import InputError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Key = TypeVar("Key")
# How far intervals grow, for each of the `COUNT_GROUPS` of predicted counts: 1 takes in every count, -1 the median only
IntervalLevels = tuple[float, ...]

# How many counts from ``max_objects`` on are written out; larger counts add to the last. The number is the same for all
# pairs, so that a prediction does not depend on the pairs in its batch.
TAIL = 200
ROUNDING_SLACK = 1e-12  # of sums of probabilities


@dataclass(frozen=True)
class CountPrediction:
    """How many objects of one category there are in one image.

    ``count`` is the median of the distribution, which has the smallest expected absolute error. ``low`` and ``high``
    are the ends of a 90 % interval: among all predictions with such a count, nine of ten intervals cover the true
    count. Counts from ``max_objects`` on share one probability: if the median is that large, the prediction is
    ``saturated``, and ``count`` uses the boxes beyond it.
    """

    count: int
    most_probable: int
    expected: float
    low: int
    high: int
    saturated: bool  # the category has more likely boxes than take part, or the count reaches ``max_objects``
    probabilities: Floats  # [K + 1]; the last is "max_objects or more"
    calibrated: bool = True  # False without training labels for this detector or category

    @property
    def probability_of_any(self) -> float:
        """How probable it is that there is at least one."""
        return 1 - float(self.probabilities[0])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; ``saturated`` and ``calibrated`` only if they are unusual."""
        return {
            "count": self.count,
            "most_probable": self.most_probable,
            "expected": round(self.expected, 4),
            "low": self.low,
            "high": self.high,
            **({"saturated": True} if self.saturated else {}),
            **({} if self.calibrated else {"calibrated": False}),
        }

    def __str__(self) -> str:
        """Return the count as text: ``3``, or ``about 17`` if a limit was reached."""
        return f"about {self.count}" if self.saturated else str(self.count)


@dataclass(frozen=True)
class TotalPrediction:
    """How many objects of one category there are in all images together."""

    expected: float  # the best number for a total; the sum of the counts, which are medians, is too low
    low: int  # nine of ten such intervals cover the true total
    high: int
    images: int
    calibrated: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; ``calibrated`` only if it is false."""
        values = {"expected": round(self.expected, 2), "low": self.low, "high": self.high, "images": self.images}
        return values if self.calibrated else {**values, "calibrated": False}


def most_first(predictions: Mapping[Key, CountPrediction]) -> list[tuple[Key, CountPrediction]]:
    """Return predictions in the order of pictures, pages and lines: the most objects first."""
    return sorted(predictions.items(), key=lambda pair: (-pair[1].count, -pair[1].expected))


def interval_text(prediction: CountPrediction | TotalPrediction) -> str:
    """Return a 90 % interval as text: ``3–9``, or one number if it holds no other."""
    low, high = prediction.low, prediction.high
    return str(low) if low == high else f"{low}–{high}"


def marked_interval(prediction: CountPrediction | TotalPrediction) -> str:
    """Return a 90 % interval as text, with a note if it is uncalibrated or a limit was reached."""
    uncalibrated = "" if prediction.calibrated else ", uncalibrated"
    saturated = ", limit reached" if isinstance(prediction, CountPrediction) and prediction.saturated else ""
    return f"{interval_text(prediction)}{uncalibrated}{saturated}"


ABSENT = CountPrediction(0, 0, 0.0, 0, 0, saturated=False, probabilities=np.ones(1))


class ImagePredictions(dict[int, CountPrediction]):
    """The predictions of one image by category id; a category's name is a key as well.

    ``names`` are those of all categories that the estimator knows. If the predictions are ``complete``, a known
    category that is not listed counts 0; otherwise only some categories were counted.

    >>> dog = CountPrediction(2, 2, 2.1, 1, 3, False, np.array([0.0, 0.1, 0.8, 0.1]))
    >>> predictions = ImagePredictions({18: dog}, {17: "cat", 18: "dog"})
    >>> predictions["dog"] is predictions[18], [*predictions], [*predictions.by_name()]
    (True, [18], ['dog'])
    >>> predictions["cat"].count, "cat" in predictions
    (0, False)
    """

    def __init__(
        self,
        by_id: Mapping[int, CountPrediction],
        names: Mapping[int, str],
        *,
        complete: bool = True,
        moments: Mapping[int, Floats] | None = None,
        inputs: Any = None,
    ) -> None:
        super().__init__(by_id)
        self._names, self._complete = names, complete
        self.moments = moments or {}  # by category id, of all detected categories: `Totals` adds them up
        self.inputs = inputs  # `ModelInputs` of the categories, if they were kept for `CountEstimator.explain`

    def __getitem__(self, category: int | str) -> CountPrediction:
        category_id = category_id_of(category, self._names) if isinstance(category, str) else category
        if category_id in self.keys():
            return super().__getitem__(category_id)
        if not self._complete or category_id not in self._names:
            raise InputError(f"Category {category!r} was not counted, only {', '.join(self.by_name()) or 'nothing'}.")
        return ABSENT

    def __contains__(self, category: object) -> bool:
        return category in self.keys() or category in self.by_name()

    def get(self, category: Any, default: Any = None) -> Any:
        """Return the prediction of a category that is listed, else the default."""
        return self[category] if category in self else default  # noqa: SIM401 - it is what get does

    def __repr__(self) -> str:
        counts = ", ".join(f"{name}: {p} ({interval_text(p)})" for name, p in self.by_name().items())
        return f"ImagePredictions({counts})"

    def by_name(self) -> "NamedPredictions":
        """Return the predictions by the categories' names (an id as text if it has no name)."""
        return NamedPredictions(self, {self._names.get(key, str(key)): p for key, p in self.items()})


class NamedPredictions(dict[str, CountPrediction]):
    """The predictions of one image by name; ``counts["dog"]`` is a zero prediction if no dog is listed."""

    def __init__(self, image: ImagePredictions, by_name: Mapping[str, CountPrediction]) -> None:
        super().__init__(by_name)
        self._image = image

    def __missing__(self, name: str) -> CountPrediction:
        return self._image[name]


class PredictionArrays(NamedTuple):
    """Predictions of many pairs as arrays, all ``[P]`` but the last."""

    counts: Integers  # medians
    most_probable: Integers
    expected: Floats
    lows: Integers
    highs: Integers
    saturated: Booleans
    probabilities: Floats  # [P, K + 1]

    def metrics(self, true_counts: Integers) -> dict[str, float]:
        """Return exact by the most probable count, MAE by the median, RMSE by the mean."""
        return count_metrics(self.most_probable, true_counts, medians=self.counts, means=self.expected)

    def covers(self, true_counts: Integers) -> Booleans:
        """Return which intervals cover the true counts ``[P]``."""
        return (self.lows <= true_counts) & (true_counts <= self.highs)

    def coverage(self, true_counts: Integers) -> dict[str, Any]:
        """Return how often intervals cover the true counts ``[P]``."""
        covers = self.covers(true_counts)
        return {"coverage90": float(covers.mean()), "coverage90_by_predicted_count": mean_by_group(covers, self.counts)}

    @classmethod
    def joined(cls, parts: Iterable["PredictionArrays"]) -> "PredictionArrays":
        """Return the predictions of several parts."""
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    def at(self, rows: Any) -> "PredictionArrays":
        """Return the predictions of some pairs."""
        return PredictionArrays(*(array[rows] for array in self))

    def each(self) -> list[CountPrediction]:
        """Return the predictions one by one."""
        columns = [column.tolist() for column in self[:-1]]
        return [CountPrediction(*row) for row in zip(*columns, self.probabilities, strict=True)]


def summarise(probabilities: Floats, tail_mean: Floats, levels: IntervalLevels) -> PredictionArrays:
    """Take counts and intervals from distributions ``[P, K + 1]``; ``tail_mean [P]`` is the mean count beyond K."""
    last = probabilities.shape[1] - 1
    best = probabilities.argmax(1)
    with_tail = write_out_tail(probabilities, tail_mean)
    medians = medians_of(with_tail)
    lows, highs = intervals(with_tail, medians, np.array(levels)[groups_of(medians)])
    return PredictionArrays(
        counts=medians,
        most_probable=np.where(best == last, last + np.floor(tail_mean + 0.5).astype(np.int64), best),
        expected=mean_of(probabilities, tail_mean),
        lows=lows,
        highs=highs,
        saturated=medians >= last,
        probabilities=probabilities,
    )


def mean_of(probabilities: Floats, tail_mean: Floats) -> Floats:
    """Return the mean counts ``[..., P]`` of distributions ``[..., P, K + 1]``."""
    mean: Floats = probabilities @ np.arange(probabilities.shape[-1]) + probabilities[..., -1] * tail_mean
    return mean


def second_moment_of(probabilities: Floats, tail_mean: Floats) -> Floats:
    """Return the mean squared counts ``[..., P]``; the tail is geometric as in `write_out_tail`."""
    last = probabilities.shape[-1] - 1
    of_tail = 2 * last * tail_mean + tail_mean + 2 * tail_mean**2
    moment: Floats = probabilities @ np.arange(last + 1) ** 2 + probabilities[..., -1] * of_tail
    return moment


def write_out_tail(probabilities: Floats, tail_mean: Floats) -> Floats:
    """Write "K or more" out as a geometric distribution with this mean: ``[P, K + 1]`` to ``[P, K + TAIL]``."""
    last = probabilities.shape[1] - 1
    steps = np.arange(TAIL)
    ratio = (tail_mean / (1 + tail_mean))[:, None]
    tail = probabilities[:, last:] * (1 - ratio) * ratio**steps
    tail[:, -1] += probabilities[:, last] - tail.sum(1)
    return np.concatenate((probabilities[:, :last], tail), axis=1)


def medians_of(probabilities: Floats) -> Integers:
    """Return the medians ``[P]`` of distributions ``[P, T]``."""
    medians: Integers = (probabilities.cumsum(1) < 0.5 - ROUNDING_SLACK).sum(1)
    return medians.clip(max=probabilities.shape[1] - 1)


def intervals(probabilities: Floats, medians: Integers, levels: Floats) -> tuple[Integers, Integers]:
    """Return the ends ``[P]`` of intervals around the medians of distributions ``[P, T]``.

    An interval grows while its score is below its level ``[P]``: while it holds little, or while the neighbour is
    probable. Without the second term, intervals of the same coverage are 3 % wider around 0 and 1.
    """
    return _grow(probabilities, medians, lambda lows, highs, scores: scores < levels)[:2]


def levels_needed(probabilities: Floats, medians: Integers, true_counts: Integers) -> Floats:
    """Return the levels above which intervals cover the true counts, ``[P]``.

    The level is -1 where the true count is the median, which every interval holds, and infinite where it is larger than
    all counts of the distribution.
    """
    last = probabilities.shape[1] - 1
    held = true_counts.clip(max=last)
    _, _, needed = _grow(probabilities, medians, lambda lows, highs, scores: (held < lows) | (highs < held))
    return np.where(true_counts > last, np.inf, needed)


def _grow(
    probabilities: Floats, medians: Integers, grows: Callable[[Integers, Integers, Floats], Booleans]
) -> tuple[Integers, Integers, Floats]:
    """Grow intervals from the medians by one count at a time; return their ends and their highest scores, all ``[P]``.

    An interval that grows takes in the more probable of its two neighbours, of equal ones the larger. Its score is the
    probability that it holds already, less that of the neighbour. ``grows`` returns which intervals grow further.
    """
    # A border of impossible counts on both sides, which no interval takes in.
    padded = np.pad(probabilities, ((0, 0), (1, 1)), constant_values=-np.inf)
    rows = np.arange(len(medians))
    lows, highs, mass = medians.copy(), medians.copy(), probabilities[rows, medians]
    highest = np.full(len(medians), -1.0)
    while True:
        below, above = padded[rows, lows], padded[rows, highs + 2]
        neighbour = np.maximum(below, above)
        chosen = grows(lows, highs, mass - neighbour)
        if not chosen.any():
            return lows, highs, highest
        highest = np.where(chosen, np.maximum(highest, mass - neighbour), highest)
        downwards = chosen & (below > above)
        lows -= downwards
        highs += chosen & ~downwards
        mass += np.where(chosen, neighbour, 0)
