"""tallybox: count objects from overlapping boxes, differentiably."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallybox import compat as compat
    from tallybox.activation import PiecewiseLinear as PiecewiseLinear
    from tallybox.activation import piecewise_linear as piecewise_linear
    from tallybox.boxes import box_iou as box_iou
    from tallybox.checks import check_values as check_values
    from tallybox.counter.functional import count_features as count_features
    from tallybox.counter.module import Counter as Counter
    from tallybox.counter.trace import CountTrace as CountTrace
    from tallybox.detections.container import Detections as Detections
    from tallybox.errors import TallyboxError as TallyboxError
    from tallybox.estimator.estimator import CountEstimator as CountEstimator
    from tallybox.photos.counter import PhotoCounter as PhotoCounter
    from tallybox.presence.functional import presence_features as presence_features
    from tallybox.presence.module import PresenceCounter as PresenceCounter
    from tallybox.presence.trace import PresenceTrace as PresenceTrace
    from tallybox.presence.weights import PresenceWeights as PresenceWeights

__version__ = "0.2.0.dev0"

# Where each public name lives. Resolved on first use, so that `tallybox --help` need not import torch.
_HOMES = {
    "CountEstimator": "tallybox.estimator.estimator",
    "CountTrace": "tallybox.counter.trace",
    "Counter": "tallybox.counter.module",
    "Detections": "tallybox.detections.container",
    "PhotoCounter": "tallybox.photos.counter",
    "PiecewiseLinear": "tallybox.activation",
    "PresenceCounter": "tallybox.presence.module",
    "PresenceTrace": "tallybox.presence.trace",
    "PresenceWeights": "tallybox.presence.weights",
    "TallyboxError": "tallybox.errors",
    "box_iou": "tallybox.boxes",
    "check_values": "tallybox.checks",
    "compat": "tallybox.compat",
    "count_features": "tallybox.counter.functional",
    "piecewise_linear": "tallybox.activation",
    "presence_features": "tallybox.presence.functional",
}
__all__ = [*sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tallybox' has no attribute {name!r}")
    home = import_module(_HOMES[name])
    found = home if _HOMES[name] == f"tallybox.{name}" else getattr(home, name)
    globals()[name] = found  # the next use finds it there, 10 µs sooner
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
