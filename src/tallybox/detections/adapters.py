"""Adapters: boxes, scores and category ids from what detection libraries return; none of them is imported."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallybox.detections.box_checks import look_like_misread_corners
from tallybox.detections.category_names import category_ids_of_classes, coco_id_of_class, find_category, listed_names
from tallybox.detections.category_words import entries
from tallybox.errors import InputError, InputTypeError

NEGATIVE_SIZE = "bbox must be left, top, width, height with sizes of at least 0"
NOT_COCO = "names of classes must be COCO's"
GIVE_CLASS_NAMES = "give those of all classes of the detector with class_names={0: ..., 1: ...}"

ClassIds = Sequence[int] | Mapping[int, int] | None
ClassNames = Sequence[str] | Mapping[int, str] | None
Columns = tuple[Any, Any, Any]  # boxes [N, 4] x1 y1 x2 y2, scores [N], category ids [N], not checked yet
ImageColumns = tuple[Any, Any, Any, Any]  # the same with the id or the size of the image


def on_host(values: Any) -> Any:
    """Return a torch tensor of any device and precision as a numpy array, anything else unchanged."""
    if not (hasattr(values, "detach") and hasattr(values, "cpu")):
        return values
    tensor = values.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() else tensor).numpy()  # numpy has no bfloat16


def from_coco(results: Sequence[Mapping[str, Any]], image_size: tuple[int, int] | None) -> ImageColumns:
    """Convert COCO results, which must be of one image, and return its id too."""
    for number, result in enumerate(results):
        if missing := [key for key in ("category_id", "bbox", "score") if key not in result]:
            raise InputError(f"results must have a {missing[0]}, but result {number} has only {sorted(result)}")
        if len(result["bbox"]) != 4:
            raise InputError(f"bbox must be left, top, width, height, but result {number} has {result['bbox']!r}")
    image_id = _only_id([result.get("image_id") for result in results], "results", "read files with read_detections")
    try:
        boxes = np.array([result["bbox"] for result in results], np.float64).reshape(-1, 4)
        scores = np.array([result["score"] for result in results], np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputTypeError(f"bbox and score must be numbers, but got something else: {error}") from None
    negative = (boxes[:, 2:] < 0).any(1)
    if negative.any():
        index = int(np.argmax(negative))
        raise InputError(f"{NEGATIVE_SIZE}, but got {boxes[index].tolist()} at index {index}")
    boxes[:, 2:] += boxes[:, :2]  # now x1 y1 x2 y2
    if image_size is not None and look_like_misread_corners(boxes, image_size):
        raise InputError(
            f"bbox must be left, top, width, height, but the boxes reach far beyond the {image_size[0]} x "
            f"{image_size[1]} image; these look like x1 y1 x2 y2: pass them to Detections"
        )
    return boxes, scores, [result["category_id"] for result in results], image_id


def from_supervision(
    detections: Any, category_ids: ClassIds, class_names: ClassNames, estimator_names: Mapping[int, str] | None = None
) -> Columns:
    """Convert a ``supervision.Detections``; the classes that it names are COCO's, or those of an estimator."""
    for name in ("xyxy", "confidence", "class_id"):
        if not hasattr(detections, name):
            raise InputTypeError(
                f"detections must be a supervision.Detections, but got {type(detections).__name__} without {name}"
            )
    if len(detections.xyxy) == 0:  # without boxes, the other attributes may be None
        return [], [], []
    for name in ("confidence", "class_id"):
        if getattr(detections, name) is None:
            raise InputError(f"detections must have a {name} for each box, but got None")
    names_of_boxes = (getattr(detections, "data", None) or {}).get("class_name")
    if category_ids is None and class_names is None and names_of_boxes is not None:
        # Other classes can be numbered only from all names of a detector.
        find, expected, remedy = coco_id_of_class, NOT_COCO, GIVE_CLASS_NAMES
        if estimator_names is not None:
            find = partial(_estimator_or_coco_id, estimator_names)
            listed = listed_names(estimator_names, estimator_names)
            expected = f"names of classes must be the estimator's ({listed}) or COCO's"
            remedy = "give ids of your own with Detections.from_supervision(detections, category_ids=...)"
        return detections.xyxy, detections.confidence, _ids_of_names(names_of_boxes, find, expected, remedy)
    origin = "a supervision.Detections without class_name"
    classes = _to_categories(detections.class_id, category_ids, class_names, origin)
    return detections.xyxy, detections.confidence, classes


def from_prediction(
    prediction: Any, category_ids: ClassIds, class_names: ClassNames, origin: str, *, labels_are_ids: bool
) -> Columns:
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
    if missing := [key for key in ("boxes", "scores", "labels") if key not in prediction]:
        raise InputError(f"prediction must have {missing[0]}, but got only {sorted(prediction)}")
    labels = on_host(prediction["labels"])
    if not labels_are_ids or category_ids is not None or class_names is not None:
        labels = _to_categories(labels, category_ids, class_names, f"the dict that {origin}")
    return prediction["boxes"], prediction["scores"], labels


def from_ultralytics(result: Any, category_ids: ClassIds, class_names: ClassNames) -> ImageColumns:
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
    names = getattr(result, "names", None) if class_names is None else class_names
    ids = _to_categories(boxes.cls, category_ids, names, "a Results without names")
    return boxes.xyxy, boxes.conf, ids, (width, height)


def from_dataframe(frame: Any, layout: str | None, category_ids: ClassIds, class_names: ClassNames) -> ImageColumns:
    """Convert the rows of one image in a pandas ``DataFrame``, and return its id too."""
    taken: dict[str, Any] = {}
    for name in sorted(frame.columns, key=lambda name: str(name) in COLUMN_NAMES):  # the names used here come first
        taken.setdefault(COLUMN_NAMES.get(str(name), str(name)), name)
    columns = {key: frame[name].tolist() for key, name in taken.items()}
    if "score" not in columns:
        raise InputError(f"a data frame must have a column score or confidence, but got {list(frame.columns)}")
    remedy = f"pass those of frame.groupby({taken.get('image_id')!r}) one by one"
    image_id = _only_id(columns.get("image_id", []), "a data frame", remedy)
    ids = _frame_categories(columns, category_ids, class_names)
    return _frame_boxes(columns, layout), columns["score"], ids, image_id


def _frame_categories(columns: Mapping[str, list[Any]], category_ids: ClassIds, class_names: ClassNames) -> Any:
    """Return the category id of each row: by what the caller says of its classes, else by ids, else by names."""
    texts = {key: columns[key] for key in ("category", "category_id", "class_id") if _are_names(columns.get(key))}
    names = next(iter(texts.values()), None)
    ids, numbers = (None if key in texts else columns.get(key) for key in ("category_id", "class_id"))
    if category_ids is not None or class_names is not None:
        classes = ids if numbers is None else numbers
        if classes is None and names is not None and class_names is not None:
            find = partial(find_category, categories=_names_by_class(class_names))
            classes = _ids_of_names(names, find, "names of classes must be among class_names")
        if classes is not None:
            return _to_categories(classes, category_ids, class_names, "a data frame")
    elif ids is not None:
        _check_agreement(ids, names)
        return ids
    elif names is not None:
        return _ids_of_names(names, find_category, NOT_COCO, GIVE_CLASS_NAMES)
    elif numbers is not None:
        return _to_categories(numbers, None, None, "a data frame with class numbers only")
    wanted = "category_id, category or class_id" if category_ids is None else "category_id or class_id for category_ids"
    raise InputError(f"a data frame must have a column {wanted}, but got {sorted(columns)}")


def _are_names(values: list[Any] | None) -> bool:
    return any(isinstance(value, str) and not value.strip().isdigit() for value in values or ())


def _check_agreement(ids: list[Any], names: list[Any] | None) -> None:
    """Raise where all names are COCO's, but not the ids; where some are one's own, the ids are as well."""
    found = {(key, str(name)): find_category(str(name)) for key, name in zip(ids, names or (), strict=False)}
    if None in found.values():
        return
    for (key, name), category_id in found.items():
        if key != category_id:
            raise InputError(
                f"category_id and category must name one category, but got {key} and {name!r}, whose id in COCO is "
                f"{category_id}; leave out one of the columns, or give class_names="
            )


def _only_id(image_ids: Sequence[Any], what: str, remedy: str) -> Any:
    distinct = list(dict.fromkeys(image_ids))
    if len(distinct) > 1:
        raise InputError(f"{what} must be of one image, but got {len(distinct)}: {distinct[:3]}; {remedy}")
    return distinct[0] if distinct else None


IMAGE_COLUMNS = ("image_id", "image", "photo", "file", "file_name", "filename")  # of which a table has one
# Names of columns in other tools (YOLOv5's data frames, supervision's CSVSink), and what they are called here.
COLUMN_NAMES = dict.fromkeys(IMAGE_COLUMNS[1:], "image_id") | entries(
    "xmin: x1; ymin: y1; xmax: x2; ymax: y2; x_min: x1; y_min: y1; x_max: x2; y_max: y2; left: x1; top: y1; "
    "x: x1; y: y1; w: width; h: height; class_name: category; name: category; class: class_id; confidence: score; "
    "image_name: image_id; frame_index: image_id; frame_number: image_id; frame: image_id"
)
BOX_COLUMNS = {"xyxy": ("x1", "y1", "x2", "y2"), "xywh": ("x1", "y1", "width", "height")}


def _frame_boxes(columns: Mapping[str, list[Any]], layout: str | None) -> NDArray[np.float64]:
    """Return x1 y1 x2 y2 from columns of corners, of corner and size, or of ``bbox``."""
    if layout not in (None, "xyxy", "xywh"):
        raise InputError(f'layout must be "xyxy" or "xywh", but got {layout!r}')
    column_layout = next((layout for layout, sides in BOX_COLUMNS.items() if columns.keys() >= set(sides)), None)
    if column_layout is None and "bbox" not in columns:
        raise InputError(
            f"a data frame must have columns x1 y1 x2 y2, x y w h, or bbox, but got {sorted(columns)}; rename them"
        )
    try:
        if column_layout is None:
            boxes = np.array(columns["bbox"], np.float64).reshape(-1, 4)
        else:
            boxes = np.column_stack([np.array(columns[side], np.float64) for side in BOX_COLUMNS[column_layout]])
    except (TypeError, ValueError) as error:
        raise InputTypeError(f"the boxes of a data frame must be four numbers each, but: {error}") from None
    if column_layout is None and layout is None:
        # Only a width may be smaller than the left side, and only a height smaller than the top.
        if len(boxes) and not (boxes[:, 2:] < boxes[:, :2]).any():
            raise InputError('bbox may be x1 y1 x2 y2 or left, top, width, height; give layout="xyxy" or "xywh"')
        layout = "xywh"
    if (layout or column_layout) == "xywh":
        boxes[:, 2:] += boxes[:, :2]
    return boxes


def _ids_of_names(
    names: Any, find: Callable[[str], int | None], expected: str, remedy: str = "add it, or correct it"
) -> list[int]:
    """Return the id that ``find`` gives to each box's class name."""
    ids: dict[str, int] = {}
    texts = [str(name) for name in np.asarray(names).tolist()]
    for name in texts:
        if name not in ids:
            if (found := find(name)) is None:
                raise InputError(f"{expected}, but got {name!r}; {remedy}")
            ids[name] = found
    return [ids[name] for name in texts]


def _estimator_or_coco_id(estimator_names: Mapping[int, str], name: str) -> int | None:
    """Return the id of an estimator's category, or that of COCO's if the estimator has no other category under it."""
    if (category_id := find_category(name, estimator_names)) is not None:
        return category_id
    coco_id = coco_id_of_class(name)
    return None if coco_id in estimator_names else coco_id


def _names_by_class(class_names: Sequence[str] | Mapping[int, str]) -> dict[int, str]:
    names = class_names if isinstance(class_names, Mapping) else dict(enumerate(class_names))
    return {int(key): str(name) for key, name in names.items()}


def _to_categories(classes: Any, category_ids: ClassIds, class_names: ClassNames, origin: str) -> NDArray[np.int64]:
    """Return the category id of each class; never guess: YOLO's class 16 is a dog, COCO's category 16 a bird."""
    numbers = np.asarray(on_host(classes)).tolist()
    if category_ids is None and class_names is not None:
        category_ids = category_ids_of_classes(_names_by_class(class_names))
    if category_ids is None:
        if not numbers:
            return np.zeros(0, np.int64)
        raise InputError(
            f"the classes of {origin} must be numbered in a known way, but it does not say how; give the detector's "
            'names with class_names={0: "person", ...} (model.names, model.config.id2label), or ids with category_ids='
        )
    try:
        return np.array([category_ids[int(number)] for number in numbers], np.int64)
    except (IndexError, KeyError) as error:
        raise InputError(f"category_ids must name a category for every class, but one is missing: {error}") from None
