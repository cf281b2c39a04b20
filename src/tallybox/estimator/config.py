"""The configuration of an estimator, which is stored with it."""

from dataclasses import dataclass
from typing import Literal

from tallybox.checks import check_count
from tallybox.errors import InputError

KEEP_ALL = 1.0  # as ``nms_iou``: no box is removed

# Batches only limit memory: larger ones were not faster.
IMAGES_PER_BATCH = 256
PAIRS_PER_BATCH = 512


@dataclass(frozen=True)
class EstimatorConfig:
    """Sizes of the model, chosen on a held-out fifth of 3,000 labelled photos of COCO."""

    component: Literal["presence"] = "presence"
    max_objects: int = 20  # counts from here on share one probability
    proposals: int = 48  # the best boxes of a category that take part
    nms_iou: float = KEEP_ALL  # of boxes that overlap by more than this, only the best takes part
    members: int = 8  # models whose distributions are averaged; each leaves another part of the photos out
    hidden: int = 64  # units of the readout
    dropout: float = 0.3  # of these, during training

    def __post_init__(self) -> None:
        for name in ("max_objects", "members"):
            check_count(name, getattr(self, name))
        if self.members < 2:
            raise InputError(f"members must be at least 2, not {self.members}: each leaves photos out")
