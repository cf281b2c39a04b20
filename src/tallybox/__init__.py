"""tallybox: count objects from overlapping boxes, differentiably.

The public names are those of ``__all__`` and of the modules under "Public surface" in docs/architecture.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallybox import compat as compat
    from tallybox.activation import PiecewiseLinear as PiecewiseLinear
    from tallybox.activation import piecewise_linear as piecewise_linear
    from tallybox.boxes import box_iou as box_iou
    from tallybox.boxes import box_xywh_to_xyxy as box_xywh_to_xyxy
    from tallybox.checks import check_values as check_values
    from tallybox.counter.functional import count_features as count_features
    from tallybox.counter.module import Counter as Counter
    from tallybox.counter.trace import CountTrace as CountTrace
    from tallybox.detections.detections import Detections as Detections
    from tallybox.detections.labels import TrueCounts as TrueCounts
    from tallybox.detections.readers import read_counts as read_counts
    from tallybox.detections.readers import read_detections as read_detections
    from tallybox.errors import BackendError as BackendError
    from tallybox.errors import InputError as InputError
    from tallybox.errors import InputTypeError as InputTypeError
    from tallybox.errors import TallyboxError as TallyboxError
    from tallybox.estimator.estimator import CountEstimator as CountEstimator
    from tallybox.estimator.evaluation import evaluate as evaluate
    from tallybox.estimator.prediction import CountPrediction as CountPrediction
    from tallybox.kernels.dispatch import BackendWarning as BackendWarning
    from tallybox.photos import Photo as Photo
    from tallybox.photos import PicoDet as PicoDet
    from tallybox.photos import read_photo as read_photo
    from tallybox.photos import sample_photos as sample_photos
    from tallybox.photos.counter import PhotoCounter as PhotoCounter
    from tallybox.photos.labelled import read_labelled_images as read_labelled_images
    from tallybox.presence.functional import presence_features as presence_features
    from tallybox.presence.module import PresenceCounter as PresenceCounter
    from tallybox.presence.trace import PresenceTrace as PresenceTrace
    from tallybox.presence.weights import PresenceWeights as PresenceWeights
    from tallybox.vqa.answer import Answerer as Answerer

__version__ = "0.3.0"

# Modules are imported when a name of theirs is first used, so that `tallybox --help` does not import torch.
_MODULES = {
    "tallybox.activation": ("PiecewiseLinear", "piecewise_linear"),
    "tallybox.vqa.answer": ("Answerer",),
    "tallybox.boxes": ("box_iou", "box_xywh_to_xyxy"),
    "tallybox.checks": ("check_values",),
    "tallybox.kernels.dispatch": ("BackendWarning",),
    "tallybox.counter.functional": ("count_features",),
    "tallybox.counter.module": ("Counter",),
    "tallybox.counter.trace": ("CountTrace",),
    "tallybox.detections.detections": ("Detections",),
    "tallybox.detections.readers": ("read_counts", "read_detections"),
    "tallybox.detections.labels": ("TrueCounts",),
    "tallybox.errors": ("BackendError", "InputError", "InputTypeError", "TallyboxError"),
    "tallybox.estimator.estimator": ("CountEstimator",),
    "tallybox.estimator.evaluation": ("evaluate",),
    "tallybox.estimator.prediction": ("CountPrediction",),
    "tallybox.photos": ("Photo", "PicoDet", "read_photo", "sample_photos"),
    "tallybox.photos.counter": ("PhotoCounter",),
    "tallybox.photos.labelled": ("read_labelled_images",),
    "tallybox.presence.functional": ("presence_features",),
    "tallybox.presence.module": ("PresenceCounter",),
    "tallybox.presence.trace": ("PresenceTrace",),
    "tallybox.presence.weights": ("PresenceWeights",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted([*_MODULE_OF, "compat"])


def __getattr__(name: str) -> Any:
    if name == "compat":
        return import_module("tallybox.compat")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'tallybox' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
