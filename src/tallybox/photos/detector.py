"""What a detector is, and detectors by name (SPEC), as `tallybox count` and `PhotoCounter` take them.

A SPEC is ``picodet``, a library and what it loads (``transformers:MODEL``), or a function that returns a detector
(``package.module:factory``).
"""

import inspect
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tallybox.components import import_by_name
from tallybox.detections.categories import COCO_CATEGORIES
from tallybox.detections.detections import Detections
from tallybox.devices import Device
from tallybox.errors import InputError, did_you_mean
from tallybox.files import wrap_errors
from tallybox.photos.detectors import OnnxDetector, TorchvisionDetector, TransformersDetector, UltralyticsDetector
from tallybox.photos.images import Photo
from tallybox.photos.picodet import PicoDet

DEFAULT_SPEC = "picodet"


class Detector(Protocol):
    """Anything that detects objects in photos; it should suppress as few boxes as possible.

    A detector of other categories than COCO's names them in an attribute ``categories``, from id to name.
    """

    def detect(self, photos: Sequence[Photo]) -> list[Detections]:
        """Return the detections of each photo: boxes in its pixels, ``image_id`` its name."""


def categories_of(detector: Detector) -> Mapping[int, str]:
    """Return the names of a detector's categories, COCO's if it names none."""
    categories = getattr(detector, "categories", COCO_CATEGORIES)
    if not isinstance(categories, Mapping) or len(set(categories.values())) < len(categories):
        raise InputError(
            f"The categories of {type(detector).__name__} must map ids to different names, such as "
            '{0: "apple", 1: "pear"}'
        )
    return categories


LOADERS: dict[str, Callable[..., Detector]] = {
    "transformers": TransformersDetector.load,
    "ultralytics": UltralyticsDetector.load,
    "torchvision": TorchvisionDetector.load,
    "onnx": OnnxDetector,
}
FORMS = "picodet, transformers:MODEL, ultralytics:FILE, torchvision:NAME, onnx:FILE or package.module:factory"


def detector_of(spec: str, *, texts: Sequence[str] = (), device: Device = None) -> Detector:
    """Return the detector that a SPEC stands for; ``texts`` are the phrases that a zero-shot model looks for."""
    kind, _, name = spec.partition(":")
    if kind == "transformers" and name:
        return TransformersDetector.load(name, texts=texts, device=device)
    if spec == DEFAULT_SPEC or (kind in LOADERS and name):
        if texts:
            raise InputError(f"{spec} does not look for phrases; leave --text out, or choose with --category")
        return PicoDet(device=device) if spec == DEFAULT_SPEC else LOADERS[kind](name, device=device)
    if kind not in LOADERS and all(part.isidentifier() for part in (*kind.split("."), name)):
        return _from_factory(spec, texts, device)
    raise InputError(f"Unknown detector {spec!r}; use {FORMS}{did_you_mean(kind, [DEFAULT_SPEC, *LOADERS])}")


def check_same_detector(learned_from: Sequence[str], detector: Sequence[str]) -> None:
    """Raise if an estimator was fitted to another detector; each is a SPEC and its phrases.

    The estimator's is not taken in place of the other: a SPEC may import code, and a file must not decide what is run.
    """
    if learned_from and tuple(learned_from) != tuple(detector):
        spec, *texts = learned_from
        learned = shlex.join(["--detector", spec, *(word for text in texts for word in ("--text", text))])
        raise InputError(f"This estimator was fitted to another detector; pass {learned}")


def _from_factory(spec: str, texts: Sequence[str], device: Device) -> Detector:
    """Import a function and return its detector; Python's own folders come before the current one.

    The function gets ``texts=`` and ``device=`` if it has parameters of these names.
    """
    with wrap_errors(f"Cannot make the detector {spec}", InputError):
        factory = import_by_name(spec)
        parameters = inspect.signature(factory).parameters
        if texts and "texts" not in parameters:
            raise InputError(f"{spec} has no parameter texts; leave --text out")
        given = {"texts": tuple(texts), "device": device} if texts else {"device": device}
        detector: Detector = factory(**{key: value for key, value in given.items() if key in parameters})
    if not callable(getattr(detector, "detect", None)):
        raise InputError(f"{spec} must return an object with detect(photos); got {type(detector).__name__}")
    return detector
