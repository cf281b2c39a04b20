"""An estimator's file: safetensors for the weights, and in its metadata a JSON header for everything else."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from tallybox import __version__
from tallybox.detections.baselines import Metric, ThresholdCounter
from tallybox.errors import InputError
from tallybox.estimator.calibration import AS_PREDICTED, Prevalence
from tallybox.estimator.configuration import EstimatorConfig
from tallybox.estimator.fitting import Fitted
from tallybox.estimator.model import CountModel
from tallybox.estimator.prediction import IntervalLevels
from tallybox.files import import_optional

KIND = "tallybox.CountEstimator"
VERSION = 2
LARGEST_SIZE = 4096  # of anything in a configuration: a file must not make us allocate what it likes


def save_fitted(fitted: Fitted, path: Path) -> None:
    """Write a file that is there whole or not at all."""
    tensors = {
        f"members.{index}.{name}": tensor.contiguous()
        for index, member in enumerate(fitted.members)
        for name, tensor in member.state_dict().items()
    }
    header = {
        "kind": KIND,
        "version": VERSION,
        "tallybox": __version__,
        "config": fitted.config.to_dict(),
        "category_ids": list(fitted.category_ids),
        "categories": {str(key): name for key, name in fitted.categories.items()},
        "baselines": {
            name: {metric: counter.to_dict() for metric, counter in tuned.items()}
            for name, tuned in fitted.baselines.items()
        },
        "interval_levels": list(fitted.levels),
        "interval_levels_listed": list(fitted.levels_listed),
        "prevalence": asdict(fitted.prevalence),
        "excess": fitted.excess,
    }
    text = json.dumps(header)
    content = _safetensors().save(tensors, {"tallybox": text, "sha256": _digest(text, tensors)})
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".unfinished")
    with unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def load_fitted(path: Path) -> Fitted:
    """Read what `save_fitted` wrote, or say in one line what is wrong with the file."""
    text, digest, tensors = _read(path)
    try:
        header = json.loads(text)
        if header["kind"] != KIND:
            raise ValueError(f"it holds a {header['kind']!r}")
        if header["version"] != VERSION:
            raise InputError(
                f"{path} is an estimator of version {header['version']!r}, but this tallybox reads version {VERSION}; "
                "fit it again, or install the tallybox that wrote it"
            )
        if digest != _digest(text, tensors):
            raise ValueError("its content was changed after it was written")
        return _fitted(header, tensors)
    except InputError as error:
        raise error if str(error).startswith(str(path)) else _not_one(path, error) from None
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise _not_one(path, error) from None


def _fitted(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Fitted:
    config = EstimatorConfig.from_dict(header["config"])
    sizes = [config.max_objects, config.heads, config.proposals, config.members, config.hidden]
    category_ids = tuple(int(key) for key in header["category_ids"])
    if max(*sizes, len(category_ids)) > LARGEST_SIZE:
        raise ValueError("its sizes are beyond reason")
    if not category_ids or list(category_ids) != sorted(set(category_ids)):
        raise ValueError("its category ids are not in order")
    members = tuple(_member(config, len(category_ids), index, tensors) for index in range(config.members))
    if len(tensors) != sum(len(member.state_dict()) for member in members):
        raise ValueError("it holds more than its members")
    return Fitted(
        config,
        category_ids,
        {int(key): str(name) for key, name in header["categories"].items()},
        members,
        {
            name: {metric: ThresholdCounter.from_dict(header["baselines"][name][metric]) for metric in get_args(Metric)}
            for name in ("nms", "nms_per_category")
        },
        _levels(header["interval_levels"]),
        _levels(header["interval_levels_listed"]),
        _prevalence(header["prevalence"]),
        max(float(header["excess"]), 0.0),
    )


def _prevalence(stored: Any) -> Prevalence:
    weights = tuple(float(weight) for weight in stored["weights"])
    if len(weights) != len(AS_PREDICTED.weights) or not all(map(isfinite, weights)):
        raise ValueError(f"its prevalence must have {len(AS_PREDICTED.weights)} weights, but it has {len(weights)}")
    return Prevalence(weights, undetected=float(stored["undetected"]))


def _levels(stored: Any) -> IntervalLevels:
    levels = IntervalLevels(*(float(level) for level in stored))
    if not all(-1 <= level <= 1 for level in levels):
        raise ValueError(f"its interval levels are {list(levels)}")
    return levels


def _member(config: EstimatorConfig, categories: int, index: int, tensors: Mapping[str, Tensor]) -> CountModel:
    prefix = f"members.{index}."
    state = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    if not all(tensor.isfinite().all() for tensor in state.values()):
        raise ValueError("a weight is not finite")
    model = CountModel(config, categories)
    model.load_state_dict(state)
    return model.eval()


def _read(path: Path) -> tuple[str, str, dict[str, Tensor]]:
    package = _safetensors()
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise InputError(f"an estimator must be a file that tallybox fit wrote, but {path} is not there")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        tensors = package.load(path.read_bytes())
    except (SafetensorError, OSError, ValueError) as error:
        raise _not_one(path, error) from None
    if "tallybox" not in metadata or "sha256" not in metadata:
        raise _not_one(path, ValueError("its header is not tallybox's"))
    return metadata["tallybox"], metadata["sha256"], tensors


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _not_one(path: Path, error: Exception) -> InputError:
    first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
    return InputError(f"{path} must be an estimator that tallybox fit wrote, but: {first_line}")


def _safetensors() -> Any:
    return import_optional("safetensors.torch", needed_for="an estimator's file", install="'tallybox[detections]'")
