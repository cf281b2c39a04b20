"""An estimator's file: safetensors for the parameters, and a JSON header for everything else."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tallybox import __version__
from tallybox.detections.baselines import ThresholdCounter
from tallybox.errors import InputError, TallyboxError
from tallybox.estimator.calibration import Prevalence
from tallybox.estimator.config import EstimatorConfig
from tallybox.estimator.fitted import Fitted, TotalCalibration
from tallybox.estimator.model import CountEnsemble
from tallybox.estimator.nms_counts import NmsCounts
from tallybox.estimator.prediction import IntervalLevels
from tallybox.files import error_summary, read_tensors, write_tensors

KIND = "tallybox.CountEstimator"
VERSION = 4


def save_fitted(fitted: Fitted, path: Path) -> None:
    """Write a file atomically; the same estimator gives the same bytes."""
    tensors = {f"ensemble.{name}": tensor for name, tensor in fitted.ensemble.state_dict().items()}
    if fitted.nms is not None:
        tensors |= {f"nms.{name}": torch.from_numpy(array) for name, array in fitted.nms._asdict().items()}
    header = {
        "kind": KIND,
        "version": VERSION,
        "tallybox": __version__,
        "config": asdict(fitted.config),
        "category_ids": fitted.category_ids,
        "categories": {str(key): name for key, name in fitted.categories.items()},
        "tail_mean": fitted.tail_mean,
        "nms_share": fitted.nms_share,
        "baselines": {
            name: {metric: asdict(counter) for metric, counter in tuned.items()}
            for name, tuned in fitted.baselines.items()
        },
        "interval_levels": fitted.levels,
        "interval_levels_listed": fitted.levels_listed,
        "prevalence": asdict(fitted.prevalence),
        "totals": fitted.totals._asdict(),
        "cross_validation": fitted.cross_validation,
        "named": fitted.named,
        "longer_side": fitted.longer_side,
        "detector": fitted.detector,
    }
    try:
        json.dumps(header, allow_nan=False)
        if not all(tensor.isfinite().all() for tensor in tensors.values()):
            raise ValueError("a parameter is not finite")
    except ValueError as error:
        raise TallyboxError(f"Fitting diverged ({error_summary(error)}). Check boxes and labels.") from None
    write_tensors(path, tensors, header)


def load_fitted(path: Path) -> Fitted:
    """Read a file of `save_fitted`; any other file is an error of one line."""
    if not path.is_file():
        raise InputError(f"No such estimator: {path}")
    try:
        header, tensors = read_tensors(path)
        if header["kind"] != KIND:
            raise ValueError(f"it is a {header['kind']!r}")
        if header["version"] != VERSION:
            raise ValueError(
                f"its format has version {header['version']!r}, and this tallybox reads version {VERSION}; fit it "
                "again, or install the tallybox that wrote it"
            )
        return _fitted(header, tensors)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError, IndexError) as error:
        raise InputError(f"{path} is not an estimator that tallybox fit wrote: {error_summary(error)}") from None


def _fitted(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Fitted:
    config = EstimatorConfig(**header["config"])
    category_ids = tuple(int(key) for key in header["category_ids"])
    ensemble = CountEnsemble(config, len(category_ids), config.members)
    prefix = "ensemble."
    ensemble.load_state_dict({name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)})
    nms = NmsCounts(tensors["nms.columns"].numpy().astype(np.int64), tensors["nms.tables"].numpy().astype(np.float64))
    prevalence, totals = header["prevalence"], header["totals"]
    return Fitted(
        config=config,
        category_ids=category_ids,
        categories={int(key): str(name) for key, name in header["categories"].items()},
        ensemble=ensemble.eval(),
        tail_mean=float(header["tail_mean"]),
        nms=nms,
        nms_share=float(header["nms_share"]),
        baselines={
            name: {metric: ThresholdCounter.from_dict(counter) for metric, counter in tuned.items()}
            for name, tuned in header["baselines"].items()
        },
        levels=IntervalLevels(*header["interval_levels"]),
        levels_listed=IntervalLevels(*header["interval_levels_listed"]),
        prevalence=Prevalence(tuple(prevalence["weights"]), float(prevalence["undetected"])),
        totals=TotalCalibration(**{**totals, "factors": {int(key): f for key, f in totals["factors"].items()}}),
        cross_validation=header["cross_validation"],
        named=bool(header.get("named", False)),
        longer_side=int(header.get("longer_side", 0)),  # the bundled estimator has neither
        detector=tuple(header["detector"]),
    )
