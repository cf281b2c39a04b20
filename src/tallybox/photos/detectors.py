"""Detectors of other libraries: torchvision, ultralytics, transformers and ONNX Runtime.

Each library is imported when a model of it is loaded, and not before. An estimator must be fitted to the detector it is
used with: see docs/learn/own-detector.md.
"""

import ast
import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from tallybox.detections.categories import COCO_CATEGORIES, category_ids_of_classes, find_category, names_by_class
from tallybox.detections.detections import Detections, Size, on_host
from tallybox.devices import Device, device_or_default
from tallybox.errors import InputError, did_you_mean
from tallybox.files import import_optional, wrap_errors
from tallybox.photos.images import BILINEAR, Photo, boxes_in_photo, fitted_sizes, letterbox, map_same_size

MIN_SCORE = 0.01  # low, since boxes that are left out cannot be counted
MAX_IOU = 0.9  # high, so that a model with its own NMS suppresses only boxes that are nearly the same
MAX_DETECTIONS = 300  # in a photo, as many as DETR-like models propose at most
NO_CATEGORY = -1  # of labels that stand for nothing, such as the background

SCORES_TOKENS = ("grounding-dino", "mm-grounding-dino")  # model types of transformers
SEPARATOR = "."  # between the phrases of one text

# Of the input of an ONNX file.
FREE_SIZE = 640  # of the longer side, if the input's size is free
MULTIPLE = 32
EXPECTED = (
    "one input [B, 3, H, W] and outputs boxes [B, N, 4], scores [B, N] and labels [B, N], or boxes and scores [B, N, C]"
)

Prediction = Mapping[str, Any]  # boxes [N, 4] (x1 y1 x2 y2), scores [N] and labels [N] of one photo


class AdaptedDetector:
    """A detector around another library's model, which predicts in photos of one size together."""

    categories: Mapping[int, str]
    _category_ids: Mapping[int, int]  # of the model's labels

    def _take_names(self, names: Mapping[int, str]) -> None:
        """Take the names of the model's labels; names of COCO's categories in any order become COCO's ids."""
        category_ids = category_ids_of_classes(dict(sorted(names.items())))
        categories = {category_id: names[label].strip() for label, category_id in category_ids.items()}
        is_coco = all(find_category(name) == category_id for category_id, name in categories.items())
        self.categories = {i: COCO_CATEGORIES[i] for i in sorted(categories)} if is_coco else categories
        self._category_ids = {label: category_ids.get(label, NO_CATEGORY) for label in names}

    def detect(self, photos: Sequence[Photo]) -> list[Detections]:
        """Return the detections of each photo; an exception in the model becomes an `InputError` of these photos."""
        return map_same_size(self._detect_same_size, photos, [photo.image.size for photo in photos])

    def _detect_same_size(self, photos: Sequence[Photo]) -> list[Detections]:
        width, height = photos[0].image.size
        with wrap_errors(f"{photos[0].name}: the model failed on {width}×{height} pixels", InputError):
            predictions = zip(self._predict(photos), photos, strict=True)
            return [self._detections(prediction, photo) for prediction, photo in predictions]

    def _predict(self, photos: Sequence[Photo]) -> Sequence[Prediction]:
        """Return what the model predicts for each photo, with boxes in pixels of its decoded image."""
        raise NotImplementedError

    def _detections(self, prediction: Prediction, photo: Photo) -> Detections:
        boxes, scores, labels = (np.asarray(on_host(prediction[key])) for key in ("boxes", "scores", "labels"))
        ids = np.array([self._category_ids[label] for label in labels.astype(np.int64).reshape(-1).tolist()], np.int64)
        named = ids != NO_CATEGORY
        in_photo = boxes_in_photo(boxes.astype(np.float32).reshape(-1, 4), photo.image.size, photo.size_wh)
        try:
            return Detections(in_photo[named], scores.reshape(-1)[named], ids[named], photo.size_wh, photo.name)
        except InputError as error:
            raise InputError(f"{photo.name}: {error}") from None


class TorchvisionDetector(AdaptedDetector):
    """A detection model of torchvision, such as ``fasterrcnn_resnet50_fpn_v2(weights="DEFAULT")``.

    Suppress little in the model itself: build it with ``box_nms_thresh=0.9, box_score_thresh=0.01``, as `load` does.
    ``names`` are those of its labels, by default COCO's categories by COCO's ids, as torchvision numbers them.
    """

    def __init__(self, model: Any, *, names: Mapping[int, str] | None = None, device: Device = None) -> None:
        self.device = device_or_default(device)
        self.model: Any = model.eval().to(self.device)
        self._take_names(COCO_CATEGORIES if names is None else names)

    @classmethod
    def load(cls, name: str, *, device: Device = None) -> Self:
        """Load a model by its name in ``torchvision.models.detection``, with its default weights."""
        models = import_optional("torchvision.models", needed_for="this detector", install="torchvision")
        model_names = models.list_models(module=models.detection)
        if name not in model_names:
            hint = did_you_mean(name, model_names) or f"; it has {', '.join(model_names)}"
            raise InputError(f"The installed torchvision has no detection model {name!r}{hint}")
        weights = models.get_model_weights(name).DEFAULT
        with wrap_errors(f"Cannot load the weights of torchvision:{name}"):
            model = models.get_model(name, weights=weights)
        owner: Any = getattr(model, "roi_heads", model)  # R-CNNs keep their thresholds in their heads
        owner.nms_thresh, owner.score_thresh = MAX_IOU, MIN_SCORE
        # Label 0 is the background of every detection model of torchvision, whatever it is called.
        names = {label: text for label, text in enumerate(weights.meta["categories"]) if label > 0}
        return cls(model, names=names, device=device)

    @torch.inference_mode()
    def _predict(self, photos: Sequence[Photo]) -> list[Prediction]:
        images = [torch.from_numpy(np.array(photo.image)).permute(2, 0, 1) for photo in photos]  # [3, H, W] each
        return self.model([pixels.to(self.device).float().div_(255) for pixels in images])  # type: ignore[no-any-return]  # as documented


class UltralyticsDetector(AdaptedDetector):
    """A model of ultralytics, such as ``YOLO("yolo11n.pt")``; duplicates that overlap by 0.9 or less are kept."""

    def __init__(self, model: Any, *, device: Device = None) -> None:
        self.model = model
        self.device = device_or_default(device)
        self._take_names(dict(model.names))

    @classmethod
    def load(cls, file: str, *, device: Device = None) -> Self:
        """Load a file of weights; a name that ultralytics publishes is downloaded by it."""
        ultralytics = import_optional("ultralytics", needed_for="this detector", install="ultralytics")
        with wrap_errors(f"Cannot load ultralytics:{file}"):
            return cls(ultralytics.YOLO(file), device=device)

    def _predict(self, photos: Sequence[Photo]) -> list[Prediction]:
        options = {"conf": MIN_SCORE, "iou": MAX_IOU, "max_det": MAX_DETECTIONS, "device": self.device}
        results = self.model.predict([photo.image for photo in photos], **options, verbose=False)
        found = [result.boxes for result in results]
        return [{"boxes": boxes.xyxy, "scores": boxes.conf, "labels": boxes.cls} for boxes in found]


class TransformersDetector(AdaptedDetector):
    """A detection model of transformers with its processor, such as ``AutoModelForObjectDetection`` loads.

    ``texts`` are the phrases that a zero-shot model looks for; category k is ``texts[k]``. A model of fixed categories
    takes none: if its names are COCO's, in any order, its categories have COCO's ids.

    Most models go through their processor's own post-processing with a low score threshold. Grounding DINO scores each
    token of the text for each box, and its processor returns the tokens above a threshold as text, which need not be
    any of the phrases. Here a phrase's score is the mean over its tokens, and each box has its best phrase.
    """

    def __init__(self, model: Any, processor: Any, *, texts: Sequence[str] = (), device: Device = None) -> None:
        method = "post_process_grounded_object_detection" if texts else "post_process_object_detection"
        self.device = device_or_default(device)
        self.model: Any = model.eval().to(self.device)
        self.processor = processor
        self._post_process = getattr(processor, method)
        self.texts = check_texts(texts)
        if texts:  # a phrase keeps its number, even if it is the name of one of COCO's categories
            self.categories = dict(enumerate(self.texts))
            self._category_ids = {label: label for label in self.categories}
        else:
            self._take_names({int(label): str(name) for label, name in self.model.config.id2label.items()})

    @classmethod
    def load(cls, name: str, *, texts: Sequence[str] = (), device: Device = None) -> Self:
        """Load a model and its processor from a folder or from the hub."""
        transformers = import_optional("transformers", needed_for="this detector", install="transformers")
        if not sys.stderr.isatty():  # keep progress bars out of files and pipes
            transformers.utils.logging.disable_progress_bar()
        with wrap_errors(f"Cannot load transformers:{name}"):
            config = transformers.AutoConfig.from_pretrained(name)
            is_zero_shot = type(config) in transformers.MODEL_FOR_ZERO_SHOT_OBJECT_DETECTION_MAPPING
            if is_zero_shot and not texts:
                raise InputError(f"transformers:{name} looks for phrases; pass at least one with --text PHRASE")
            if texts and not is_zero_shot:
                raise InputError(f"transformers:{name} does not look for phrases; leave --text out")
            check_texts(texts)  # before the model is loaded
            kind = "ZeroShotObjectDetection" if is_zero_shot else "ObjectDetection"
            processors = transformers.AutoProcessor if is_zero_shot else transformers.AutoImageProcessor
            model = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(name, config=config)
            return cls(model, processors.from_pretrained(name), texts=texts, device=device)

    @torch.inference_mode()
    def _predict(self, photos: Sequence[Photo]) -> Sequence[Prediction]:
        scores_tokens = bool(self.texts) and self.model.config.model_type in SCORES_TOKENS
        options: dict[str, Any] = {"threshold": MIN_SCORE, "target_sizes": [photo.image.size[::-1] for photo in photos]}
        given: dict[str, Any] = {}
        if scores_tokens:
            given["text"] = [" ".join(f"{text.lower()}{SEPARATOR}" for text in self.texts)] * len(photos)
        elif self.texts:  # OWL-ViT, OWLv2 and OmDet-Turbo score whole phrases
            given["text"] = options["text_labels"] = [list(self.texts) for _ in photos]
            if "nms_threshold" in inspect.signature(self._post_process).parameters:
                options["nms_threshold"] = MAX_IOU
        images = [photo.image for photo in photos]
        inputs = self.processor(images=images, return_tensors="pt", **given).to(self.device)
        outputs = self.model(**inputs)
        if scores_tokens:
            return self._best_phrases(outputs, inputs["input_ids"][0].tolist(), images[0].size)
        return self._post_process(outputs, **options)  # type: ignore[no-any-return]  # as documented

    def _best_phrases(self, outputs: Any, input_ids: Sequence[int], size_wh: Size) -> list[Prediction]:
        """Return each box with its best phrase, from the outputs of a model that scores tokens."""
        by_token = outputs.logits.sigmoid()  # [B, queries, tokens]
        tokens = self._phrase_tokens(input_ids)
        by_phrase = torch.stack([by_token[..., indices].mean(-1) for indices in tokens], -1)  # [B, queries, phrases]
        scores, labels = by_phrase.max(-1)
        # From fractions of the photo to pixels.
        centres, sizes = (outputs.pred_boxes * torch.tensor(size_wh * 2, device=self.device)).split(2, -1)
        boxes = torch.cat((centres - sizes / 2, centres + sizes / 2), -1)
        return [
            {"boxes": boxes[image, kept], "scores": scores[image, kept], "labels": labels[image, kept]}
            for image, kept in enumerate(scores > MIN_SCORE)
        ]

    def _phrase_tokens(self, input_ids: Sequence[int]) -> list[list[int]]:
        """Return the indices of each phrase's tokens in the joined text."""
        tokenizer = self.processor.tokenizer
        separator = tokenizer.convert_tokens_to_ids(SEPARATOR)
        special = set(tokenizer.all_special_ids) - {separator, tokenizer.unk_token_id}
        tokens: list[list[int]] = [[]]
        for index, token in enumerate(input_ids):
            if token == separator:
                tokens.append([])
            elif token not in special:
                tokens[-1].append(index)
        return tokens[:-1]  # nothing follows the last full stop


def check_texts(texts: Sequence[str]) -> tuple[str, ...]:
    """Return phrases without blanks and full stops around them; each must have a letter, and none may come twice."""
    phrases = tuple(text.strip(f" {SEPARATOR}") for text in texts)
    for text, phrase in zip(texts, phrases, strict=True):
        if SEPARATOR in phrase or not any(letter.isalnum() for letter in phrase):
            raise InputError(f"A phrase must have words and no full stop; got {text!r}")
        if phrases.count(phrase) > 1:
            raise InputError(f"The phrase {phrase!r} is given twice")
    return phrases


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
        resized_wh, free_wh = fitted_sizes(image_wh, self._input_wh or (FREE_SIZE, FREE_SIZE), MULTIPLE)
        input_wh = self._input_wh or free_wh
        pixels = np.stack([letterbox(photo.image, resized_wh, input_wh, BILINEAR) for photo in photos])
        images = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2), np.float32) / np.float32(255)
        predictions = []
        for batch in np.split(images, len(images)) if self._batch == 1 else [images]:
            for boxes, *scores in zip(*self.session.run(self._outputs, {self._input: batch}), strict=True):
                # Rounding to whole pixels may stretch a photo, so boxes are scaled by the size that it was resized to.
                predictions.append(_best(boxes_in_photo(boxes, resized_wh, image_wh), *scores))
        return predictions

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


def _best(boxes: NDArray[Any], scores: NDArray[Any], labels: NDArray[Any] | None = None) -> Prediction:
    """Return the best boxes of a photo, a box once for each class that scores enough."""
    table = scores if labels is None else scores[:, None]
    if len(boxes) != len(table):
        raise InputError(f"a photo has {len(boxes)} boxes, but scores for {len(table)}")
    rows, classes = np.nonzero(table > MIN_SCORE)
    order = np.argsort(-table[rows, classes], kind="stable")[:MAX_DETECTIONS]
    rows, classes = rows[order], classes[order]
    return {"boxes": boxes[rows], "scores": table[rows, classes], "labels": classes if labels is None else labels[rows]}
