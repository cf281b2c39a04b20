"""What an estimator answers: a distribution, and the numbers people take from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Counts beyond ``max_objects`` of which the tail is written out; what lies further adds to the last.
TAIL = 200


class IntervalLevels(NamedTuple):
    """How probable a count must be to belong to an interval, as a share of the most probable one's probability.

    Large counts need less: a detector overlooks objects, so that they are never as clear as small ones.
    """

    zero: float
    one: float
    few: float  # 2 to 4
    many: float  # 5 or more

    def by_count(self, counts: int) -> Floats:
        """Return the level of each count from 0 on, ``[counts]``."""
        return np.array([self.zero, self.one, *[self.few] * 3, *[self.many] * max(counts - 5, 0)])[:counts]


@dataclass(frozen=True)
class CountPrediction:
    """How many there are of one category in one image.

    ``low`` and ``high`` belong to the interval, which holds nine of ten true counts. Counts from ``max_objects`` on are
    not told apart: where the most probable answer is "so many or more", ``at_least`` is that number, and ``count`` what
    the expected count suggests beyond it.
    """

    count: int  # the most probable
    expected: float
    median: int
    low: int
    high: int
    at_least: int  # 0 where the count is told apart from all others
    probabilities: Floats  # [max_objects + 1]; the last is "max_objects or more"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; ``at_least`` only where it says something."""
        said = {"count": self.count, "expected": round(self.expected, 4), "low": self.low, "high": self.high}
        return {**said, "at_least": self.at_least} if self.at_least else said

    @property
    def said(self) -> str:
        """The count for people: ``3``, or ``at least 14, about 17``."""
        return f"at least {self.at_least}, about {self.count}" if self.at_least else str(self.count)


class Answered(NamedTuple):
    """Predictions of many questions as arrays, all ``[Q]``."""

    counts: NDArray[np.int64]
    expected: Floats
    medians: NDArray[np.int64]
    lows: NDArray[np.int64]
    highs: NDArray[np.int64]
    at_least: NDArray[np.int64]
    probabilities: Floats  # [Q, max_objects + 1]

    def each(self) -> list[CountPrediction]:
        """Return the predictions one by one."""
        columns = [column.tolist() for column in self[:-1]]
        return [CountPrediction(*row) for row in zip(*columns, self.probabilities, strict=True)]

    def by_image(self, asked: Sequence[Sequence[int]]) -> Iterator[dict[int, CountPrediction]]:
        """Yield the predictions of each image by category id, of which each was asked its own."""
        each = iter(self.each())
        for category_ids in asked:
            yield {category_id: next(each) for category_id in category_ids}


def beyond(excess: float, expected: Floats, max_objects: int) -> Floats:
    """Return the mean count beyond ``max_objects`` where there are more, ``[Q]``, from the component's own counts."""
    return excess + np.maximum(expected - max_objects, 0)


def read_off(probabilities: Floats, excess: Floats, levels: IntervalLevels) -> Answered:
    """Take counts from distributions ``[Q, K + 1]``; ``excess [Q]`` is the mean count beyond K where there are more.

    >>> levels = IntervalLevels(0.2, 0.2, 0.2, 0.2)
    >>> read_off(np.array([[0.1, 0.7, 0.2]]), np.array([0.0]), levels).each()[0].to_dict()
    {'count': 1, 'expected': 1.1, 'low': 1, 'high': 2}
    """
    last = probabilities.shape[1] - 1
    best = probabilities.argmax(1)
    written_out = with_tail(probabilities, excess)
    lows, highs = interval(written_out, levels)
    return Answered(
        counts=np.where(best == last, last + np.floor(excess + 0.5).astype(np.int64), best),
        expected=probabilities @ np.arange(last + 1) + probabilities[:, last] * excess,
        medians=(written_out.cumsum(1) < 0.5 - 1e-12).sum(1).clip(max=written_out.shape[1] - 1),
        lows=lows,
        highs=highs,
        at_least=np.where(best == last, last, 0),
        probabilities=probabilities,
    )


def with_tail(probabilities: Floats, excess: Floats) -> Floats:
    """Write "K or more" out as a geometric distribution with the mean ``excess``: ``[Q, K + 1]`` to ``[Q, K + TAIL]``.

    Where all means are small, so is the tail that is written out.
    """
    last = probabilities.shape[1] - 1
    steps = np.arange(min(TAIL, 2 + int(10 * excess.max(initial=0))))
    ratio = (excess / (1 + excess))[:, None]
    tail = probabilities[:, last:] * (1 - ratio) * ratio**steps
    tail[:, -1] += probabilities[:, last] - tail.sum(1)
    return np.concatenate((probabilities[:, :last], tail), axis=1)


def interval(probabilities: Floats, levels: IntervalLevels) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the smallest and the largest count, [Q], that is probable enough in ``[Q, counts]``."""
    share = probabilities / probabilities.max(1, keepdims=True)
    enough = (share >= levels.by_count(probabilities.shape[1])) | (share >= 1)
    return enough.argmax(1), probabilities.shape[1] - 1 - enough[:, ::-1].argmax(1)
