"""Other detectors: torchvision's models and transformers' object-detection pipelines, neither of which is imported.

Their weights are theirs to load. An estimator must be fitted to the detector it is used with: see docs/photos.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from tallybox.detections.category_names import COCO_CATEGORIES
from tallybox.detections.container import ClassIds, Detections
from tallybox.errors import InputError, InputTypeError
from tallybox.photos.images import Photo


class TorchvisionDetector:
    """A detection model of torchvision, such as ``fasterrcnn_resnet50_fpn_v2(weights="DEFAULT")``.

    Suppress little in the model itself: build it with ``box_nms_thresh=0.9, box_score_thresh=0.01``. Its labels are
    COCO's category ids; for another data set ``category_ids[label]`` says which they are.
    """

    def __init__(
        self, model: Any, *, category_ids: ClassIds | None = None, device: str | torch.device | None = None
    ) -> None:
        if not isinstance(model, torch.nn.Module):
            raise InputTypeError(f"model must be a torchvision detector, but got {type(model).__name__}")
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.model = model.eval().to(self.device)
        self.category_ids = category_ids

    @torch.inference_mode()
    def detect(self, photos: Sequence[Photo]) -> list[Detections]:
        """Return the detections of each photo."""
        predictions = self.model([self._tensor(photo) for photo in photos]) if photos else []
        return [
            Detections.from_torchvision(
                _in_pixels(prediction, photo),
                image_size=photo.size_wh,
                image_id=photo.name,
                category_ids=self.category_ids,
            )
            for prediction, photo in zip(predictions, photos, strict=True)
        ]

    def _tensor(self, photo: Photo) -> torch.Tensor:
        pixels = torch.from_numpy(np.array(photo.image)).permute(2, 0, 1)  # [3, H, W]
        return pixels.to(self.device).float().div_(255)


class TransformersDetector:
    """A pipeline of transformers, ``pipeline("object-detection", model=..., threshold=0.01)``.

    ``category_ids`` gives each label's name its id; by default the names are COCO's.
    """

    def __init__(
        self, pipeline: Any, *, category_ids: Mapping[str, int] | None = None, threshold: float = 0.01
    ) -> None:
        if not callable(pipeline):
            raise InputTypeError(f"pipeline must be an object-detection pipeline, but got {type(pipeline).__name__}")
        self.pipeline = pipeline
        coco = {name: category_id for category_id, name in COCO_CATEGORIES.items()}
        self.category_ids = dict(coco if category_ids is None else category_ids)
        self.threshold = threshold

    def detect(self, photos: Sequence[Photo]) -> list[Detections]:
        """Return the detections of each photo."""
        found = self.pipeline([photo.image for photo in photos], threshold=self.threshold) if photos else []
        return [self._detections(objects, photo) for objects, photo in zip(found, photos, strict=True)]

    def _detections(self, objects: Sequence[Mapping[str, Any]], photo: Photo) -> Detections:
        known = [one for one in objects if one["label"] in self.category_ids]
        if objects and not known:
            raise InputError(
                f"category_ids must name the pipeline's labels, but it knows none of "
                f"{sorted({str(one['label']) for one in objects})[:3]}; give category_ids={{label: id}}"
            )
        sides = ("xmin", "ymin", "xmax", "ymax")
        prediction = {
            "boxes": np.array([[one["box"][side] for side in sides] for one in known], np.float32).reshape(-1, 4),
            "scores": [one["score"] for one in known],
            "labels": [self.category_ids[one["label"]] for one in known],
        }
        return Detections.from_transformers(
            _in_pixels(prediction, photo), image_size=photo.size_wh, image_id=photo.name
        )


def _in_pixels(prediction: Mapping[str, Any], photo: Photo) -> Mapping[str, Any]:
    """Scale boxes to the photo's own size, where fewer pixels were looked at."""
    if photo.image.size == photo.size_wh:
        return prediction
    scale = np.tile(np.array(photo.size_wh, np.float32) / np.array(photo.image.size, np.float32), 2)
    boxes = prediction["boxes"]
    on_host = boxes.detach().cpu().numpy() if isinstance(boxes, torch.Tensor) else np.asarray(boxes)
    return {**prediction, "boxes": on_host * scale}
