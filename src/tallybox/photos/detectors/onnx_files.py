"""Detection models in ONNX files, run by onnxruntime; docs/reference/file-formats.md describes what they must be."""

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallybox.detections.categories import COCO_CATEGORIES, names_by_class
from tallybox.devices import Device, device_or_default
from tallybox.errors import InputError, TallyboxError
from tallybox.files import import_optional
from tallybox.photos.detector import (
    MAX_DETECTIONS,
    MIN_SCORE,
    AdaptedDetector,
    Prediction,
    boxes_in_photo,
    wrap_errors,
)
from tallybox.photos.images import BILINEAR, Photo, letterbox

FREE_SIZE = 640  # of the longer side, if the input's size is free
MULTIPLE = 32

EXPECTED = (
    "one input [B, 3, H, W] and outputs boxes [B, N, 4], scores [B, N] and labels [B, N], or boxes and scores [B, N, C]"
)


class OnnxDetector(AdaptedDetector):
    """A detection model in an ONNX file; the docs describe the layout, see "File formats"."""

    def __init__(self, file: str | Path, *, device: Device = None) -> None:
        self.file = Path(file)
        onnxruntime = import_optional("onnxruntime", needed_for="this detector", install="'tallybox[onnx]'")
        if not self.file.is_file():
            raise InputError(f"No such file: {self.file}")
        self.device = device_or_default(device)
        providers = ["CPUExecutionProvider"]
        if self.device.type == "cuda" and "CUDAExecutionProvider" in onnxruntime.get_available_providers():
            providers.insert(0, "CUDAExecutionProvider")
        with wrap_errors(f"Cannot load {self.file}"):
            self.session = onnxruntime.InferenceSession(self.file, providers=providers)
        self._check_layout()
        self._take_names(self._names())

    def _predict(self, photos: Sequence[Photo]) -> list[Prediction]:
        image_wh = photos[0].image.size
        resized_wh, input_wh = _fitted(image_wh, self._input_wh)
        pixels = np.stack([letterbox(photo.image, resized_wh, input_wh, BILINEAR) for photo in photos])
        images = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2), np.float32) / np.float32(255)
        batches = np.split(images, len(images)) if self._batch == 1 else [images]
        predictions = [_best(*outputs) for batch in batches for outputs in self._run(batch)]
        # Rounding to whole pixels may stretch a photo a little, so boxes are scaled by the size that it was resized to.
        return [{**p, "boxes": boxes_in_photo(p["boxes"], resized_wh, image_wh)} for p in predictions]

    def _run(self, images: NDArray[np.float32]) -> list[tuple[NDArray[Any], ...]]:
        """Return boxes, scores and, if the file has them, labels of each image."""
        with wrap_errors(f"{self.file} failed on an input {list(images.shape)}"):
            arrays = self.session.run(self._outputs, {self._input: images})
        boxes, scores, *labels = arrays
        number = (len(images), *boxes.shape[1:2])
        agree = boxes.shape == (*number, 4) and scores.shape[:2] == number and scores.ndim == (2 if labels else 3)
        if not agree or (labels and labels[0].shape != number):
            shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in zip(self._outputs, arrays, strict=True))
            raise TallyboxError(f"{self.file} must have {EXPECTED}; it gave {shapes} for {len(images)} photos")
        return list(zip(*arrays, strict=True))

    def _check_layout(self) -> None:
        """Read batch size, input size and outputs of the file, or raise with what it has instead."""
        inputs, outputs = self.session.get_inputs(), {node.name: node for node in self.session.get_outputs()}
        self._outputs = [name for name in ("boxes", "scores", "labels") if name in outputs]
        sides = [side if isinstance(side, int) else None for side in inputs[0].shape]  # None is free
        is_supported = len(inputs) == 1 and len(sides) == 4 and inputs[0].type == "tensor(float)"
        if not is_supported or sides[0] not in (None, 1) or not {"boxes", "scores"} <= outputs.keys():
            actual = ", ".join(f"{node.name} {node.shape}" for node in (*inputs, *outputs.values()))
            remedy = f"; if ultralytics wrote it, use ultralytics:{self.file}" if "output0" in outputs else ""
            raise InputError(f"{self.file} must have {EXPECTED}, float32; it has {actual}{remedy}")
        self._input = inputs[0].name
        self._batch, _, height, width = sides
        self._input_wh = None if width is None or height is None else (width, height)
        shape = outputs["scores"].shape
        self._classes = shape[2] if len(shape) == 3 else None

    def _names(self) -> Mapping[int, str]:
        """Return the names of classes: a dict from number to name or a list, as JSON or as Python writes it."""
        text = self.session.get_modelmeta().custom_metadata_map.get("names")
        if text is None:
            if isinstance(self._classes, int) and self._classes != len(COCO_CATEGORIES):
                raise InputError(
                    f"{self.file} does not name its {self._classes} classes; add names to its metadata, for example "
                    '{"0": "apple", "1": "pear"}'
                )
            return dict(enumerate(COCO_CATEGORIES.values()))
        with wrap_errors(f"{self.file}: cannot read the names in its metadata, {text[:60]!r}", InputError):
            return names_by_class(ast.literal_eval(text))


def _fitted(size_wh: tuple[int, int], input_wh: tuple[int, int] | None) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the size that a photo is resized to, and the size of the input that it is placed in.

    >>> _fitted((1280, 960), (320, 320)), _fitted((1280, 960), None), _fitted((500, 1000), None)
    (((320, 240), (320, 320)), ((640, 480), (640, 480)), ((320, 640), (320, 640)))
    """
    available_wh = input_wh or (FREE_SIZE, FREE_SIZE)
    scale = min(available / side for available, side in zip(available_wh, size_wh, strict=True))
    width, height = (
        min(available, max(1, round(side * scale))) for available, side in zip(available_wh, size_wh, strict=True)
    )
    return (width, height), input_wh or (-(-width // MULTIPLE) * MULTIPLE, -(-height // MULTIPLE) * MULTIPLE)


def _best(boxes: NDArray[Any], scores: NDArray[Any], labels: NDArray[Any] | None = None) -> Prediction:
    """Return the best boxes of a photo, a box once for each class that scores enough."""
    table = scores if labels is None else scores[:, None]
    rows, classes = np.nonzero(table > MIN_SCORE)
    order = np.argsort(-table[rows, classes], kind="stable")[:MAX_DETECTIONS]
    rows, classes = rows[order], classes[order]
    return {"boxes": boxes[rows], "scores": table[rows, classes], "labels": classes if labels is None else labels[rows]}
