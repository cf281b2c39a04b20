"""From a photo and a question to an answer: PicoDet's regions, then a trained VQA model. Experimental."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tallybox.detections.categories import COCO_CATEGORIES, COCO_CATEGORY_IDS, plural
from tallybox.detections.detections import Detections
from tallybox.errors import InputError
from tallybox.estimator.prediction import CountPrediction
from tallybox.photos.images import Photo
from tallybox.photos.picodet import PicoDet, detections_of
from tallybox.photos.shipped import shipped_estimator
from tallybox.vqa.checkpoints import load_model
from tallybox.vqa.components import GlimpseCounter
from tallybox.vqa.data.questions import COUNTING_WORDS
from tallybox.vqa.data.store import PhotoFeatures
from tallybox.vqa.data.vocabulary import Vocabulary, question_words
from tallybox.vqa.model import Batch, scale_features
from tallybox.vqa.regions import regions_of

SHIPPED_MODEL = Path(__file__).parent / "models" / "photos_presence.safetensors"  # see docs/results/log.md
RUNNERS_UP = 4


@dataclass(frozen=True)
class PhotoAnswer:
    """A model's answer to a question about a photo."""

    question: str
    answers: tuple[tuple[str, float], ...]  # with their probabilities, the most probable first
    unknown_words: tuple[str, ...]  # words of the question that the model ignores

    @property
    def answer(self) -> str:
        """The most probable answer."""
        return self.answers[0][0]

    @property
    def probability(self) -> float:
        """The probability of that answer."""
        return self.answers[0][1]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "answer": self.answer,
            "probability": self.probability,
            "others": [list(other) for other in self.answers[1:]],
            "unknown_words": list(self.unknown_words),
        }


class SeenPhoto(NamedTuple):
    """A photo after detection: regions for a VQA model, detections for an estimator."""

    regions: PhotoFeatures
    detections: Detections


class Answerer:
    """A trained VQA model with the detector whose features it was trained on. Experimental.

    ``model`` is a run's folder or a checkpoint, by default the bundled one.

    >>> from tallybox.photos import read_photo, sample_photos
    >>> Answerer().ask(read_photo(sample_photos()[1]), "How many horses are there?").answer
    '2'
    """

    def __init__(self, model: str | Path | None = None, *, detector: PicoDet | None = None) -> None:
        path = SHIPPED_MODEL if model is None else Path(model)
        self.model, checkpoint = load_model(path)
        self.vocabulary = Vocabulary(checkpoint.words, checkpoint.answers)
        self.temperature = checkpoint.temperature
        self.detector = PicoDet() if detector is None else detector
        if (features := checkpoint.sizes.features) != len(COCO_CATEGORY_IDS):
            raise InputError(f"{path} was trained on {features} features a region, not on the scores of the detector.")
        if isinstance(self.model.count, GlimpseCounter):
            # Compiling a fused kernel takes longer than counting in one photo.
            self.model.count.counter.backend = "reference"

    def look(self, photo: Photo) -> SeenPhoto:
        """Detect the regions of a photo once, for several questions about it."""
        (raw,) = self.detector.propose([photo])
        return SeenPhoto(regions_of(raw, photo), detections_of(raw, photo))

    def ask(self, photo: Photo | SeenPhoto, question: str) -> PhotoAnswer:
        """Answer a question about a photo, or about the result of `look`."""
        text, words, unknown = read_question(question, self.vocabulary)
        regions = (self.look(photo) if isinstance(photo, Photo) else photo).regions
        features = torch.from_numpy(regions.features)  # half precision, as in the store that the model was trained on
        batch = Batch(
            features=scale_features(features, self.model.config.feature_length).unsqueeze(0),
            boxes=torch.from_numpy(regions.boxes_xyxy).unsqueeze(0),
            mask=torch.ones(1, len(features), dtype=torch.bool),
            words=torch.tensor([words]),
            lengths=torch.tensor([len(words)]),
        )
        with torch.inference_mode():
            by_answer = (self.model(batch)[0][0] / self.temperature).softmax(-1)
        probabilities, best = by_answer.topk(min(1 + RUNNERS_UP, len(by_answer)))
        answers = zip((self.vocabulary.answers[index] for index in best), probabilities.tolist(), strict=True)
        return PhotoAnswer(text, tuple(answers), unknown)


def read_question(question: str, vocabulary: Vocabulary) -> tuple[str, list[int], tuple[str, ...]]:
    """Return a question on one line, the indices of its words, and its unknown words as the user wrote them."""
    text = " ".join("".join(letter if letter.isprintable() else "�" for letter in word) for word in question.split())
    known = frozenset(vocabulary.words)
    words = (word for word in text.split() if "".join(question_words(word)) not in known)
    unknown = tuple(dict.fromkeys(filter(None, (re.sub(r"^[\W_]+|[\W_]+$", "", word) for word in words))))
    indices = vocabulary.encode_question(text)
    if not any(indices):
        raise InputError(f"The model knows no word of the QUESTION {text!r}; try 'How many people are there?'.")
    return text, indices, unknown


def count_named(seen: SeenPhoto, question: str) -> dict[str, CountPrediction]:
    """Return the count of `tallybox count` if a question begins with "how many" and a category; else nothing."""
    asked = " ".join(question_words(question)) + " "
    for category_id, name in COCO_CATEGORIES.items():
        if any(asked.startswith(f"{COUNTING_WORDS} {noun} ") for noun in (name, plural(name))):
            return {name: shipped_estimator().predict(seen.detections, [category_id])[category_id]}
    return {}
