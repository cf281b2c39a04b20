"""A detector that someone else's code makes: ``package.module:factory``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from tallybox.errors import InputError, TallyboxError
from tallybox.files import first_line
from tallybox.photos.detector import Detector


def detector_from_factory(
    spec: str, *, texts: Sequence[str] = (), device: str | torch.device | None = None
) -> Detector:
    """Import a module, call its factory and return the detector that it gives.

    The factory is called with ``texts=`` and ``device=`` where it has parameters of these names. Modules are looked for
    where Python looks, then in the current folder.
    """
    factory = _imported(spec)
    given = _arguments(spec, factory, texts, device)
    try:
        detector: Any = factory(**given)
    except TallyboxError:
        raise
    except Exception as error:
        raise TallyboxError(f"{spec} must return a detector, but raised {_named(error)}") from error
    if not callable(getattr(detector, "detect", None)):
        raise InputError(f"{spec} must return an object with detect(photos), but returned {type(detector).__name__}")
    return detector  # type: ignore[no-any-return]  # checked above


def _imported(spec: str) -> Callable[..., Any]:
    module_name, _, name = spec.rpartition(":")
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{spec} must name a module that can be imported, but there is no module {error.name!r}"
        ) from error
    except Exception as error:
        raise TallyboxError(f"{spec} must name a module that can be imported, but it raised {_named(error)}") from error
    factory = getattr(module, name, None)
    if not callable(factory):
        found = "has no such name" if factory is None else f"has a {type(factory).__name__} of that name"
        raise InputError(f"{spec} must name a function of {module_name}, but the module {found}")
    return factory  # type: ignore[no-any-return]  # checked above


def _arguments(
    spec: str, factory: Callable[..., Any], texts: Sequence[str], device: str | torch.device | None
) -> dict[str, Any]:
    try:
        parameters = inspect.signature(factory).parameters
    except ValueError:  # of some functions written in C
        parameters = {}  # type: ignore[assignment]  # an empty mapping
    if texts and "texts" not in parameters:
        raise InputError(f"--text is for detectors that look for phrases, but {spec} has no parameter texts")
    if not texts and "texts" in parameters and parameters["texts"].default is inspect.Parameter.empty:
        raise InputError(f"{spec} looks for phrases and needs at least one; give --text PHRASE")
    given: dict[str, Any] = {"texts": tuple(texts)} if texts else {}
    if "device" in parameters:
        given["device"] = device
    return given


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"
