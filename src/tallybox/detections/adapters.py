"""Adapters: what detection libraries return, as boxes, scores and category ids. None of these libraries is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tallybox.detections.box_checks import look_like_misread_corners
from tallybox.errors import InputError, InputTypeError

NEGATIVE_SIZE = "bbox must be left, top, width, height with sizes of at least 0"

ClassIds = Sequence[int] | Mapping[int, int]
Columns = tuple[Any, Any, Any]  # boxes [N, 4] x1 y1 x2 y2, scores [N], category ids [N], not checked yet


def on_host(values: Any) -> Any:
    """Return a torch tensor of any device and precision as a numpy array, anything else unchanged."""
    if not (hasattr(values, "detach") and hasattr(values, "cpu")):
        return values
    tensor = values.detach().cpu()
    if tensor.is_floating_point():
        tensor = tensor.float()  # numpy has no bfloat16
    return tensor.numpy()


def from_coco(
    results: Sequence[Mapping[str, Any]], image_size: tuple[int, int] | None
) -> tuple[Any, Any, Any, int | str | None]:
    """Convert COCO results, which must be of one image, and return its id too."""
    for number, result in enumerate(results):
        missing = [key for key in ("category_id", "bbox", "score") if key not in result]
        if missing:
            raise InputError(f"results must have a {missing[0]}, but result {number} has only {sorted(result)}")
        if len(result["bbox"]) != 4:
            raise InputError(f"bbox must be left, top, width, height, but result {number} has {result['bbox']!r}")
    image_ids = list(dict.fromkeys(result.get("image_id") for result in results))
    if len(image_ids) > 1:
        raise InputError(
            f"results must be of one image, but got {len(image_ids)}: {image_ids[:3]}; read files with read_detections"
        )
    try:
        boxes_xywh = np.array([result["bbox"] for result in results], np.float64).reshape(-1, 4)
        scores = np.array([result["score"] for result in results], np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputTypeError(f"bbox and score must be numbers, but got something else: {error}") from None
    negative = (boxes_xywh[:, 2:] < 0).any(1)
    if negative.any():
        index = int(np.argmax(negative))
        raise InputError(f"{NEGATIVE_SIZE}, but got {boxes_xywh[index].tolist()} at index {index}")
    boxes_xyxy = np.concatenate((boxes_xywh[:, :2], boxes_xywh[:, :2] + boxes_xywh[:, 2:]), axis=1)
    if image_size is not None and look_like_misread_corners(boxes_xyxy, image_size):
        raise InputError(
            f"bbox must be left, top, width, height, but the boxes reach far beyond the {image_size[0]} x "
            f"{image_size[1]} image; these look like x1 y1 x2 y2: pass them to Detections"
        )
    category_ids = [result["category_id"] for result in results]
    return boxes_xyxy, scores, category_ids, image_ids[0] if image_ids else None


def from_supervision(detections: Any, category_ids: ClassIds | None) -> Columns:
    """Convert a ``supervision.Detections``."""
    for name in ("xyxy", "confidence", "class_id"):
        if not hasattr(detections, name):
            raise InputTypeError(
                f"detections must be a supervision.Detections, but got {type(detections).__name__} without {name}"
            )
    if len(detections.xyxy) == 0:  # its empty detections may leave the others out
        return [], [], []
    for name in ("confidence", "class_id"):
        if getattr(detections, name) is None:
            raise InputError(f"detections must have a {name} for each box, but got None")
    return detections.xyxy, detections.confidence, _to_categories(detections.class_id, category_ids)


def from_prediction(prediction: Any, category_ids: ClassIds | None, origin: str) -> Columns:
    """Convert the dict that torchvision and transformers return for one image; ``origin`` names its source."""
    if isinstance(prediction, list | tuple):
        raise InputTypeError(f"prediction must be a dict that {origin}, but got a list; pass one at a time")
    if hasattr(prediction, "logits"):
        raise InputTypeError(
            "prediction must hold boxes in pixels and scores, but got a model's raw output; "
            "call image_processor.post_process_object_detection(outputs, threshold=0.01, target_sizes=…) first"
        )
    if not isinstance(prediction, Mapping):
        raise InputTypeError(f"prediction must be a dict that {origin}, but got {type(prediction).__name__}")
    missing = [key for key in ("boxes", "scores", "labels") if key not in prediction]
    if missing:
        raise InputError(f"prediction must have {missing[0]}, but got only {sorted(prediction)}")
    return prediction["boxes"], prediction["scores"], _to_categories(prediction["labels"], category_ids)


def from_ultralytics(result: Any, category_ids: ClassIds | None) -> tuple[Any, Any, Any, tuple[int, int]]:
    """Convert a ``Results`` of ultralytics, and return the image size too."""
    if isinstance(result, list | tuple):
        raise InputTypeError(
            f"result must be the ultralytics Results of one image, but got a list of {len(result)}; pass one at a time"
        )
    boxes: Any = getattr(result, "boxes", None)
    if not all(hasattr(boxes, name) for name in ("xyxy", "conf", "cls")):
        raise InputTypeError(
            f"result must be an ultralytics Results with boxes, but got {type(result).__name__}; use a detection model"
        )
    height, width = result.orig_shape
    return boxes.xyxy, boxes.conf, _to_categories(boxes.cls, category_ids), (width, height)


def _to_categories(classes: Any, category_ids: ClassIds | None) -> Any:
    classes = on_host(classes)
    if category_ids is None:
        return classes
    try:
        return np.array([category_ids[int(index)] for index in classes], np.int64)
    except (IndexError, KeyError) as error:
        raise InputError(f"category_ids must name a category for every class, but one is missing: {error}") from None
