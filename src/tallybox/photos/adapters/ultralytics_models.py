"""Detection models of ultralytics: YOLO and RT-DETR files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch

from tallybox.detections.container import Detections
from tallybox.errors import InputTypeError, TallyboxError
from tallybox.files import first_line, import_optional
from tallybox.photos.adapters.labels import LabelCategories
from tallybox.photos.adapters.predictions import MAX_DETECTIONS, MAX_IOU, MIN_SCORE, AdaptedDetector, to_detections
from tallybox.photos.detector import device_or_default
from tallybox.photos.images import Photo


class UltralyticsDetector(AdaptedDetector):
    """A model of ultralytics, such as ``YOLO("yolo11n.pt")``; duplicates that overlap by 0.9 or less are kept."""

    def __init__(self, model: Any, *, device: str | torch.device | None = None) -> None:
        if not callable(getattr(model, "predict", None)) or not hasattr(model, "names"):
            raise InputTypeError(f"model must be an ultralytics model, but got {type(model).__name__}")
        self.model = model
        self.device = device_or_default(device)
        self._labels = LabelCategories.from_names(dict(model.names))
        self.categories = self._labels.categories

    @classmethod
    def load(cls, file: str, *, device: str | torch.device | None = None) -> Self:
        """Load a file of weights; a name that ultralytics publishes is downloaded by it."""
        ultralytics = import_optional("ultralytics", needed_for="this detector", install="ultralytics")
        try:
            return cls(ultralytics.YOLO(file), device=device)
        except Exception as error:  # files of many kinds, read in as many ways
            raise TallyboxError(f"ultralytics:{file} cannot be loaded: {first_line(error)}") from error

    def _detect_same_size(self, photos: Sequence[Photo]) -> list[Detections]:
        results = self.model.predict(
            [photo.image for photo in photos],
            conf=MIN_SCORE,
            iou=MAX_IOU,
            max_det=MAX_DETECTIONS,
            device=self.device,
            verbose=False,
        )
        return [
            to_detections(_prediction(result), photo, self._labels, looked_at_wh=photo.image.size)
            for result, photo in zip(results, photos, strict=True)
        ]


def _prediction(result: Any) -> dict[str, Any]:
    boxes: Any = getattr(result, "boxes", None)
    if boxes is None:
        raise TallyboxError("the ultralytics model must give boxes, but it gives none; use a model for detection")
    return {"boxes": boxes.xyxy, "scores": boxes.conf, "labels": boxes.cls}
