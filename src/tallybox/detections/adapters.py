"""Adapters: boxes, scores, category ids and names from the objects of detection libraries; none of them is imported."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallybox.detections.categories import category_ids_of_classes
from tallybox.errors import InputError, InputTypeError

ClassIds = Sequence[int] | Mapping[int, int] | None
ClassNames = Sequence[str] | Mapping[int, str] | None


class Columns(NamedTuple):
    """The detections of one image, not checked yet."""

    boxes: Any  # [N, 4] x1 y1 x2 y2
    scores: Any  # [N]
    category_ids: Any  # [N]
    category_names: Mapping[int, str] | None = None


def on_host(values: Any) -> Any:
    """Return a torch tensor of any device and precision as a numpy array, anything else unchanged."""
    if not (hasattr(values, "detach") and hasattr(values, "cpu")):
        return values
    tensor = values.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() else tensor).numpy()  # numpy has no bfloat16


def from_coco(results: Sequence[Mapping[str, Any]]) -> Columns:
    """Convert COCO results of one image."""
    for number, result in enumerate(results):
        if missing := [key for key in ("category_id", "bbox", "score") if key not in result]:
            raise InputError(f"COCO results: result {number} has no {missing[0]}, only {sorted(result)}")
    try:
        boxes = np.array([result["bbox"] for result in results], np.float64).reshape(len(results), 4)
        scores = np.array([result["score"] for result in results], np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputTypeError(f"COCO results: bbox must be four numbers and score one: {error}") from None
    boxes[:, 2:] += boxes[:, :2]  # left, top, width, height to x1 y1 x2 y2
    return Columns(boxes, scores, [result["category_id"] for result in results])


def from_supervision(detections: Any, category_ids: ClassIds, class_names: ClassNames) -> Columns:
    """Convert a ``supervision.Detections``."""
    for name in ("xyxy", "confidence", "class_id"):
        if not hasattr(detections, name):
            raise InputTypeError(f"Expected a supervision.Detections, but {type(detections).__name__} has no {name}")
    if len(detections.xyxy) == 0:  # without boxes, the other attributes may be None
        return Columns([], [], [])
    for name in ("confidence", "class_id"):
        if getattr(detections, name) is None:
            raise InputError(f"These supervision.Detections have no {name}")
    names_of_boxes = (getattr(detections, "data", None) or {}).get("class_name")
    if class_names is None and names_of_boxes is not None:
        class_names = _names_by_number(detections.class_id, names_of_boxes)
    return _named(detections.xyxy, detections.confidence, detections.class_id, category_ids, class_names)


def from_prediction(
    prediction: Any, category_ids: ClassIds, class_names: ClassNames, origin: str, *, labels_are_ids: bool
) -> Columns:
    """Convert the dict that torchvision and transformers return for one image; ``origin`` names its source."""
    if hasattr(prediction, "logits"):
        raise InputTypeError(
            "This is a model's raw output; first call "
            "image_processor.post_process_object_detection(outputs, threshold=0.01, target_sizes=…)"
        )
    if not isinstance(prediction, Mapping):
        raise InputTypeError(f"Expected the dict that {origin} for one image, but got {type(prediction).__name__}")
    if missing := [key for key in ("boxes", "scores", "labels") if key not in prediction]:
        raise InputError(f"The prediction has no {missing[0]}, only {sorted(prediction)}")
    if labels_are_ids and category_ids is None and class_names is None:
        return Columns(prediction["boxes"], prediction["scores"], prediction["labels"])
    return _named(prediction["boxes"], prediction["scores"], prediction["labels"], category_ids, class_names)


def from_ultralytics(result: Any, category_ids: ClassIds, class_names: ClassNames) -> Columns:
    """Convert a ``Results`` of ultralytics."""
    boxes: Any = getattr(result, "boxes", None)
    if not all(hasattr(boxes, name) for name in ("xyxy", "conf", "cls")):
        raise InputTypeError(
            f"Expected the ultralytics Results of one image, with boxes, but got {type(result).__name__}; "
            "pass results one at a time, and use a detection model"
        )
    names = getattr(result, "names", None) if class_names is None else class_names
    return _named(boxes.xyxy, boxes.conf, boxes.cls, category_ids, names)


def names_by_class(class_names: Sequence[str] | Mapping[int, str]) -> dict[int, str]:
    """Return the names of a detector's classes by their numbers.

    >>> names_by_class(["bolt", "nut"])
    {0: 'bolt', 1: 'nut'}
    """
    names = class_names if isinstance(class_names, Mapping) else dict(enumerate(class_names))
    return {int(key): str(name) for key, name in names.items()}


def _names_by_number(classes: Any, names: Any) -> dict[int, str]:
    """Return the name of each class number of the boxes; a number must have one name."""
    by_number: dict[int, str] = {}
    for number, name in zip(np.asarray(classes).tolist(), np.asarray(names).tolist(), strict=True):
        if by_number.setdefault(int(number), str(name)) != str(name):
            raise InputError(f"Class {number} has two names, {by_number[int(number)]!r} and {name!r}")
    return by_number


def _named(boxes: Any, scores: Any, classes: Any, category_ids: ClassIds, class_names: ClassNames) -> Columns:
    ids, names = categories_of_numbers(on_host(classes), category_ids, class_names)
    return Columns(boxes, scores, ids, names)


def categories_of_numbers(
    classes: Any, category_ids: ClassIds, class_names: ClassNames
) -> tuple[NDArray[np.int64], dict[int, str] | None]:
    """Return the category id of each class number, and the names of the categories as far as they are known.

    Numbers without names are refused: YOLO's class 16 is a dog, COCO's category 16 a bird.
    """
    numbers = np.asarray(classes).tolist()
    names = None if class_names is None else names_by_class(class_names)
    if category_ids is None and names is not None:
        category_ids = category_ids_of_classes(names)
    if category_ids is None:
        if not numbers:
            return np.zeros(0, np.int64), None
        raise InputError(
            "These class numbers have no names; pass the detector's names with class_names= (model.names, "
            "model.config.id2label), or category ids with category_ids="
        )
    try:
        ids = np.array([category_ids[int(number)] for number in numbers], np.int64)
    except (IndexError, KeyError) as error:
        raise InputError(f"A class has no category in class_names or category_ids: {error}") from None
    if names is None:
        return ids, None
    pairs = category_ids.items() if isinstance(category_ids, Mapping) else enumerate(category_ids)
    return ids, {category_id: names[number].strip() for number, category_id in pairs if number in names}
