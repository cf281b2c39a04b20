"""The state of a fitted estimator, and its file: safetensors for the parameters, a JSON header for everything else."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tallybox import __version__
from tallybox.detections.baselines import Metric, ThresholdCounter
from tallybox.errors import InputError, TallyboxError
from tallybox.estimator.calibration import AS_PREDICTED, Prevalence
from tallybox.estimator.inputs import EstimatorConfig
from tallybox.estimator.model import CountEnsemble
from tallybox.estimator.nms_counts import NmsCounts
from tallybox.estimator.prediction import Floats, IntervalLevels
from tallybox.files import error_summary, read_tensors, write_tensors

KIND = "tallybox.CountEstimator"
VERSION = 4
UNCALIBRATED = (0.8,) * 4  # with them, intervals have about 90 % of the probability


@dataclass(frozen=True)
class TotalCalibration:
    """Factors of totals and of the widths of their intervals, from held-out photos."""

    scale: float = 1.0  # of intervals
    photos: int = 1  # labelled photos; the fewer, the larger the error that all images share
    factor: float = 1.0  # true over expected totals, of all categories
    factors: Mapping[int, float] = field(default_factory=dict)  # the same of each category, by its id
    calibrated: bool = True  # False if no scale covers 90 % of the held-out totals

    def scale_for(self, images: int) -> float:
        """Return the scale for a total over so many images."""
        return float(self.scale * (1 + images / self.photos) ** 0.5)

    def factors_of(self, category_ids: Iterable[int]) -> Floats:
        """Return the factor of each category, ``[C]``."""
        return np.array([self.factors.get(key, self.factor) for key in category_ids])


@dataclass(frozen=True)
class Fitted:
    """Everything that is learned. The file has tensors of the first two fields, and the others under their names."""

    ensemble: CountEnsemble
    nms: NmsCounts | None
    config: EstimatorConfig
    category_ids: tuple[int, ...]  # those with labels; row r + 1 of the ensemble's tables is the r-th
    categories: Mapping[int, str]
    tail_mean: float  # mean count beyond max_objects of pairs that have more
    nms_share: float = 0.0  # of the counts of NMS in the predicted distributions
    # "nms" and "nms_per_category", each tuned for each metric
    baselines: Mapping[str, Mapping[Metric, ThresholdCounter]] = field(default_factory=dict)
    interval_levels: IntervalLevels = UNCALIBRATED  # for `counting_pairs`
    interval_levels_listed: IntervalLevels = UNCALIBRATED  # for listed categories
    prevalence: Prevalence = AS_PREDICTED
    totals: TotalCalibration = TotalCalibration()
    cross_validation: Mapping[str, Any] = field(default_factory=dict)  # figures of `fit`
    named: bool = False  # whether the detections had names of categories
    longer_side: int = 0  # pixels, the median over the labelled photos; 0 if it is not known
    detector: tuple[str, ...] = ()  # SPEC and phrases of the detector; empty if the boxes came from a file


def save_fitted(fitted: Fitted, path: Path) -> None:
    """Write a file atomically; the same estimator gives the same bytes."""
    state = dict(vars(fitted))
    tensors = {f"ensemble.{name}": tensor for name, tensor in state.pop("ensemble").state_dict().items()}
    if nms := state.pop("nms"):
        tensors |= {f"nms.{name}": torch.from_numpy(array) for name, array in nms._asdict().items()}
    header = {"kind": KIND, "version": VERSION, "tallybox": __version__, **state}
    try:
        text = json.dumps(header, default=asdict, allow_nan=False)
        if not all(tensor.isfinite().all() for tensor in tensors.values()):
            raise ValueError("a parameter is not finite")
    except ValueError as error:
        raise TallyboxError(f"Fitting diverged ({error_summary(error)}). Check boxes and labels.") from None
    write_tensors(path, tensors, json.loads(text))


def load_fitted(path: Path) -> Fitted:
    """Read a file of `save_fitted`; any other file is an error of one line."""
    if not path.is_file():
        raise InputError(f"No such estimator: {path}")
    try:
        header, tensors = read_tensors(path)
        kind, version, _ = (header.pop(key) for key in ("kind", "version", "tallybox"))
        if (kind, version) != (KIND, VERSION):
            remedy = "fit it again, or install the tallybox that wrote it"
            raise ValueError(f"it is {kind} of version {version}, and this tallybox reads version {VERSION}; {remedy}")
        return _fitted(header, tensors)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError, IndexError) as error:
        raise InputError(f"{path} is not an estimator that tallybox fit wrote: {error_summary(error)}") from None


def _fitted(header: dict[str, Any], tensors: Mapping[str, Tensor]) -> Fitted:
    config = EstimatorConfig(**header.pop("config"))
    ensemble = CountEnsemble(config, len(header["category_ids"]), config.members)
    prefix = "ensemble."
    ensemble.load_state_dict({name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)})
    totals = header["totals"]
    converted = {
        **{name: tuple(value) for name, value in header.items() if isinstance(value, list)},
        "categories": {int(key): name for key, name in header["categories"].items()},
        "baselines": {
            name: {metric: ThresholdCounter.from_dict(counter) for metric, counter in tuned.items()}
            for name, tuned in header["baselines"].items()
        },
        "prevalence": Prevalence(**header["prevalence"]),
        "totals": TotalCalibration(**totals | {"factors": {int(key): f for key, f in totals["factors"].items()}}),
    }
    nms = NmsCounts(tensors["nms.columns"].numpy(), tensors["nms.tables"].numpy())
    return Fitted(ensemble.eval(), nms, config, **header | converted)
