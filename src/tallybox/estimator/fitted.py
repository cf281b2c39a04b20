"""The state of a fitted estimator: everything that its file stores."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tallybox.detections.baselines import Metric, ThresholdCounter
from tallybox.estimator.calibration import AS_PREDICTED, Prevalence
from tallybox.estimator.config import EstimatorConfig
from tallybox.estimator.model import CountEnsemble
from tallybox.estimator.nms_counts import NmsCounts
from tallybox.estimator.prediction import Floats, IntervalLevels

TunedBaselines = Mapping[str, Mapping[Metric, ThresholdCounter]]  # "nms", "nms_per_category", each for each metric

UNCALIBRATED_LEVEL = 0.8  # with it, intervals have about 90 % of the probability


class TotalCalibration(NamedTuple):
    """Factors of totals and of the widths of their intervals, from held-out photos."""

    scale: float = 1.0  # of intervals
    photos: int = 1  # labelled photos; the fewer, the larger the error that all images share
    factor: float = 1.0  # true over expected totals, of all categories
    factors: Mapping[int, float] = {}  # the same of each category, by its id
    calibrated: bool = True  # False if no scale covers 90 % of the held-out totals

    def scale_for(self, images: int) -> float:
        """Return the scale for a total over so many images."""
        return float(self.scale * (1 + images / self.photos) ** 0.5)

    def factors_of(self, category_ids: Iterable[int]) -> Floats:
        """Return the factor of each category, ``[C]``."""
        return np.array([self.factors.get(key, self.factor) for key in category_ids])


@dataclass(frozen=True)
class Fitted:
    """Everything that is learned, and stored in an estimator's file."""

    config: EstimatorConfig
    category_ids: tuple[int, ...]  # those with labels; row r + 1 of the ensemble's tables is the r-th
    categories: Mapping[int, str]
    ensemble: CountEnsemble
    tail_mean: float  # mean count beyond max_objects of pairs that have more
    nms: NmsCounts | None = None
    nms_share: float = 0.0  # of the counts of NMS in the predicted distributions
    baselines: TunedBaselines = field(default_factory=dict)
    levels: IntervalLevels = IntervalLevels(*[UNCALIBRATED_LEVEL] * 4)  # noqa: RUF009 - for `counting_pairs`
    levels_listed: IntervalLevels = IntervalLevels(*[UNCALIBRATED_LEVEL] * 4)  # noqa: RUF009 - for listed categories
    prevalence: Prevalence = AS_PREDICTED
    totals: TotalCalibration = TotalCalibration()  # noqa: RUF009 - it cannot be changed
    cross_validation: Mapping[str, Any] = field(default_factory=dict)  # figures of `fit`
    named: bool = False  # whether the detections had names of categories
    longer_side: int = 0  # pixels, the median over the labelled photos; 0 if it is not known
    detector: tuple[str, ...] = ()  # SPEC and phrases of the detector; empty if the boxes came from a file


def untrained(config: EstimatorConfig, categories: Mapping[int, str]) -> Fitted:
    """Return an estimator before it is trained: the untrained component, which takes scores as probabilities."""
    # The names are copied, so that they can be pickled whatever mapping is given.
    return Fitted(config, (), dict(categories), CountEnsemble(config, 0, members=1).eval(), tail_mean=0.5)
