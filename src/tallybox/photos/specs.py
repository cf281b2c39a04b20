"""Detectors by name, as `tallybox count --detector SPEC` and `PhotoCounter` take them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tallybox.errors import InputError
from tallybox.photos.detector import Detector
from tallybox.photos.picodet import PicoDet

DEFAULT_SPEC = "picodet"


def detector_of(spec: str, *, texts: Sequence[str] = (), device: str | torch.device | None = None) -> Detector:
    """Return the detector that a name stands for."""
    if spec == "picodet":
        return PicoDet(device=device)
    raise InputError(f"detector must be picodet, but got {spec!r}")
