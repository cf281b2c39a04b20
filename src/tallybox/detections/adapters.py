"""Adapters: boxes, scores, category ids and names from the objects of detection libraries; none of them is imported."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tallybox.detections.categories import ClassNames, categories_of_classes
from tallybox.errors import InputError, InputTypeError


class Columns(NamedTuple):
    """The detections of one image, not checked yet."""

    boxes: Any  # [N, 4] x1 y1 x2 y2
    scores: Any  # [N]
    category_ids: Any  # [N]
    category_names: Mapping[int, str] | None


def on_host(values: Any) -> Any:
    """Return a torch tensor of any device and precision as a numpy array, anything else unchanged."""
    if not (hasattr(values, "detach") and hasattr(values, "cpu")):
        return values
    tensor = values.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() else tensor).numpy()  # numpy has no bfloat16


def from_coco(results: Sequence[Mapping[str, Any]], category_names: Mapping[int, str] | None) -> Columns:
    """Convert COCO results of one image."""
    try:
        boxes = np.array([result["bbox"] for result in results], np.float64).reshape(len(results), 4)
        scores = np.array([result["score"] for result in results], np.float64)
        category_ids = [result["category_id"] for result in results]
    except KeyError as error:
        raise InputError(f"COCO results: a result has no {error}") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise InputTypeError(f"COCO results: bbox must be four numbers and score one: {error}") from None
    boxes[:, 2:] += boxes[:, :2]  # left, top, width, height to x1 y1 x2 y2
    return Columns(boxes, scores, category_ids, category_names)


def from_supervision(detections: Any, class_names: ClassNames) -> Columns:
    """Convert a ``supervision.Detections``."""
    kind = "a supervision.Detections"
    (boxes,) = _parts(detections, ["xyxy"], kind)
    if len(boxes) == 0:  # without boxes, the other attributes may be None
        return Columns([], [], [], None)
    scores, classes = _parts(detections, ["confidence", "class_id"], kind)
    names_of_boxes = (getattr(detections, "data", None) or {}).get("class_name")
    if class_names is None and names_of_boxes is not None:
        class_names = dict(sorted(zip(np.asarray(classes).tolist(), map(str, names_of_boxes), strict=True)))
    return _with_names(boxes, scores, classes, class_names)


def from_prediction(prediction: Any, class_names: ClassNames, origin: str, *, labels_are_ids: bool) -> Columns:
    """Convert the dict that torchvision and transformers return for one image; ``origin`` names its source."""
    boxes, scores, labels = _parts(prediction, ["boxes", "scores", "labels"], f"the dict of one image that {origin}")
    if labels_are_ids and class_names is None:
        return Columns(boxes, scores, labels, None)
    return _with_names(boxes, scores, labels, class_names)


def from_ultralytics(result: Any, class_names: ClassNames) -> Columns:
    """Convert a ``Results`` of ultralytics."""
    kind = "the ultralytics Results of one image, of a detection model"
    found, _ = _parts(result, ["boxes", "orig_shape"], kind)
    boxes, scores, classes = _parts(found, ["xyxy", "conf", "cls"], kind)
    names = getattr(result, "names", None) if class_names is None else class_names
    return _with_names(boxes, scores, classes, names)


def _parts(owner: Any, names: Sequence[str], kind: str) -> list[Any]:
    """Return items of a dict or attributes of an object, which must have them."""
    parts = {name: owner.get(name) if isinstance(owner, Mapping) else getattr(owner, name, None) for name in names}
    if missing := [name for name, part in parts.items() if part is None]:
        raise InputTypeError(f"Expected {kind}, but {type(owner).__name__} has no {missing[0]}")
    return list(parts.values())


def _with_names(boxes: Any, scores: Any, classes: Any, class_names: ClassNames) -> Columns:
    return Columns(boxes, scores, *categories_of_classes(np.asarray(on_host(classes)).tolist(), class_names))
