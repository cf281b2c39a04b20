"""`CountEstimator`: learn to count from a detector's boxes and true counts, then count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray

from tallybox.counter.cpu.threads import map_in_order
from tallybox.counter.trace import CountTrace
from tallybox.detections.category_names import category_id_of, category_name_of
from tallybox.detections.container import Detections, ImageId
from tallybox.detections.labels import ABSENT_SCORE_ABOVE, TrueCounts
from tallybox.errors import InputError, InputTypeError, TallyboxError
from tallybox.estimator.configuration import Component, EstimatorConfig
from tallybox.estimator.fitting import FitReport, Fitted, OnProgress, category_rows, fit
from tallybox.estimator.prediction import Answered, CountPrediction, beyond, read_off
from tallybox.estimator.questions import ask, in_batches
from tallybox.estimator.training import answer
from tallybox.presence.trace import PresenceTrace

Prior = Literal["every", "scored"]


@dataclass(frozen=True)
class CountExplanation:
    """Which boxes were counted."""

    prediction: CountPrediction
    indices: NDArray[np.int64]  # [N] boxes of the image that took part, the best score first
    presence: NDArray[np.float32]  # [N]: how far each counts as an object of its own, the mean of all heads
    traces: tuple[PresenceTrace | CountTrace, ...]  # every intermediate quantity, for each member


class CountEstimator:
    """Count objects of each category from a detector's boxes, having learned from counts alone.

    ``component`` is what counts: ``"presence"``, or ``"paper"`` for comparison. ``max_objects`` is the largest count
    with a probability of its own; by default the labels decide.

    >>> def photo(number, dogs):  # each dog found twice
    ...     boxes = [[40 * dog, 0, 40 * dog + 30 + twice, 30] for dog in range(dogs) for twice in range(2)]
    ...     return Detections(boxes, [0.9, 0.6] * dogs, [18] * len(boxes), image_id=number)
    >>> photos = [photo(number, number % 4) for number in range(40)]
    >>> counts = {(number, 18): number % 4 for number in range(40)}
    >>> estimator = CountEstimator(members=2).fit(photos, counts)
    >>> estimator.predict(photo(99, 2))[18].count
    2
    """

    def __init__(
        self,
        component: Component = "presence",
        *,
        max_objects: int | None = None,
        heads: int | None = None,
        members: int | None = None,
        seed: int = 0,
    ) -> None:
        given = {"max_objects": max_objects, "heads": heads, "members": members}
        chosen = {name: value for name, value in given.items() if value is not None}
        self._config = EstimatorConfig(component=component, **chosen)
        self._max_objects = max_objects
        self._seed = seed
        self._fitted: Fitted | None = None
        self.report: FitReport | None = None  # of `fit`; not stored in files

    @property
    def fitted(self) -> Fitted:
        """Everything that was learned."""
        if self._fitted is None:
            raise TallyboxError("an estimator must learn before it counts; call fit, or load one")
        return self._fitted

    def fit(
        self,
        detections: Iterable[Detections],
        counts: TrueCounts | Mapping[tuple[ImageId, int], int],
        *,
        on_progress: OnProgress | None = None,
    ) -> Self:
        """Learn from images and how many of each category they hold: labels, or counts by (image_id, category_id).

        Of a labelled image, a category that is not named counts 0. ``on_progress(done, total)`` is called as it goes.
        """
        labels = counts if isinstance(counts, TrueCounts) else _as_labels(counts)
        self._fitted, self.report = fit(
            detections,
            labels,
            self._config,
            max_objects=self._max_objects,
            seed=self._seed,
            on_progress=on_progress or (lambda done, total: None),
        )
        return self

    def predict(
        self,
        detections: Detections | Iterable[Detections],
        categories: Sequence[int | str] | None = None,
        *,
        prior: Prior = "every",
    ) -> dict[int, CountPrediction] | list[dict[int, CountPrediction]]:
        """Count the categories of an image, or of each of several: predictions by category id.

        By default all categories with a box that scores more than 0.05; others count 0. Categories that are named,
        by id or by name, are all answered, 0 with an interval where nothing was detected. ``prior="scored"`` takes a
        question itself as a sign that the category is there, as among the pairs that fitting and evaluating score.
        """
        if isinstance(detections, Detections):
            return next(self.predict_each([detections], categories, prior=prior))[1]
        return [predictions for _, predictions in self.predict_each(detections, categories, prior=prior)]

    def predict_each(
        self,
        detections: Iterable[Detections],
        categories: Sequence[int | str] | None = None,
        *,
        prior: Prior = "every",
    ) -> Iterator[tuple[Detections, dict[int, CountPrediction]]]:
        """Yield each image with its predictions, as `predict` gives them, holding only some images at a time."""
        for images, asked, answered in self.answer_each(detections, categories, prior=prior):
            yield from zip(images, answered.by_image(asked), strict=True)

    def answer_each(
        self,
        detections: Iterable[Detections],
        categories: Sequence[int | str] | None = None,
        *,
        prior: Prior = "every",
    ) -> Iterator[tuple[list[Detections], list[list[int]], Answered]]:
        """Yield some images at a time, the categories asked of each, and the answers to all of these as arrays."""
        wanted = None if categories is None else [self.category_id(category) for category in categories]

        def answer_some(images: list[Detections]) -> tuple[list[Detections], list[list[int]], Answered]:
            asked = [_likely(image) if wanted is None else wanted for image in images]
            index = np.repeat(np.arange(len(images)), [len(ids) for ids in asked])
            flat = np.array([category_id for ids in asked for category_id in ids], np.int64)
            return images, asked, self.answer(images, index, flat, prior=prior)

        return map_in_order(answer_some, in_batches(detections))

    def answer(
        self, images: Sequence[Detections], index: NDArray[np.int64], category_ids: NDArray[np.int64], *, prior: Prior
    ) -> Answered:
        """Answer questions q about ``category_ids[q]`` in ``images[index[q]]``, as arrays."""
        if prior not in ("every", "scored"):
            raise InputError(f'prior must be "every" or "scored", but got {prior!r}')
        f = self.fitted
        questions = ask(images, index, category_ids, proposals=f.config.proposals, thinning=f.config.thinning)
        rows = category_rows(f.category_ids, category_ids)
        probabilities = np.zeros((len(questions), f.config.max_objects + 1))
        expected = np.zeros(len(questions))
        for member in f.members:
            answers = answer(member, questions, rows)
            probabilities += answers.logits.double().softmax(-1).numpy() / len(f.members)
            expected += answers.expected.double().numpy() / len(f.members)
        if prior == "every":
            best = np.where(questions.mask[:, 0].numpy(), questions.scores[:, 0].numpy(), 0)
            probabilities = f.prevalence.apply(probabilities, best)
        levels = f.levels_of_listed if prior == "every" else f.levels
        return read_off(probabilities, beyond(f.excess, expected, f.config.max_objects), levels)

    def explain(
        self, detections: Detections, categories: Sequence[int | str] | None = None
    ) -> dict[int, CountExplanation]:
        """Say for categories of an image, chosen as `predict` does, which boxes count and why."""
        f = self.fitted
        predictions = self.predict(detections, categories)
        assert isinstance(predictions, dict)
        explanations = {}
        for category_id, prediction in predictions.items():
            asked = np.array([category_id], np.int64)
            questions = ask(
                [detections],
                np.zeros(1, np.int64),
                asked,
                proposals=f.config.proposals,
                thinning=f.config.thinning,
            )
            rows = category_rows(f.category_ids, asked)
            traces, presences = [], []
            with torch.no_grad():
                for member in f.members:
                    logit = member.score_logit(questions, rows)
                    trace = member.component.explain(logit[0], questions.boxes[0], questions.mask[0])
                    traces.append(trace)
                    presences.append(_presence(trace, questions.scores.shape[1]))
            real = questions.mask[0].numpy()
            explanations[category_id] = CountExplanation(
                prediction, questions.sources[0].numpy()[real], np.mean(presences, axis=0)[real], tuple(traces)
            )
        return explanations

    def category_id(self, category: int | str) -> int:
        """Return the id of a category that is given by id or by name."""
        return category_id_of(category, self.fitted.categories) if isinstance(category, str) else int(category)

    def category_name(self, category_id: int) -> str:
        """Return the name of a category, its number where it has none."""
        return category_name_of(category_id, self.fitted.categories)

    def save(self, path: str | Path) -> None:
        """Write the estimator to a file: safetensors with a JSON header."""
        from tallybox.estimator.storage import save_fitted

        save_fitted(self.fitted, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an estimator that `save` wrote; nothing in the file is ever executed."""
        from tallybox.estimator.storage import load_fitted

        fitted = load_fitted(Path(path))
        self = cls(fitted.config.component)
        self._config, self._max_objects, self._fitted = fitted.config, fitted.config.max_objects, fitted
        return self


def _likely(image: Detections) -> list[int]:
    return sorted(key for key, score in image.best_scores().items() if score > ABSENT_SCORE_ABOVE)


def _presence(trace: PresenceTrace | CountTrace, number: int) -> NDArray[np.float32]:
    """Return how far each proposal counts, ``[N]``: for the paper's component what is left after scaling its copies."""
    if isinstance(trace, PresenceTrace):
        return trace.presence.mean(-2).numpy()
    weight = (trace.relevance.diagonal(dim1=-2, dim2=-1) * trace.scale).reshape(-1, trace.indices.shape[-1]).mean(0)
    presence = np.zeros(number, np.float32)
    presence[trace.indices.reshape(-1, trace.indices.shape[-1])[0].numpy()] = weight.numpy()
    return presence


def _as_labels(counts: Mapping[tuple[ImageId, int], int]) -> TrueCounts:
    by_image: dict[ImageId, dict[int, int]] = {}
    for key, count in counts.items():
        if not isinstance(key, tuple) or len(key) != 2:
            raise InputTypeError(f"counts must be TrueCounts, or keyed by (image_id, category_id), but got key {key!r}")
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
            raise InputError(f"counts must be whole numbers of at least 0, but got {count!r} for {key!r}")
        by_image.setdefault(key[0], {})[int(key[1])] = int(count)
    return TrueCounts(by_image)
