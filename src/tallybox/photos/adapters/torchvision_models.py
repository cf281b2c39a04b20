"""Detection models of torchvision, by name or as objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Self

import numpy as np
import torch

from tallybox.detections.category_names import COCO_CATEGORIES
from tallybox.detections.container import Detections
from tallybox.errors import InputError, InputTypeError, TallyboxError
from tallybox.files import first_line, import_optional
from tallybox.photos.adapters.labels import LabelCategories
from tallybox.photos.adapters.predictions import MAX_IOU, MIN_SCORE, AdaptedDetector, to_detections
from tallybox.photos.detector import device_or_default
from tallybox.photos.images import Photo


class TorchvisionDetector(AdaptedDetector):
    """A detection model of torchvision, such as ``fasterrcnn_resnet50_fpn_v2(weights="DEFAULT")``.

    Suppress little in the model itself: build it with ``box_nms_thresh=0.9, box_score_thresh=0.01``, as `load` does.
    ``names`` are those of its labels, by default COCO's categories by COCO's ids, as torchvision numbers them.
    """

    def __init__(
        self, model: Any, *, names: Mapping[int, str] | None = None, device: str | torch.device | None = None
    ) -> None:
        if not isinstance(model, torch.nn.Module):
            raise InputTypeError(f"model must be a torchvision detector, but got {type(model).__name__}")
        self.device = device_or_default(device)
        self.model = model.eval().to(self.device)
        self._labels = LabelCategories.from_names(COCO_CATEGORIES if names is None else names)
        self.categories = self._labels.categories

    @classmethod
    def load(cls, name: str, *, device: str | torch.device | None = None) -> Self:
        """Load a model by its name in ``torchvision.models.detection``, with its default weights."""
        import_optional("torchvision", needed_for="this detector", install="torchvision")
        models = import_optional("torchvision.models", needed_for="this detector", install="torchvision")
        known = models.list_models(module=models.detection)
        if name not in known:
            similar = get_close_matches(name, known, n=1)
            hint = f"did you mean {similar[0]!r}?" if similar else f"it has {', '.join(known)}"
            raise InputError(
                f"torchvision:NAME must be a detection model of the installed torchvision, but got {name!r}; {hint}"
            )
        weights = models.get_model_weights(name).DEFAULT
        try:
            model = models.get_model(name, weights=weights)
        except Exception as error:  # of the network, or of a file that is cut short
            raise TallyboxError(f"torchvision:{name}: its weights cannot be loaded: {first_line(error)}") from error
        suppress_little(model)
        # Label 0 is the background of every detection model of torchvision, whatever it is called.
        names = {label: text for label, text in enumerate(weights.meta["categories"]) if label > 0}
        return cls(model, names=names, device=device)

    @torch.inference_mode()
    def _detect_same_size(self, photos: Sequence[Photo]) -> list[Detections]:
        predictions = self.model([self._tensor(photo) for photo in photos])
        return [
            to_detections(prediction, photo, self._labels, looked_at_wh=photo.image.size)
            for prediction, photo in zip(predictions, photos, strict=True)
        ]

    def _tensor(self, photo: Photo) -> torch.Tensor:
        pixels = torch.from_numpy(np.array(photo.image)).permute(2, 0, 1)  # [3, H, W]
        return pixels.to(self.device).float().div_(255)


def suppress_little(model: torch.nn.Module) -> None:
    """Lower a model's score threshold and raise its IoU threshold, which R-CNNs keep in their heads."""
    for owner in (model, getattr(model, "roi_heads", None)):
        if hasattr(owner, "nms_thresh") and hasattr(owner, "score_thresh"):
            owner.nms_thresh, owner.score_thresh = MAX_IOU, MIN_SCORE  # type: ignore[union-attr]  # not None: it has them
