"""Detection models in ONNX files, run by onnxruntime.

| | name | shape | holds |
|---|---|---|---|
| input | any | [B, 3, H, W] | float32 RGB in [0, 1]; B is free or 1, H and W are both fixed or both free |
| output | ``boxes`` | [B, N, 4] | x1 y1 x2 y2 in pixels of the input |
| output | ``scores`` | [B, N] or [B, N, C] | in [0, 1] |
| output | ``labels`` | [B, N] | numbers of classes from 0; missing where ``scores`` is [B, N, C] |

A photo is resized, its proportions kept, to fit into the input at the top left; the rest is grey (114). Where H and W
are free, the longer side becomes 640 pixels and both are padded to multiples of 32. The file's metadata may name the
classes under ``names``, as JSON or as the Python dict that ultralytics writes; without it they are COCO's 80, in order.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tallybox.detections.category_names import COCO_CATEGORIES
from tallybox.detections.container import Detections
from tallybox.errors import InputError, TallyboxError
from tallybox.files import first_line, import_optional
from tallybox.photos.adapters.labels import LabelCategories
from tallybox.photos.adapters.predictions import MAX_DETECTIONS, MIN_SCORE, AdaptedDetector, to_detections
from tallybox.photos.detector import device_or_default
from tallybox.photos.images import Photo

FREE_SIZE = 640  # of the longer side, where the input's size is free
MULTIPLE = 32
GREY = 114

EXPECTED = (
    "one input [B, 3, H, W] and outputs boxes [B, N, 4], scores [B, N] and labels [B, N], or boxes and scores [B, N, C]"
)


class OnnxDetector(AdaptedDetector):
    """A detection model in an ONNX file of the layout above."""

    def __init__(self, file: str | Path, *, device: str | torch.device | None = None) -> None:
        self.file = Path(file)
        onnxruntime = import_optional("onnxruntime", needed_for="this detector", install="'tallybox[onnx]'")
        if not self.file.is_file():
            raise InputError(f"onnx:FILE must be a file, but there is none at {self.file}; check the path")
        self.device = device_or_default(device)
        providers = ["CPUExecutionProvider"]
        if self.device.type == "cuda" and "CUDAExecutionProvider" in onnxruntime.get_available_providers():
            providers.insert(0, "CUDAExecutionProvider")
        try:
            self.session = onnxruntime.InferenceSession(self.file, providers=providers)
        except Exception as error:  # onnxruntime's errors share no base
            raise TallyboxError(
                f"{self.file} must be an ONNX file, but it cannot be loaded: {first_line(error)}"
            ) from error
        self._check_layout()
        self._labels = self._label_categories()
        self.categories = self._labels.categories

    def _detect_same_size(self, photos: Sequence[Photo]) -> list[Detections]:
        at_once = 1 if self._batch == 1 else len(photos)
        detected: list[Detections] = []
        for first in range(0, len(photos), at_once):
            some = photos[first : first + at_once]
            resized_wh, input_wh = _fitted(some[0].image.size, self._input_wh)
            images = np.stack([_input(photo, resized_wh, input_wh) for photo in some])
            for photo, prediction in zip(some, self._predict(images), strict=True):
                # Rounding to whole pixels may stretch a photo a little; boxes are scaled by what was done to it.
                detected.append(to_detections(prediction, photo, self._labels, looked_at_wh=resized_wh))
        return detected

    def _predict(self, images: NDArray[np.float32]) -> list[dict[str, Any]]:
        try:
            found = self.session.run(self._outputs, {self._input: images})
        except Exception as error:
            raise TallyboxError(f"{self.file} failed on an input {list(images.shape)}: {first_line(error)}") from error
        arrays = dict(zip(self._outputs, found, strict=True))
        number = len(images)
        boxes, scores = arrays["boxes"], arrays["scores"]
        labels = arrays.get("labels")
        agree = boxes.ndim == 3 and boxes.shape[0] == number and boxes.shape[2] == 4
        agree = agree and scores.ndim == (3 if labels is None else 2) and scores.shape[:2] == boxes.shape[:2]
        if not agree or (labels is not None and labels.shape != scores.shape):
            shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items())
            raise TallyboxError(f"{self.file} must have {EXPECTED}, but it gave {shapes} for {number} photos")
        return [
            _best(boxes[index], scores[index], None if labels is None else labels[index]) for index in range(number)
        ]

    def _check_layout(self) -> None:
        """Read names, batch size and input size from the file, or raise with what it has instead."""
        inputs, outputs = self.session.get_inputs(), self.session.get_outputs()
        ranks = {output.name: len(output.shape) for output in outputs if output.shape}
        names = [output.name for output in outputs]
        self._outputs = [name for name in ("boxes", "scores", "labels") if name in names]
        expected = {"boxes": 3, "scores": 2 if "labels" in names else 3, "labels": 2}
        right = (
            len(inputs) == 1
            and len(inputs[0].shape) == 4
            and inputs[0].type == "tensor(float)"
            and _is_free_or(inputs[0].shape[1], 3)
            and _is_free_or(inputs[0].shape[0], 1)
            and isinstance(inputs[0].shape[2], int) == isinstance(inputs[0].shape[3], int)
            and {"boxes", "scores"} <= set(names)
            and all(ranks.get(name, expected[name]) == expected[name] for name in self._outputs)
        )
        if not right:
            has = [
                f"{kind} {_described(one)}" for kind, many in (("input", inputs), ("output", outputs)) for one in many
            ]
            remedy = f"; if ultralytics wrote it, use ultralytics:{self.file}" if names == ["output0"] else ""
            raise InputError(f"{self.file} must have {EXPECTED}, float32, but it has {', '.join(has)}{remedy}")
        self._input = inputs[0].name
        self._batch, _, height, width = inputs[0].shape
        self._input_wh = (width, height) if isinstance(width, int) else None
        scores = next(output for output in outputs if output.name == "scores")
        self._classes = scores.shape[2] if scores.shape and len(scores.shape) == 3 else None

    def _label_categories(self) -> LabelCategories:
        names = _names(self.file, self.session.get_modelmeta().custom_metadata_map.get("names"))
        if names is not None:
            return LabelCategories.from_names(names)
        if isinstance(self._classes, int) and self._classes != len(COCO_CATEGORIES):
            raise InputError(
                f"{self.file} must name its {self._classes} classes in its metadata under names, but it does not; "
                'add for instance {"0": "apple", "1": "pear"} as JSON'
            )
        return LabelCategories.coco_in_order()


def _names(file: Path, text: str | None) -> Mapping[int, str] | None:
    """Return the names of classes, from JSON or a Python literal, a dict from number to name or a list."""
    if text is None:
        return None
    try:
        try:
            names = json.loads(text)
        except ValueError:
            names = ast.literal_eval(text)
        if isinstance(names, Sequence) and not isinstance(names, str):
            names = dict(enumerate(names))
        return {int(label): str(name) for label, name in names.items()}
    except (ValueError, SyntaxError, AttributeError, TypeError, MemoryError, RecursionError):
        raise InputError(
            f"{file}: names must be JSON or a Python dict from number to name, but got {text[:60]!r}"
        ) from None


def _fitted(size_wh: tuple[int, int], input_wh: tuple[int, int] | None) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the size that a photo is resized to, and the size of the input that it is placed in.

    >>> _fitted((1280, 960), (320, 320)), _fitted((1280, 960), None), _fitted((500, 1000), None)
    (((320, 240), (320, 320)), ((640, 480), (640, 480)), ((320, 640), (320, 640)))
    """
    available_wh = (FREE_SIZE, FREE_SIZE) if input_wh is None else input_wh
    scale = min(available / side for available, side in zip(available_wh, size_wh, strict=True))
    width, height = (
        min(available, max(1, round(side * scale))) for available, side in zip(available_wh, size_wh, strict=True)
    )
    padded = (-(-width // MULTIPLE) * MULTIPLE, -(-height // MULTIPLE) * MULTIPLE)
    return (width, height), padded if input_wh is None else input_wh


def _input(photo: Photo, resized_wh: tuple[int, int], input_wh: tuple[int, int]) -> NDArray[np.float32]:
    """Return a photo at the top left of a grey image ``[3, H, W]`` in [0, 1]."""
    from PIL.Image import Resampling

    image = photo.image if photo.image.size == resized_wh else photo.image.resize(resized_wh, Resampling.BILINEAR)
    padded = np.full((input_wh[1], input_wh[0], 3), GREY, np.uint8)
    padded[: resized_wh[1], : resized_wh[0]] = np.array(image)
    return np.ascontiguousarray(padded.transpose(2, 0, 1), np.float32) / np.float32(255)


def _best(boxes: NDArray[Any], scores: NDArray[Any], labels: NDArray[Any] | None) -> dict[str, Any]:
    """Return the best boxes of a photo, a box once for each class that scores enough."""
    if labels is None:
        rows, classes = np.nonzero(scores > MIN_SCORE)
        values = scores[rows, classes]
    else:
        rows = np.flatnonzero(scores > MIN_SCORE)
        classes, values = labels[rows], scores[rows]
    order = np.argsort(-values, kind="stable")[:MAX_DETECTIONS]
    return {"boxes": boxes[rows[order]], "scores": values[order], "labels": classes[order]}


def _is_free_or(side: int | str | None, number: int) -> bool:
    return not isinstance(side, int) or side == number


def _described(argument: Any) -> str:
    return f"{argument.name} {argument.type.removeprefix('tensor(').removesuffix(')')} {list(argument.shape)}".replace(
        "'", ""
    )
