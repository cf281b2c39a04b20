"""Adapters: boxes, scores, category ids and names from the objects of detection libraries; none of them is imported."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallybox.detections.categories import category_ids_of_classes
from tallybox.errors import InputError, InputTypeError

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
    try:
        boxes = np.array([result["bbox"] for result in results], np.float64).reshape(len(results), 4)
        scores = np.array([result["score"] for result in results], np.float64)
        category_ids = [result["category_id"] for result in results]
    except KeyError as error:
        raise InputError(f"COCO results: a result has no {error}") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise InputTypeError(f"COCO results: bbox must be four numbers and score one: {error}") from None
    boxes[:, 2:] += boxes[:, :2]  # left, top, width, height to x1 y1 x2 y2
    return Columns(boxes, scores, category_ids)


def from_supervision(detections: Any, class_names: ClassNames) -> Columns:
    """Convert a ``supervision.Detections``."""
    kind = "a supervision.Detections"
    (boxes,) = _parts(detections, ["xyxy"], kind)
    if len(boxes) == 0:  # without boxes, the other attributes may be None
        return Columns([], [], [])
    scores, classes = _parts(detections, ["confidence", "class_id"], kind)
    names_of_boxes = (getattr(detections, "data", None) or {}).get("class_name")
    if class_names is None and names_of_boxes is not None:
        pairs = set(zip(np.asarray(classes).tolist(), np.asarray(names_of_boxes).tolist(), strict=True))
        class_names = dict(sorted(pairs))
        if len(class_names) < len(pairs):
            raise InputError("A class number of these supervision.Detections has two names in class_name")
    return _named(boxes, scores, classes, class_names)


def from_prediction(prediction: Any, class_names: ClassNames, origin: str, *, labels_are_ids: bool) -> Columns:
    """Convert the dict that torchvision and transformers return for one image; ``origin`` names its source."""
    boxes, scores, labels = _parts(prediction, ["boxes", "scores", "labels"], f"the dict of one image that {origin}")
    if labels_are_ids and class_names is None:
        return Columns(boxes, scores, labels)
    return _named(boxes, scores, labels, class_names)


def from_ultralytics(result: Any, class_names: ClassNames) -> Columns:
    """Convert a ``Results`` of ultralytics."""
    kind = "the ultralytics Results of one image, of a detection model"
    (found,) = _parts(result, ["boxes"], kind)
    names = getattr(result, "names", None) if class_names is None else class_names
    boxes, scores, classes = _parts(found, ["xyxy", "conf", "cls"], kind)
    return _named(boxes, scores, classes, names)


def _parts(owner: Any, names: Sequence[str], kind: str) -> list[Any]:
    """Return items of a dict or attributes of an object, which must have them."""
    is_dict = isinstance(owner, Mapping)
    parts = [owner.get(name) if is_dict else getattr(owner, name, None) for name in names]
    for name, part in zip(names, parts, strict=True):
        if part is None:
            raise InputTypeError(f"Expected {kind}, but {type(owner).__name__} has no {name}")
    return parts


def names_by_class(class_names: Sequence[str] | Mapping[int, str]) -> dict[int, str]:
    """Return the names of a detector's classes by their numbers.

    >>> names_by_class(["bolt", "nut"])
    {0: 'bolt', 1: 'nut'}
    """
    names = class_names if isinstance(class_names, Mapping) else dict(enumerate(class_names))
    return {int(key): str(name) for key, name in names.items()}


def _named(boxes: Any, scores: Any, classes: Any, class_names: ClassNames) -> Columns:
    return Columns(boxes, scores, *categories_of_numbers(on_host(classes), class_names))


def categories_of_numbers(classes: Any, class_names: ClassNames) -> tuple[NDArray[np.int64], dict[int, str] | None]:
    """Return the category id of each class number, and the names of the categories.

    Numbers without names are refused: YOLO's class 16 is a dog, COCO's category 16 a bird.
    """
    numbers = np.asarray(classes).tolist()
    if class_names is None:
        if numbers:
            raise InputError(
                "These class numbers have no names; pass the detector's names with class_names= (model.names, "
                "model.config.id2label)"
            )
        return np.zeros(0, np.int64), None
    names = names_by_class(class_names)
    ids = category_ids_of_classes(names)
    try:
        category_ids = np.array([ids[int(number)] for number in numbers], np.int64)
    except KeyError as error:
        raise InputError(f"Class {error} has no name in class_names") from None
    return category_ids, {category_id: names[number].strip() for number, category_id in ids.items()}
