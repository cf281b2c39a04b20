"""An estimator's file: safetensors for the weights, and a JSON header for everything else."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from torch import Tensor

from tallybox import __version__
from tallybox.detections.baselines import Metric, ThresholdCounter
from tallybox.errors import InputError, TallyboxError
from tallybox.estimator.calibration import AS_PREDICTED, Prevalence
from tallybox.estimator.config import EstimatorConfig, check_size
from tallybox.estimator.fitted import CurvePoint, Fitted, TotalCalibration
from tallybox.estimator.model import CountModel
from tallybox.estimator.prediction import IntervalLevels
from tallybox.files import error_summary, read_tensors, write_tensors

KIND = "tallybox.CountEstimator"
VERSION = 3
MAX_NUMBER = 1e6  # in a file; larger weights would overflow in single precision


def save_fitted(fitted: Fitted, path: Path) -> None:
    """Write a file atomically, if `load_fitted` would take it; the same estimator gives the same bytes."""
    tensors = {
        f"members.{index}.{name}": tensor
        for index, member in enumerate(fitted.members)
        for name, tensor in member.state_dict().items()
    }
    header = {
        "kind": KIND,
        "version": VERSION,
        "tallybox": __version__,
        "config": asdict(fitted.config),
        "category_ids": fitted.category_ids,
        "categories": {str(key): name for key, name in fitted.categories.items()},
        "baselines": {
            name: {metric: counter.to_dict() for metric, counter in tuned.items()}
            for name, tuned in fitted.baselines.items()
        },
        "interval_levels": fitted.levels,
        "interval_levels_listed": fitted.levels_listed,
        "prevalence": asdict(fitted.prevalence),
        "excess": fitted.excess,
        "totals": fitted.totals._asdict(),
        "learning_curve": [list(point) for point in fitted.learning_curve],
        "detector": fitted.detector,
    }
    try:
        _fitted(json.loads(json.dumps(header)), tensors)
    except (ValueError, RuntimeError) as error:
        raise TallyboxError(
            f"an estimator must hold numbers that can be loaded again, but: {error_summary(error)}; check boxes and "
            "labels"
        ) from None
    write_tensors(path, tensors, header)


def load_fitted(path: Path) -> Fitted:
    """Read what `save_fitted` wrote; a file that is anything else is an error of one line."""
    if not path.is_file():
        raise InputError(f"an estimator must be a file that tallybox fit wrote, but {path} is not there")
    try:
        header, tensors = read_tensors(path)
        if header["kind"] != KIND:
            raise ValueError(f"it holds a {header['kind']!r}")
        if header["version"] != VERSION:
            raise ValueError(
                f"it has version {header['version']!r}, and this tallybox reads version {VERSION}; "
                "fit it again, or install the tallybox that wrote it"
            )
        return _fitted(header, tensors)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
        raise InputError(f"{path} must be an estimator that tallybox fit wrote, but: {error_summary(error)}") from None


def _fitted(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Fitted:
    config = EstimatorConfig(**header["config"])
    category_ids = tuple(int(key) for key in header["category_ids"])
    check_size("the number of its categories", len(category_ids))
    if not all(-(2**63) <= key < 2**63 for key in category_ids):
        raise ValueError("its category ids are not numbers of 64 bits")
    if not category_ids or list(category_ids) != sorted(set(category_ids)):
        raise ValueError("its category ids are not in order")
    members = tuple(_member(config, len(category_ids), index, tensors) for index in range(config.members))
    if len(tensors) != sum(len(member.state_dict()) for member in members):
        raise ValueError("it holds more than its members")
    baselines = {
        name: {metric: ThresholdCounter.from_dict(header["baselines"][name][metric]) for metric in get_args(Metric)}
        for name in ("nms", "nms_per_category")
    }
    return Fitted(
        config,
        category_ids,
        {int(key): str(name) for key, name in header["categories"].items()},
        members,
        baselines,
        IntervalLevels(*_numbers("an interval level", header["interval_levels"], -1, 1)),
        IntervalLevels(*_numbers("an interval level", header["interval_levels_listed"], -1, 1)),
        _prevalence(**header["prevalence"]),
        _number("excess", header["excess"], 0, MAX_NUMBER),
        _totals(header.get("totals", {})),
        _curve(header.get("learning_curve", [])),
        tuple(str(word) for word in header.get("detector", ())),
    )


def _number(name: str, stored: Any, minimum: float, maximum: float) -> float:
    number = float(stored)
    if not minimum <= number <= maximum:
        raise ValueError(f"{name} must be from {minimum:g} to {maximum:g}, but it is {number:g}")
    return number


def _numbers(name: str, stored: Iterable[Any], minimum: float, maximum: float) -> tuple[float, ...]:
    return tuple(_number(name, number, minimum, maximum) for number in stored)


def _prevalence(weights: Any, undetected: Any) -> Prevalence:
    weights = _numbers("a weight of its prevalence", weights, -MAX_NUMBER, MAX_NUMBER)
    if len(weights) != len(AS_PREDICTED.weights):
        raise ValueError(f"its prevalence must have {len(AS_PREDICTED.weights)} weights, but it has {len(weights)}")
    return Prevalence(weights, _number("undetected", undetected, 0, 1))


def _totals(stored: Any) -> TotalCalibration:
    factors = {int(key): float(factor) for key, factor in (stored.get("factors") or {}).items()}
    totals = TotalCalibration(**{**stored, "factors": factors})
    _numbers("a scale of its totals", (totals.scale, totals.factor, *factors.values()), 1 / MAX_NUMBER, MAX_NUMBER)
    _number("the number of photos of its totals", totals.photos, 1, MAX_NUMBER**2)
    return totals


def _curve(stored: Any) -> tuple[CurvePoint, ...]:
    if len(stored) not in (0, 2):
        raise ValueError(f"its learning curve must have two points or none, but it has {len(stored)}")
    return tuple(
        CurvePoint(
            int(_number("a number of photos", photos, 1, MAX_NUMBER**2)),
            _number("a share of exact counts", exact, 0, 1),
            _number("a mean absolute error", mae, 0, MAX_NUMBER**2),
        )
        for photos, exact, mae in stored
    )


def _member(config: EstimatorConfig, categories: int, index: int, tensors: Mapping[str, Tensor]) -> CountModel:
    prefix = f"members.{index}."
    state = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    if not all((tensor.abs() <= MAX_NUMBER).all() for tensor in state.values()):
        raise ValueError(f"a weight is not a number or beyond {MAX_NUMBER:g}")
    model = CountModel(config, categories)
    model.load_state_dict(state)
    return model.eval()
