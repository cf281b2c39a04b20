"""Detection models of ultralytics: YOLO and RT-DETR files."""

from collections.abc import Sequence
from typing import Any, Self

from tallybox.devices import Device, device_or_default
from tallybox.errors import InputTypeError, TallyboxError
from tallybox.files import import_optional
from tallybox.photos.detector import wrap_errors
from tallybox.photos.detectors.adapter import MAX_DETECTIONS, MAX_IOU, MIN_SCORE, AdaptedDetector
from tallybox.photos.images import Photo


class UltralyticsDetector(AdaptedDetector):
    """A model of ultralytics, such as ``YOLO("yolo11n.pt")``; duplicates that overlap by 0.9 or less are kept."""

    def __init__(self, model: Any, *, device: Device = None) -> None:
        if not callable(getattr(model, "predict", None)) or not hasattr(model, "names"):
            raise InputTypeError(f"model must be an ultralytics model, but got {type(model).__name__}")
        self.model = model
        self.device = device_or_default(device)
        self._take_names(dict(model.names))

    @classmethod
    def load(cls, file: str, *, device: Device = None) -> Self:
        """Load a file of weights; a name that ultralytics publishes is downloaded by it."""
        ultralytics = import_optional("ultralytics", needed_for="this detector", install="ultralytics")
        with wrap_errors(f"ultralytics:{file} cannot be loaded"):
            return cls(ultralytics.YOLO(file), device=device)

    def _predict(self, photos: Sequence[Photo]) -> list[dict[str, Any]]:
        options = {"conf": MIN_SCORE, "iou": MAX_IOU, "max_det": MAX_DETECTIONS, "device": self.device}
        results = self.model.predict([photo.image for photo in photos], **options, verbose=False)
        predictions: list[Any] = [getattr(result, "boxes", None) for result in results]
        if any(boxes is None for boxes in predictions):
            raise TallyboxError("The ultralytics model gives no boxes; use a model for detection")
        return [{"boxes": boxes.xyxy, "scores": boxes.conf, "labels": boxes.cls} for boxes in predictions]
