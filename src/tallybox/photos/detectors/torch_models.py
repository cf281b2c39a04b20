"""Detection models of torchvision and ultralytics, by name or as objects."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch

from tallybox.detections.categories import COCO_CATEGORIES
from tallybox.devices import Device, device_or_default
from tallybox.errors import InputError, did_you_mean
from tallybox.files import import_optional
from tallybox.photos.detector import MAX_DETECTIONS, MAX_IOU, MIN_SCORE, AdaptedDetector, Prediction, wrap_errors
from tallybox.photos.images import Photo


class TorchvisionDetector(AdaptedDetector):
    """A detection model of torchvision, such as ``fasterrcnn_resnet50_fpn_v2(weights="DEFAULT")``.

    Suppress little in the model itself: build it with ``box_nms_thresh=0.9, box_score_thresh=0.01``, as `load` does.
    ``names`` are those of its labels, by default COCO's categories by COCO's ids, as torchvision numbers them.
    """

    def __init__(self, model: Any, *, names: Mapping[int, str] | None = None, device: Device = None) -> None:
        self.device = device_or_default(device)
        self.model: Any = model.eval().to(self.device)
        self._take_names(COCO_CATEGORIES if names is None else names)

    @classmethod
    def load(cls, name: str, *, device: Device = None) -> Self:
        """Load a model by its name in ``torchvision.models.detection``, with its default weights."""
        models = import_optional("torchvision.models", needed_for="this detector", install="torchvision")
        model_names = models.list_models(module=models.detection)
        if name not in model_names:
            hint = did_you_mean(name, model_names) or f"; it has {', '.join(model_names)}"
            raise InputError(f"The installed torchvision has no detection model {name!r}{hint}")
        weights = models.get_model_weights(name).DEFAULT
        with wrap_errors(f"Cannot load the weights of torchvision:{name}"):
            model = models.get_model(name, weights=weights)
        owner: Any = getattr(model, "roi_heads", model)  # R-CNNs keep their thresholds in their heads
        owner.nms_thresh, owner.score_thresh = MAX_IOU, MIN_SCORE
        # Label 0 is the background of every detection model of torchvision, whatever it is called.
        names = {label: text for label, text in enumerate(weights.meta["categories"]) if label > 0}
        return cls(model, names=names, device=device)

    @torch.inference_mode()
    def _predict(self, photos: Sequence[Photo]) -> list[Prediction]:
        images = [torch.from_numpy(np.array(photo.image)).permute(2, 0, 1) for photo in photos]  # [3, H, W] each
        return self.model([pixels.to(self.device).float().div_(255) for pixels in images])  # type: ignore[no-any-return]  # as documented


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

    def _predict(self, photos: Sequence[Photo]) -> list[Prediction]:
        options = {"conf": MIN_SCORE, "iou": MAX_IOU, "max_det": MAX_DETECTIONS, "device": self.device}
        results = self.model.predict([photo.image for photo in photos], **options, verbose=False)
        found = [result.boxes for result in results]
        return [{"boxes": boxes.xyxy, "scores": boxes.conf, "labels": boxes.cls} for boxes in found]
