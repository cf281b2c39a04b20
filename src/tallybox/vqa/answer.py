"""From a photo and a question to an answer: the embedded detector, then an estimator's counts or a trained VQA model.

A question that a count answers (`tallybox.ask.category_questions`) is answered from the distribution that
`tallybox count` shows; every other one by the model, which sees the detector's regions.

Legend: R regions, G glimpses.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tallybox.ask.category_questions import CountedAnswer, answer_from_counts, read_category_question
from tallybox.counter.module import Counter
from tallybox.detections.category_names import COCO_CATEGORY_IDS
from tallybox.detections.detections import Detections
from tallybox.errors import InputError
from tallybox.estimator.estimator import CountEstimator
from tallybox.estimator.prediction import ROUNDING_SLACK
from tallybox.photos.features import RegionFeatures, regions_of
from tallybox.photos.images import Photo
from tallybox.photos.picodet import PicoDet, detections_of
from tallybox.photos.shipped import shipped_estimator
from tallybox.presence.module import PresenceCounter
from tallybox.vqa.checkpoints import load_model
from tallybox.vqa.data.vocabulary import Vocabulary
from tallybox.vqa.model import Batch, GlimpseCounter, scale_features
from tallybox.vqa.question import encode_question, quoted

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
    counted: CountedAnswer | None = None  # what counts say, where the question is about a category

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
        """Return plain values for JSON; ``has_answer`` only where it is false."""
        return {
            "answer": self.answer,
            "probability": self.probability,
            "others": [list(other) for other in self.others],
            "unknown_words": list(self.unknown_words),
            **({"has_answer": False} if not self.has_answer else {}),
        }

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences that a person should read beside the answer."""
        if self.counted is None:
            return ()
        question = self.counted.question
        word, remarks = quoted(question.word), []
        counts = [one.count for one in self.counted.predictions]  # of several categories where a word names several
        if not self.has_answer:
            remarks.append(f"As far as can be seen there is no {word} in the photo: the question has no answer.")
        if kept_together := question.kept_together:
            remarks.append(f"The detector does not tell {word} from other {kept_together}: all of them are counted.")
        is_counted = question.kind in ("how many", "whether")
        if is_counted and self.others and self.others[0][1] > self.probability:
            remarks.append(f"{self.counted.number} is the middle of what is probable.")
        if not any(counts) and self.counted.number:
            reason = (
                "`ask` expects more: people ask about what they see."
                if is_counted
                else f"If there is no {word}, there is no answer."
            )
            remarks.append(f"`tallybox count` says 0 here. {reason}")
        return tuple(remarks)

    @property
    def has_answer(self) -> bool:
        """False where the question is about something that is not in the photo."""
        return self.counted is None or self.counted.question.kind != "about" or not self.counted.answers


@dataclass(frozen=True, eq=False)
class SeenPhoto(RegionFeatures):
    """What is seen in a photo: regions for a VQA model, detections for an estimator."""

    detections: Detections


class Answerer:
    """A trained model, the detector whose features it learned from, and an estimator for what counts can answer.

    ``model`` is a run's folder or a checkpoint, by default the one that comes with the package. ``estimator`` answers
    how many there are of a category and whether there are any, by default the one that `tallybox count` uses. A model
    of one's own answers everything itself unless an estimator is given.

    >>> from tallybox.photos import read_photo, sample_photos
    >>> Answerer().ask(read_photo(sample_photos()[1]), "How many horses are there?").answer
    '2'
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        detector: PicoDet | None = None,
        estimator: CountEstimator | None = None,
    ) -> None:
        path = SHIPPED_MODEL if model is None else Path(model)
        self.model, checkpoint = load_model(path)
        self.vocabulary = Vocabulary(checkpoint.words, checkpoint.answers)
        self.temperature = checkpoint.temperature
        self.detector = PicoDet() if detector is None else detector
        self.estimator = shipped_estimator() if estimator is None and model is None else estimator
        categories = len(COCO_CATEGORY_IDS)
        if checkpoint.sizes.features != categories:
            raise InputError(
                f"{path} must be a model of the {categories} scores that the detector gives a region, "
                f"but it learned from {checkpoint.sizes.features} features"
            )
        if isinstance(self.model.count, GlimpseCounter):
            # Compiling a fused kernel takes longer than counting in one photo.
            self.model.count.counter.backend = "reference"

    @property
    def counter(self) -> Counter | PresenceCounter:
        """The layer that counts on the model's first glimpse; a model without one is an error."""
        if not isinstance(self.model.count, GlimpseCounter):
            name = self.model.config.name
            raise InputError(f"model must count to be explained (counter or presence), but got a {name} model")
        return self.model.count.counter

    def look(self, photo: Photo) -> SeenPhoto:
        """Return what is seen in a photo, for several questions about it."""
        (raw,) = self.detector.propose([photo])
        return SeenPhoto(**vars(regions_of(raw, photo)), detections=detections_of(raw, photo))

    def ask(self, photo: Photo | RegionFeatures, question: str) -> PhotoAnswer:
        """Answer a question about a photo, or about what `look` gave."""
        encoded = encode_question(question, self.vocabulary)
        regions = self.look(photo) if isinstance(photo, Photo) else photo
        by_model, glimpses = self._ask_model(regions, encoded.indices)
        probabilities, best = by_model.topk(min(1 + RUNNERS_UP, len(by_model)))
        answers = [*zip((self.vocabulary.answers[index] for index in best), probabilities.tolist(), strict=True)]
        counted = self._counted(regions, question)
        if counted is not None and counted.answers:
            # Where a category is not there, what the model would answer if it were has what is left.
            rest = 1 - sum(probability for _, probability in counted.answers)
            others = [(answer, probability * rest) for answer, probability in answers if rest > ROUNDING_SLACK]
            answers = [*counted.answers, *others][: 1 + RUNNERS_UP]
        count = self.model.count
        relevance = count.log_odds(glimpses) if isinstance(count, GlimpseCounter) else glimpses[..., 0]
        is_counted = counted is not None and counted.question.kind in ("how many", "whether")
        unknown = () if is_counted else encoded.unknown
        return PhotoAnswer(encoded.text, tuple(answers), unknown, regions, glimpses[0], relevance[0], counted)

    def _counted(self, seen: RegionFeatures, question: str) -> CountedAnswer | None:
        """Return what counts say to a question about a category; None where it is about none."""
        if self.estimator is None or not isinstance(seen, SeenPhoto):
            return None
        asked = read_category_question(question)
        if asked is None:
            return None
        predictions = self.estimator.predict(seen.detections, sorted(asked.category_ids))
        return answer_from_counts(asked, [*predictions.values()], asked.best_score(seen.scores))

    def _ask_model(self, regions: RegionFeatures, words: list[int]) -> tuple[Tensor, Tensor]:
        """Return the model's probabilities of all answers ``[A]`` and its glimpses ``[1, R, G]``."""
        features = torch.from_numpy(regions.scores)  # half precision, as in the store that the model learned from
        batch = Batch(
            features=scale_features(features, self.model.config.feature_length).unsqueeze(0),
            boxes=torch.from_numpy(regions.boxes_xyxy).unsqueeze(0),
            mask=torch.ones(1, len(features), dtype=torch.bool),
            words=torch.tensor([words]),
            lengths=torch.tensor([len(words)]),
        )
        with torch.inference_mode():
            logits, glimpses = self.model(batch)
        return (logits[0] / self.temperature).softmax(-1), glimpses
