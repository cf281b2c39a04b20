"""Detectors by name (SPEC), as `tallybox count` and `PhotoCounter` take them; docs/learn/own-detector.md has a table.

A SPEC is ``picodet``, a library and what it loads (``transformers:MODEL``), or a function that returns a detector
(``package.module:factory``).
"""

import inspect
import shlex
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from tallybox.devices import Device
from tallybox.errors import InputError, did_you_mean
from tallybox.photos.detector import Detector, wrap_errors
from tallybox.photos.detectors import OnnxDetector, TorchvisionDetector, TransformersDetector, UltralyticsDetector
from tallybox.photos.picodet import PicoDet

DEFAULT_SPEC = "picodet"

LIBRARIES = {"transformers": "MODEL", "ultralytics": "FILE", "torchvision": "NAME", "onnx": "FILE"}
LOADERS: dict[str, Callable[..., Detector]] = {  # of models with categories of their own
    "ultralytics": UltralyticsDetector.load,
    "torchvision": TorchvisionDetector.load,
    "onnx": OnnxDetector,
}


def detector_of(spec: str, *, texts: Sequence[str] = (), device: Device = None) -> Detector:
    """Return the detector that a SPEC stands for; ``texts`` are the phrases that a zero-shot model looks for."""
    kind, _, name = spec.partition(":")
    if kind == "transformers" and name:
        return TransformersDetector.load(name, texts=texts, device=device)
    if spec == DEFAULT_SPEC or (kind in LIBRARIES and name):
        if texts:
            raise InputError(
                f"--text is for zero-shot models of transformers, but {spec} has categories of its own; "
                "leave --text out (count and explain choose among them with --category)"
            )
        return PicoDet(device=device) if spec == DEFAULT_SPEC else LOADERS[kind](name, device=device)
    if kind not in LIBRARIES and all(part.isidentifier() for part in (*kind.split("."), name)):
        return _from_factory(spec, texts, device)
    raise _unknown(spec)


def check_same_detector(learned_from: Sequence[str], detector: Sequence[str]) -> None:
    """Raise if an estimator was fitted to another detector; each is a SPEC and its phrases.

    The estimator's is not taken in place of the other: a SPEC may import code, and a file must not decide what is run.

    >>> check_same_detector(["onnx:bolts.onnx"], ["onnx:bolts.onnx"])
    """
    if learned_from and tuple(learned_from) != tuple(detector):
        learned, actual = (
            shlex.join(["--detector", spec, *(word for text in texts for word in ("--text", text))])
            for spec, *texts in (learned_from, detector)
        )
        raise InputError(f"This estimator was fitted to {learned}, not to {actual}; pass {learned}")


def _unknown(spec: str) -> InputError:
    forms = ", ".join(f"{library}:{what}" for library, what in LIBRARIES.items())
    suggestion = did_you_mean(spec.partition(":")[0], [DEFAULT_SPEC, *LIBRARIES])
    return InputError(f"unknown detector {spec!r} (known: picodet, {forms}, package.module:factory){suggestion}")


def _from_factory(spec: str, texts: Sequence[str], device: Device) -> Detector:
    """Import a module, call its factory and return the detector that it gives.

    The factory is called with ``texts=`` and ``device=`` where it has parameters of these names.
    """
    factory = _import_factory(spec)
    try:
        parameters = dict(inspect.signature(factory).parameters)
    except ValueError:  # of some functions written in C
        parameters = {}
    if texts and "texts" not in parameters:
        raise InputError(f"--text is for detectors that look for phrases, but {spec} has no parameter texts")
    if not texts and "texts" in parameters and parameters["texts"].default is inspect.Parameter.empty:
        raise InputError(f"{spec} looks for phrases and needs at least one; give --text PHRASE")
    arguments: dict[str, Any] = {"texts": tuple(texts)} if texts else {}
    if "device" in parameters:
        arguments["device"] = device
    with wrap_errors(f"{spec} must return a detector, but raised", with_type=True):
        detector: Detector = factory(**arguments)
    if not callable(getattr(detector, "detect", None)):
        raise InputError(f"{spec} must return an object with detect(photos), but returned {type(detector).__name__}")
    return detector


def _import_factory(spec: str) -> Callable[..., Any]:
    """Import the function that a SPEC names; Python's own folders come before the current one."""
    module_name, _, name = spec.partition(":")
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    must = f"{spec} must name a module that can be imported"
    with wrap_errors(f"{must}, but it raised", with_type=True):
        try:
            factory = getattr(import_module(module_name), name, None)
        except ModuleNotFoundError as error:
            suggestion = did_you_mean(module_name, LIBRARIES)
            raise InputError(f"{must}, but there is no module {error.name!r}{suggestion}") from error
    if not callable(factory):
        actual = "has no such name" if factory is None else f"has a {type(factory).__name__} of that name"
        raise InputError(f"{spec} must name a function of {module_name}, but the module {actual}")
    return factory  # type: ignore[no-any-return]  # checked above
