"""One image's detections, checked once, where they enter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tallybox.detections.categories import ClassNames, categories_of_classes
from tallybox.errors import InputError, InputTypeError

ImageId = int | str
Size = tuple[int, int]  # width, height
Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

BoxFormat = Literal["xyxy", "xywh", "cxcywh"]  # corners; left, top, width, height; centre, width, height


class ImageFields(TypedDict, total=False):
    """What the results of a detector do not tell about their image."""

    image_size: Size | None
    image_id: ImageId | None


MAX_SIDE = 2**31 - 1  # of an image, in pixels
ROUNDING_SLACK = 1e-6  # a score computed as a product may miss 1 by a rounding error of float32
MAX_OVERHANG = 0.5  # of an image's side; detectors draw boxes over the border, but not that far


@dataclass(frozen=True, eq=False)
class Detections:
    """The boxes of one image: boxes [N, 4] as x1 y1 x2 y2, scores [N] in [0, 1], category_ids [N].

    Takes numpy arrays, lists, and torch tensors on any device; holds numpy arrays (float32, float32, int64).
    Boxes may overlap: nothing is suppressed here. ``image_size`` is (width, height). ``category_names`` are the names
    that the detector gives to category ids; an estimator that has names matches categories by name. The methods
    ``from_…`` take ``image_size`` and ``image_id`` as well.

    >>> two = Detections([[10, 10, 50, 90], [12, 11, 52, 88]], [0.9, 0.6], [18, 18], image_size=(640, 480))
    >>> len(two), two.scores.dtype.name, two.best_scores()
    (2, 'float32', {18: 0.8999999761581421})
    """

    boxes: Floats
    scores: Floats
    category_ids: Integers
    image_size: Size | None = None
    image_id: ImageId | None = None
    category_names: Mapping[int, str] | None = None

    def __post_init__(self) -> None:
        boxes = _as_floats("boxes", self.boxes)
        scores = _as_floats("scores", self.scores)
        category_ids = _as_category_ids(self.category_ids)
        if boxes.size == 0:
            boxes = boxes.reshape(0, 4)
        if boxes.ndim != 2 or boxes.shape[1] != 4:
            raise InputError(f"boxes must have shape [N, 4], but got {list(boxes.shape)}; pass one image at a time")
        for name, array in (("scores", scores), ("category_ids", category_ids)):
            if array.shape != (len(boxes),):
                raise InputError(f"{name} must have shape [{len(boxes)}], one for each box, but got {[*array.shape]}")
        if problem := first_problem(boxes, scores):
            raise InputError(f"boxes and scores, index {problem[0]}: {problem[1]}")
        image_id = int(self.image_id) if isinstance(self.image_id, np.integer) else self.image_id
        if isinstance(image_id, bool) or not isinstance(image_id, int | str | None):
            raise InputTypeError(f"image_id must be a whole number or a text, but got {image_id!r}")
        size, scores = _as_size(self.image_size), scores.clip(0, 1)
        self.__dict__.update(boxes=boxes, scores=scores, category_ids=category_ids, image_size=size, image_id=image_id)

    def __len__(self) -> int:
        return len(self.boxes)

    def of_category(self, category_id: int) -> Self:
        """Return the detections of one category, in the same order."""
        chosen = self.category_ids == category_id
        columns = {name: getattr(self, name)[chosen] for name in ("boxes", "scores", "category_ids")}
        return self.of_checked(**vars(self) | columns)

    def renumbered(self, ids: Mapping[int, int], names: Mapping[int, str]) -> Self:
        """Return the same detections with other category ids, and the names of these."""
        new_ids = np.array([ids.get(key, key) for key in self.category_ids.tolist()], np.int64)
        return self.of_checked(**vars(self) | {"category_ids": new_ids, "category_names": names})

    def best_scores(self) -> dict[int, float]:
        """Return the highest score of each category that was detected."""
        order = np.argsort(self.scores, kind="stable")  # the best of a category comes last and wins
        return dict(zip(self.category_ids[order].tolist(), self.scores[order].tolist(), strict=True))

    @classmethod
    def of_checked(cls, **fields: Any) -> Self:
        """Take fields of the right types that a reader has checked, for a whole file at once."""
        self = object.__new__(cls)
        self.__dict__.update(fields)
        return self

    @classmethod
    def empty(cls, image_id: ImageId | None = None, image_size: Size | None = None) -> Self:
        """Return an image in which nothing was detected."""
        return cls(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64), image_size, image_id)

    @classmethod
    def from_coco(
        cls,
        results: Sequence[Mapping[str, Any]],
        *,
        category_names: Mapping[int, str] | None = None,
        **image: Unpack[ImageFields],
    ) -> Self:
        """Take COCO results (``bbox`` is left, top, width, height) of one image.

        >>> Detections.from_coco([{"image_id": 7, "category_id": 18, "bbox": [1, 2, 3, 4], "score": 0.5}]).boxes
        array([[1., 2., 4., 6.]], dtype=float32)
        """
        stated = dict.fromkeys((image.get("image_id"), *(result.get("image_id") for result in results)))
        ids = [image_id for image_id in stated if image_id is not None]
        if len(ids) > 1:
            raise InputError(f"These results are of several images ({ids[:3]}); pass one image at a time")
        image["image_id"] = ids[0] if ids else None
        try:
            boxes: Any = np.array([result["bbox"] for result in results], np.float64).reshape(len(results), 4)
            scores, category_ids = (np.array([result[key] for result in results]) for key in ("score", "category_id"))
        except KeyError as error:
            raise InputError(f"COCO results: a result has no {error}") from None
        except (TypeError, ValueError, OverflowError) as error:
            raise InputTypeError(f"COCO results: bbox must be four numbers: {error}") from None
        boxes[:, 2:] += boxes[:, :2]  # left, top, width, height to x1 y1 x2 y2
        self = cls(boxes, scores, category_ids, category_names=category_names, **image)
        check_in_image(self, self.image_size, "COCO results")
        return self

    @classmethod
    def from_supervision(cls, detections: Any, *, class_names: ClassNames = None, **image: Unpack[ImageFields]) -> Self:
        """Take a ``supervision.Detections``, with the names in ``data["class_name"]`` or in ``class_names``.

        Numbers alone are refused, because detectors number their classes differently.
        """
        kind = "a supervision.Detections"
        (boxes,) = _parts(detections, ["xyxy"], kind)
        if len(boxes) == 0:  # without boxes, the other attributes may be None
            return cls.empty(**image)
        scores, classes = _parts(detections, ["confidence", "class_id"], kind)
        names_of_boxes = (getattr(detections, "data", None) or {}).get("class_name")
        if class_names is None and names_of_boxes is not None:
            class_names = dict(sorted(zip(np.asarray(classes).tolist(), map(str, names_of_boxes), strict=True)))
        return cls(boxes, scores, **_categories(classes, class_names), **image)

    @classmethod
    def from_torchvision(
        cls, prediction: Mapping[str, Any], *, class_names: ClassNames = None, **image: Unpack[ImageFields]
    ) -> Self:
        """Take one of the dicts (``boxes``, ``labels``, ``scores``) that a torchvision detector returns.

        Its labels are category ids, as torchvision's models of COCO give them, unless ``class_names`` name them.

        >>> prediction = {"boxes": [[0, 0, 5, 5]], "labels": [18], "scores": [0.5]}
        >>> Detections.from_torchvision(prediction).category_ids
        array([18])
        """
        kind = "the dict of one image that a torchvision detector returns"
        boxes, scores, labels = _parts(prediction, ["boxes", "scores", "labels"], kind)
        categories = {"category_ids": labels} if class_names is None else _categories(labels, class_names)
        return cls(boxes, scores, **categories, **image)

    @classmethod
    def from_transformers(
        cls, prediction: Mapping[str, Any], *, class_names: ClassNames = None, **image: Unpack[ImageFields]
    ) -> Self:
        """Take one of the dicts that ``image_processor.post_process_object_detection`` returns.

        Pass ``class_names=model.config.id2label``. Its ``threshold`` should be low (0.01): tallybox cannot count a box
        that it never sees.
        """
        kind = "the dict of one image that post_process_object_detection returns"
        boxes, scores, labels = _parts(prediction, ["boxes", "scores", "labels"], kind)
        return cls(boxes, scores, **_categories(labels, class_names), **image)

    @classmethod
    def from_ultralytics(cls, result: Any, *, class_names: ClassNames = None, image_id: ImageId | None = None) -> Self:
        """Take one ``Results`` of an ultralytics model, with the names of its classes.

        If all names are COCO's, classes get COCO's ids; otherwise they keep their numbers.
        """
        kind = "the ultralytics Results of one image, of a detection model"
        found, (height, width) = _parts(result, ["boxes", "orig_shape"], kind)
        boxes, scores, classes = _parts(found, ["xyxy", "conf", "cls"], kind)
        class_names = getattr(result, "names", None) if class_names is None else class_names
        return cls(boxes, scores, **_categories(classes, class_names), image_size=(width, height), image_id=image_id)

    @classmethod
    def from_dataframe(
        cls,
        frame: Any,
        *,
        box_format: BoxFormat | None = None,
        class_names: ClassNames = None,
        **image: Unpack[ImageFields],
    ) -> "Detections":
        """Take the rows of one image in a pandas ``DataFrame``.

        Its columns are those of files of detections (docs/reference/file-formats.md). ``box_format`` is what the box
        columns mean, ``"xyxy"``, ``"xywh"`` or ``"cxcywh"``; by default their names decide. ``class_names`` are for
        class numbers without names.

        >>> import pandas
        >>> frame = pandas.DataFrame({"x": [5], "y": [5], "width": [3], "height": [4], "conf": [0.5], "name": ["dog"]})
        >>> image = Detections.from_dataframe(frame)
        >>> image.boxes, image.category_names
        (array([[5., 5., 8., 9.]], dtype=float32), {18: 'dog'})
        """
        from tallybox.detections.tables import detections_in_frame, known_columns  # which import this module

        image_id, image_size = image.get("image_id"), image.get("image_size")
        own_column = known_columns(frame).get("image_id") if image_id is None else None
        if own_column is None:
            frame = frame.assign(image_id=0)
        if image_size is not None:
            frame = frame.assign(image_width=image_size[0], image_height=image_size[1])
        images = list(detections_in_frame(frame, "data frame", box_format=box_format, category_names=class_names))
        if len(images) > 1:
            ids = [image.image_id for image in images[:3]]
            raise InputError(f"These rows are of several images ({ids}); pass those of frame.groupby({own_column!r})")
        found = images[0] if images else cls.empty(image_size=image_size)
        return found if own_column is not None else replace(found, image_id=image_id)


def first_problem(
    boxes_xyxy: NDArray[np.floating], scores: NDArray[np.floating], sizes_wh: ArrayLike = (0, 0)
) -> tuple[int, str] | None:
    """Return the index of the first wrong box ``[N, 4]`` or score ``[N]`` and what is wrong with it, or None.

    No box may be far beyond its image, of which ``sizes_wh`` is the size, ``[2]`` or ``[N, 2]``, and 0 if not known.
    """
    images_wh = np.broadcast_to(sizes_wh, (len(scores), 2))
    with np.errstate(invalid="ignore"):
        sizes = boxes_xyxy[:, 2:] - boxes_xyxy[:, :2]  # [N, 2], not finite if a corner is not
    in_order = ((sizes >= 0) & (sizes < np.inf)).all(1)
    too_low = boxes_xyxy[:, :2] < -MAX_OVERHANG * images_wh
    too_high = boxes_xyxy[:, 2:] > (1 + MAX_OVERHANG) * images_wh
    is_outside = ((too_low | too_high) & (images_wh > 0)).any(1)
    in_range = (scores >= -ROUNDING_SLACK) & (scores <= 1 + ROUNDING_SLACK)
    good = in_order & in_range & ~is_outside
    if good.all():
        return None
    index = int(np.argmin(good))
    if not in_range[index]:
        remedy = "apply a logistic to logits, divide percentages by 100"
        return index, f"score {scores[index]:g} is not in [0, 1]; {remedy}"
    box = f"box [{', '.join(f'{corner:g}' for corner in boxes_xyxy[index])}]"
    if not np.isfinite(sizes[index]).all():
        return index, f"{box} is not finite"
    if (sizes[index] < 0).any():
        return index, f"{box} is not x1 y1 x2 y2 with x1 ≤ x2 and y1 ≤ y2; is the box format right?"
    width, height = images_wh[index].tolist()
    remedy = "check the size and the box format (box_format=, --box-format)"
    return index, f"{box} extends more than {MAX_OVERHANG:.0%} beyond the {width}×{height} image; {remedy}"


def check_in_image(image: Detections, size_wh: Size | None, owner: str) -> None:
    """Raise if a box extends far beyond its image; ``owner`` names the image. Without a size, none does."""
    if problem := first_problem(image.boxes, image.scores, size_wh or (0, 0)):
        raise InputError(f"{owner}: {problem[1]}")


def on_host(values: Any) -> Any:
    """Return a torch tensor of any device and precision as a numpy array, anything else unchanged."""
    if not (hasattr(values, "detach") and hasattr(values, "cpu")):
        return values
    tensor = values.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() else tensor).numpy()  # numpy has no bfloat16


def _parts(owner: Any, names: Sequence[str], kind: str) -> list[Any]:
    """Return items of a dict or attributes of an object, which must have them."""
    parts = {name: owner.get(name) if isinstance(owner, Mapping) else getattr(owner, name, None) for name in names}
    if missing := [name for name, part in parts.items() if part is None]:
        raise InputTypeError(f"Expected {kind}, but {type(owner).__name__} has no {missing[0]}")
    return list(parts.values())


def _categories(classes: Any, class_names: ClassNames) -> dict[str, Any]:
    category_ids, names = categories_of_classes(np.asarray(on_host(classes)).tolist(), class_names)
    return {"category_ids": category_ids, "category_names": names}


def _as_floats(name: str, values: Any) -> Floats:
    try:
        with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite, which is refused
            return np.asarray(on_host(values), dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputTypeError(f"{name} must be an array of numbers, but got {type(values).__name__}: {error}") from None


def _as_category_ids(values: Any) -> Integers:
    array = np.asarray(on_host(values))
    if array.size == 0:
        return np.zeros(array.shape, np.int64)
    kind = array.dtype.kind
    are_whole = kind in "iu" or (kind == "f" and np.array_equal(array, np.round(array)))  # ultralytics has floats
    if not are_whole or (kind in "uf" and np.abs(array).max() >= 2**63):
        found = f"{array.dtype} {array.ravel()[:3].tolist()}"
        raise InputTypeError(f"category_ids must be whole numbers of 64 bits, but got {found}; number the names")
    return array.astype(np.int64)


def _as_size(size: Any) -> Size | None:
    if size is None:
        return None
    try:
        width, height = (int(side) for side in size)
        if min(width, height) >= 1 and max(width, height) <= MAX_SIDE:
            return width, height
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputTypeError(f"image_size must be (width, height) in pixels, but got {size!r}")
