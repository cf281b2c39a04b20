"""Detectors of other libraries. Each library is imported when a model of it is loaded, and not before.

An estimator must be fitted to the detector it is used with: see docs/learn/detectors.md.
"""

from tallybox.photos.adapters.onnx_files import OnnxDetector
from tallybox.photos.adapters.torchvision_models import TorchvisionDetector
from tallybox.photos.adapters.transformers_models import TransformersDetector
from tallybox.photos.adapters.ultralytics_models import UltralyticsDetector

__all__ = ["OnnxDetector", "TorchvisionDetector", "TransformersDetector", "UltralyticsDetector"]
