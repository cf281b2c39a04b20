"""Detection models of ultralytics: YOLO and RT-DETR files."""

from collections.abc import Sequence
from typing import Any, Self

from tallybox.devices import Device, device_or_default
from tallybox.errors import TallyboxError
from tallybox.files import import_optional
from tallybox.photos.detector import wrap_errors
from tallybox.photos.detectors.adapter import MAX_DETECTIONS, MAX_IOU, MIN_SCORE, AdaptedDetector
from tallybox.photos.images import Photo


class UltralyticsDetector(AdaptedDetector):
    """A model of ultralytics, such as ``YOLO("yolo11n.pt")``; duplicates that overlap by 0.9 or less are kept."""

    def __init__(self, model: Any, *, device: Device = None) -> None:
        self.model = model
        self.device = device_or_default(device)
        self._take_names(dict(model.names))

    @classmethod
    def load(cls, file: str, *, device: Device = None) -> Self:
        """Load a file of weights; a name that ultralytics publishes is downloaded by it."""
        ultralytics = import_optional("ultralytics", needed_for="this detector", install="ultralytics")
        with wrap_errors(f"Cannot load ultralytics:{file}"):
            return cls(ultralytics.YOLO(file), device=device)

    def _predict(self, photos: Sequence[Photo]) -> list[dict[str, Any]]:
        options = {"conf": MIN_SCORE, "iou": MAX_IOU, "max_det": MAX_DETECTIONS, "device": self.device}
        results = self.model.predict([photo.image for photo in photos], **options, verbose=False)
        found: list[Any] = [result.boxes for result in results]
        if None in found:
            raise TallyboxError("The ultralytics model finds no boxes; use a model for detection")
        return [{"boxes": boxes.xyxy, "scores": boxes.conf, "labels": boxes.cls} for boxes in found]
