"""From a photo and a question to an answer: the embedded detector's regions, then a trained VQA model.

Legend: R regions, G glimpses.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tallybox.ask.question import encode_question
from tallybox.counter.module import Counter
from tallybox.detections.category_names import COCO_CATEGORY_IDS
from tallybox.errors import InputError
from tallybox.photos.features import RegionFeatures, region_features
from tallybox.photos.images import Photo
from tallybox.photos.picodet import PicoDet
from tallybox.presence.module import PresenceCounter
from tallybox.vqa.checkpoints import load_model
from tallybox.vqa.data.vocabulary import Vocabulary
from tallybox.vqa.model import Batch, FirstGlimpse, scale_features

SHIPPED_MODEL = Path(__file__).parent / "data" / "photos_presence.safetensors"  # see docs/results/ask.md
RUNNERS_UP = 4


@dataclass(frozen=True, eq=False)
class PhotoAnswer:
    """The answer of a model, and what it looked at."""

    question: str
    answers: tuple[tuple[str, float], ...]  # with their probabilities, the most probable first
    unknown_words: tuple[str, ...]  # of the question: the model ignores them
    regions: RegionFeatures
    glimpses: Tensor  # [R, G] before softmax
    relevance: Tensor  # [R] log-odds that a question is about a region: the attention that is counted

    @property
    def answer(self) -> str:
        """The most probable answer."""
        return self.answers[0][0]

    @property
    def probability(self) -> float:
        """The probability of that answer."""
        return self.answers[0][1]

    @property
    def others(self) -> tuple[tuple[str, float], ...]:
        """The runners-up."""
        return self.answers[1:]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "answer": self.answer,
            "probability": self.probability,
            "others": [list(other) for other in self.others],
            "unknown_words": list(self.unknown_words),
        }


class Answerer:
    """A trained model and the detector whose features it learned from.

    ``model`` is a run's folder or a checkpoint, by default the one that comes with the package.

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
        categories = len(COCO_CATEGORY_IDS)
        if checkpoint.sizes.features != categories:
            raise InputError(
                f"{path} must be a model of the {categories} scores that the detector gives a region, "
                f"but it learned from {checkpoint.sizes.features} features"
            )
        if isinstance(self.model.count, FirstGlimpse):
            # Compiling a fused kernel takes longer than counting in one photo.
            self.model.count.counter.backend = "reference"

    @property
    def counter(self) -> Counter | PresenceCounter:
        """The layer that counts on the model's first glimpse; a model without one is an error."""
        if not isinstance(self.model.count, FirstGlimpse):
            name = self.model.config.name
            raise InputError(f"model must count to be explained (counter or presence), but got a {name} model")
        return self.model.count.counter

    def look(self, photo: Photo) -> RegionFeatures:
        """Return the regions of a photo, for several questions about it."""
        return region_features(self.detector, [photo])[0]

    def ask(self, photo: Photo | RegionFeatures, question: str) -> PhotoAnswer:
        """Answer a question about a photo, or about regions that `look` gave."""
        encoded = encode_question(question, self.vocabulary)
        regions = self.look(photo) if isinstance(photo, Photo) else photo
        features = torch.from_numpy(regions.scores)  # half precision, as in the store that the model learned from
        batch = Batch(
            features=scale_features(features, self.model.config.feature_length).unsqueeze(0),
            boxes=torch.from_numpy(regions.boxes_xyxy).unsqueeze(0),
            mask=torch.ones(1, len(features), dtype=torch.bool),
            words=torch.tensor([encoded.indices]),
            lengths=torch.tensor([len(encoded.indices)]),
        )
        with torch.inference_mode():
            logits, glimpses = self.model(batch)
            probabilities, best = (logits[0] / self.temperature).softmax(-1).topk(min(1 + RUNNERS_UP, logits.shape[1]))
        answers = zip((self.vocabulary.answers[index] for index in best), probabilities.tolist(), strict=True)
        count = self.model.count
        relevance = count.log_odds(glimpses) if isinstance(count, FirstGlimpse) else glimpses[..., 0]
        return PhotoAnswer(encoded.text, tuple(answers), encoded.unknown, regions, glimpses[0], relevance[0])
