"""Detectors of other libraries. Each library is imported when a model of it is loaded, and not before.

An estimator must be fitted to the detector it is used with: see docs/learn/own-detector.md.
"""

from tallybox.photos.detectors.onnx_files import OnnxDetector
from tallybox.photos.detectors.torch_models import TorchvisionDetector, UltralyticsDetector
from tallybox.photos.detectors.transformers_models import TransformersDetector

__all__ = ["OnnxDetector", "TorchvisionDetector", "TransformersDetector", "UltralyticsDetector"]
