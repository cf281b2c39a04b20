"""One image's detections, checked once, where they enter."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from tallybox.detections import adapters
from tallybox.detections.adapters import ClassIds, ClassNames
from tallybox.detections.box_checks import first_problem
from tallybox.errors import InputError, InputTypeError

if TYPE_CHECKING:
    from torch import Tensor

ImageId = int | str
Size = tuple[int, int]  # width, height
Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

MAX_SIDE = 2**31 - 1  # of an image, in pixels


@dataclass(frozen=True, eq=False)
class Detections:
    """What a detector found in one image: boxes [N, 4] as x1 y1 x2 y2, scores [N] in [0, 1], category_ids [N].

    Takes numpy arrays, lists, and torch tensors on any device; holds numpy arrays (float32, float32, int64).
    Boxes may overlap: nothing is suppressed here. ``image_size`` is (width, height).

    >>> two = Detections([[10, 10, 50, 90], [12, 11, 52, 88]], [0.9, 0.6], [18, 18], image_size=(640, 480))
    >>> len(two), two.scores.dtype.name, two.best_scores()
    (2, 'float32', {18: 0.8999999761581421})
    """

    boxes: Floats
    scores: Floats
    category_ids: Integers
    image_size: Size | None = None
    image_id: ImageId | None = None
    category_names: Mapping[int, str] | None = None  # the names that the source gives to its category ids

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
            index, message, remedy = problem
            raise InputError(f"{message} at index {index}; {remedy}")
        image_id = int(self.image_id) if isinstance(self.image_id, np.integer) else self.image_id
        if isinstance(image_id, bool) or not isinstance(image_id, int | str | None):
            raise InputTypeError(f"image_id must be a whole number or a text, but got {image_id!r}")
        size, scores = _as_size(self.image_size), scores.clip(0, 1)
        self.__dict__.update(boxes=boxes, scores=scores, category_ids=category_ids, image_size=size, image_id=image_id)

    def __len__(self) -> int:
        return len(self.boxes)

    def of_category(self, category_id: int) -> Self:
        """Return the detections of one category, in the same order."""
        return self._of_rows(self.category_ids == category_id)

    def of_categories(self, category_ids: Collection[int]) -> Self:
        """Return the detections of some categories, in the same order."""
        return self._of_rows(np.isin(self.category_ids, list(category_ids)))

    def _of_rows(self, chosen: NDArray[np.bool_]) -> Self:
        columns = (self.boxes[chosen], self.scores[chosen], self.category_ids[chosen])
        return self.of_checked(*columns, self.image_size, self.image_id, self.category_names)

    def best_scores(self) -> dict[int, float]:
        """Return the highest score of each category that was detected."""
        order = np.argsort(self.scores, kind="stable")  # the best of a category comes last and wins
        return dict(zip(self.category_ids[order].tolist(), self.scores[order].tolist(), strict=True))

    def tensors(self, device: Any = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return boxes ``[N, 4]``, scores ``[N]`` and category_ids ``[N]`` as torch tensors, which are copies.

        >>> two = Detections([[10, 10, 50, 90], [12, 11, 52, 88]], [0.75, 0.5], [18, 18])
        >>> boxes, scores, category_ids = two.tensors()
        >>> scores, boxes.shape, category_ids.dtype
        (tensor([0.7500, 0.5000]), torch.Size([2, 4]), torch.int64)
        """
        import torch

        boxes, scores = torch.tensor(self.boxes, device=device), torch.tensor(self.scores, device=device)
        return boxes, scores, torch.tensor(self.category_ids, device=device)

    @classmethod
    def of_checked(
        cls,
        boxes: Floats,
        scores: Floats,
        category_ids: Integers,
        image_size: Size | None,
        image_id: ImageId | None,
        category_names: Mapping[int, str] | None = None,
    ) -> Self:
        """Take arrays of the right types that a reader has checked, for a whole file at once."""
        self = object.__new__(cls)
        columns = {"boxes": boxes, "scores": scores, "category_ids": category_ids}
        self.__dict__.update(columns, image_size=image_size, image_id=image_id, category_names=category_names)
        return self

    @classmethod
    def empty(cls, image_id: ImageId | None = None, image_size: Size | None = None) -> Self:
        """Return an image in which nothing was detected.

        >>> len(Detections.empty(image_id=285))
        0
        """
        nothing = np.zeros(0, np.float32)
        return cls(nothing.reshape(0, 4), nothing, np.zeros(0, np.int64), image_size, image_id)

    @classmethod
    def from_coco(
        cls, results: Sequence[Mapping[str, Any]], *, image_size: Size | None = None, image_id: ImageId | None = None
    ) -> Self:
        """Take COCO results (``bbox`` is left, top, width, height) of one image.

        >>> Detections.from_coco([{"image_id": 7, "category_id": 18, "bbox": [1, 2, 3, 4], "score": 0.5}]).boxes
        array([[1., 2., 4., 6.]], dtype=float32)
        """
        boxes, scores, category_ids, stored_id = adapters.from_coco(results, image_size)
        if stored_id is not None and image_id not in (None, stored_id):
            raise InputError(f"image_id must be that of the results, {stored_id!r}, but got {image_id!r}")
        return cls(boxes, scores, category_ids, image_size, image_id if stored_id is None else stored_id)

    @classmethod
    def from_supervision(
        cls,
        detections: Any,
        *,
        image_size: Size | None = None,
        image_id: ImageId | None = None,
        category_ids: ClassIds = None,
        class_names: ClassNames = None,
    ) -> Self:
        """Take a ``supervision.Detections``.

        Its classes are named by itself (``data["class_name"]``) or by ``class_names``, or ``category_ids[class_id]`` is
        the category of a class. Numbers alone are refused, because detectors number their classes differently.
        """
        columns = adapters.from_supervision(detections, category_ids, class_names)
        return cls(*columns, image_size=image_size, image_id=image_id)

    @classmethod
    def from_torchvision(
        cls,
        prediction: Mapping[str, Any],
        *,
        image_size: Size | None = None,
        image_id: ImageId | None = None,
        category_ids: ClassIds = None,
        class_names: ClassNames = None,
    ) -> Self:
        """Take one of the dicts (``boxes``, ``labels``, ``scores``) that a torchvision detector returns.

        Its labels are category ids, as torchvision's models of COCO give them, unless ``category_ids`` or
        ``class_names`` translate them.

        >>> prediction = {"boxes": [[0, 0, 5, 5]], "labels": [18], "scores": [0.5]}
        >>> Detections.from_torchvision(prediction).category_ids
        array([18])
        """
        origin = "a torchvision detector returns for one image"
        columns = adapters.from_prediction(prediction, category_ids, class_names, origin, labels_are_ids=True)
        return cls(*columns, image_size=image_size, image_id=image_id)

    @classmethod
    def from_transformers(
        cls,
        prediction: Mapping[str, Any],
        *,
        image_size: Size | None = None,
        image_id: ImageId | None = None,
        category_ids: ClassIds = None,
        class_names: ClassNames = None,
    ) -> Self:
        """Take one of the dicts that ``image_processor.post_process_object_detection`` returns.

        ``class_names=model.config.id2label`` says what its labels are, or ``category_ids[label]`` is their category.
        Its ``threshold`` should be low (0.01): boxes left out there cannot be counted here.
        """
        origin = "post_process_object_detection returns for one image"
        columns = adapters.from_prediction(prediction, category_ids, class_names, origin, labels_are_ids=False)
        return cls(*columns, image_size=image_size, image_id=image_id)

    @classmethod
    def from_ultralytics(
        cls,
        result: Any,
        *,
        image_id: ImageId | None = None,
        category_ids: ClassIds = None,
        class_names: ClassNames = None,
    ) -> Self:
        """Take one ``Results`` of an ultralytics model.

        Its own names say what its classes are: COCO's names get COCO's ids, other classes keep their numbers.
        """
        boxes, scores, ids, image_size = adapters.from_ultralytics(result, category_ids, class_names)
        return cls(boxes, scores, ids, image_size, image_id)

    @classmethod
    def from_dataframe(
        cls,
        frame: Any,
        *,
        layout: Literal["xyxy", "xywh"] | None = None,
        image_size: Size | None = None,
        image_id: ImageId | None = None,
        category_ids: ClassIds = None,
        class_names: ClassNames = None,
    ) -> Self:
        """Take the rows of one image in a pandas ``DataFrame``.

        Boxes are columns ``x1 y1 x2 y2`` (or ``xmin …``, ``x_min …``), ``x y w h`` (or ``left top width height``), or
        ``bbox``, for which ``layout`` says which of both it is. ``score`` or ``confidence`` is there, and
        ``category_id``, a name (``category``, ``class_name``, ``name``), or a class (``class_id``, ``class``): a name,
        or a number with ``class_names`` or ``category_ids``. If these are given, ``category_id`` is such a number too.
        The image is named by ``image_id``, ``image``, ``photo``, ``file``, ``file_name`` or ``filename``.

        >>> import pandas
        >>> frame = pandas.DataFrame({"bbox": [[5, 5, 3, 4]], "confidence": [0.5], "name": ["dog"]})
        >>> Detections.from_dataframe(frame).boxes
        array([[5., 5., 8., 9.]], dtype=float32)
        """
        boxes, scores, ids, stored_id = adapters.from_dataframe(frame, layout, category_ids, class_names)
        return cls(boxes, scores, ids, image_size, stored_id if image_id is None else image_id)

    @classmethod
    def of_any(cls, detections: Any, estimator_names: Mapping[int, str]) -> Self:
        """Return detections unchanged; convert those of supervision and ultralytics if they name their classes.

        ``estimator_names`` are the names of the categories of the estimator that counts them.
        """
        if isinstance(detections, cls):
            return detections
        if hasattr(detections, "xyxy") and hasattr(detections, "class_id"):
            return cls(*adapters.from_supervision(detections, None, None, estimator_names))
        if hasattr(detections, "orig_shape"):
            return cls.from_ultralytics(detections)
        raise InputTypeError(
            f"the Detections of one image are expected, but got {type(detections).__name__}; make them with "
            "Detections(boxes, scores, category_ids) or Detections.from_coco, from_torchvision, from_transformers, "
            "from_dataframe"
        )


def _as_floats(name: str, values: Any) -> Floats:
    try:
        with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite, which is refused
            return np.asarray(adapters.on_host(values), dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputTypeError(f"{name} must be an array of numbers, but got {type(values).__name__}: {error}") from None


def _as_category_ids(values: Any) -> Integers:
    array = np.asarray(adapters.on_host(values))
    if array.size == 0:
        return np.zeros(array.shape, np.int64)
    kind = array.dtype.kind
    are_whole = kind in "iu" or (kind == "f" and np.array_equal(array, np.round(array)))  # ultralytics has floats
    if not are_whole or (kind in "uf" and np.abs(array).max() >= 2**63):
        raise InputTypeError(
            f"category_ids must be whole numbers of 64 bits, but got {array.dtype} {array.ravel()[:3].tolist()}; "
            "give each name a number"
        )
    return array.astype(np.int64)


def _as_size(size: Any) -> Size | None:
    if size is None:
        return None
    try:
        width, height = (int(side) for side in size)
    except (TypeError, ValueError, OverflowError):
        raise InputTypeError(f"image_size must be (width, height), but got {size!r}") from None
    if not (1 <= width <= MAX_SIDE and 1 <= height <= MAX_SIDE):
        raise InputError(
            f"image_size must be (width, height) of at least 1 pixel and at most {MAX_SIDE}, but got {width}, {height}"
        )
    return width, height
