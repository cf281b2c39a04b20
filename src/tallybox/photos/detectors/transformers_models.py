"""Detection models of transformers: those of fixed categories, and zero-shot ones that look for phrases.

A model of fixed categories (DETR, RT-DETR, YOLOS …) goes through its processor's own post-processing with a low score
threshold. So do OWL-ViT and OWLv2, which give each box the phrase that fits it best. Grounding DINO scores each token
of the text for each box, and its processor returns the tokens above a threshold as text, which need not be any of the
phrases. Here a phrase's score is the mean over its tokens, and each box has the phrase that fits it best.
"""

import inspect
import sys
from collections.abc import Sequence
from typing import Any, Self

import torch

from tallybox.devices import Device, device_or_default
from tallybox.errors import InputError
from tallybox.files import import_optional
from tallybox.photos.detector import MAX_IOU, MIN_SCORE, AdaptedDetector, Prediction, wrap_errors
from tallybox.photos.images import Photo

SCORES_TOKENS = ("grounding-dino", "mm-grounding-dino")  # model types
SEPARATOR = "."  # between the phrases of one text


class TransformersDetector(AdaptedDetector):
    """A detection model of transformers with its processor, such as ``AutoModelForObjectDetection`` loads.

    ``texts`` are the phrases that a zero-shot model looks for; category k is ``texts[k]``. A model of fixed categories
    takes none: if its names are COCO's, in any order, its categories have COCO's ids.
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
        if not is_zero_shot and type(config) not in transformers.MODEL_FOR_OBJECT_DETECTION_MAPPING:
            raise InputError(f"transformers:{name} is a {config.model_type!r}, not a model for object detection")
        if is_zero_shot and not texts:
            raise InputError(f"transformers:{name} looks for phrases; pass at least one with --text PHRASE")
        if texts and not is_zero_shot:
            raise InputError(
                f"transformers:{name} does not look for phrases; leave --text out, or choose with --category"
            )
        check_texts(texts)  # before the model is loaded
        kind = "ZeroShotObjectDetection" if is_zero_shot else "ObjectDetection"
        processors = transformers.AutoProcessor if is_zero_shot else transformers.AutoImageProcessor
        with wrap_errors(f"Cannot load transformers:{name}"):
            model = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(name, config=config)
            processor = processors.from_pretrained(name)
        return cls(model, processor, texts=texts, device=device)

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

    def _best_phrases(self, outputs: Any, input_ids: Sequence[int], size_wh: tuple[int, int]) -> list[Prediction]:
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
