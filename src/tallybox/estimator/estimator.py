"""`CountEstimator`: learn to count from a detector's boxes and true counts, then count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray

from tallybox.counter.trace import CountTrace
from tallybox.detections.category_names import category_id_of, category_name_of
from tallybox.detections.container import Detections, ImageId
from tallybox.detections.labels import TrueCounts
from tallybox.errors import InputError, InputTypeError, TallyboxError
from tallybox.estimator.calibration import LISTED_PROBABILITY
from tallybox.estimator.configuration import Component, EstimatorConfig
from tallybox.estimator.fitting import FitReport, Fitted, OnProgress, category_rows, fit, untrained
from tallybox.estimator.prediction import (
    CountPrediction,
    ImagePredictions,
    PredictionArrays,
    mean_beyond,
    summarise,
)
from tallybox.estimator.questions import ask, in_batches
from tallybox.estimator.training import answer
from tallybox.kernels.threads import map_in_order
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

    ``component`` is what counts: ``"presence"``, or ``"paper"`` for comparison. Counts below ``max_objects`` have a
    probability of their own, larger ones share one; by default the labels decide.

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
        self, detections: Detections, categories: Sequence[int | str] | None = None, *, prior: Prior = "every"
    ) -> ImagePredictions:
        """Count the categories of an image: predictions by category id, or by name.

        By default those categories that are there with a probability of more than 0.1; the others count 0. Categories
        that are named, by id or by name, are all predicted, 0 with an interval where nothing was detected.
        ``prior="scored"`` takes a question itself as a sign that the category is there, as among the pairs that
        fitting and evaluating score.
        """
        if not isinstance(detections, Detections):
            raise InputTypeError(
                f"predict takes the Detections of one image, but got {type(detections).__name__}; "
                "call predict_many for several"
            )
        return next(self.predict_each([detections], categories, prior=prior))[1]

    def predict_many(
        self,
        detections: Iterable[Detections],
        categories: Sequence[int | str] | None = None,
        *,
        prior: Prior = "every",
    ) -> list[ImagePredictions]:
        """Count the categories of each of several images, as `predict` does for one."""
        return [predictions for _, predictions in self.predict_each(detections, categories, prior=prior)]

    def predict_each(
        self,
        detections: Iterable[Detections],
        categories: Sequence[int | str] | None = None,
        *,
        prior: Prior = "every",
    ) -> Iterator[tuple[Detections, ImagePredictions]]:
        """Yield each image with its predictions, as `predict` gives them, holding only some images at a time."""
        for images, category_ids, arrays in self.predict_batches(detections, categories, prior=prior):
            yield from zip(images, self.by_image([(category_ids, arrays)]), strict=True)

    def by_image(self, batches: Iterable[tuple[list[list[int]], PredictionArrays]]) -> Iterator[ImagePredictions]:
        """Yield the predictions of each image from what `predict_batches` yields: category ids and arrays."""
        for category_ids, arrays in batches:
            yield from arrays.by_image(category_ids, self.fitted.categories, calibrated=self.is_calibrated)

    def predict_batches(
        self,
        detections: Iterable[Detections],
        categories: Sequence[int | str] | None = None,
        *,
        prior: Prior = "every",
    ) -> Iterator[tuple[list[Detections], list[list[int]], PredictionArrays]]:
        """Yield some images at a time, the categories predicted for each, and the predictions of all as arrays."""
        if isinstance(detections, Detections):
            raise InputTypeError("several images are expected, but got the Detections of one; call predict")
        if isinstance(categories, str):
            raise InputTypeError(f"categories must be a list of names or ids, but got the text {categories!r}")
        wanted = None if categories is None else [self.category_id(category) for category in categories]

        def predict_some(images: list[Detections]) -> tuple[list[Detections], list[list[int]], PredictionArrays]:
            category_ids = [sorted(image.best_scores()) if wanted is None else wanted for image in images]
            index = np.repeat(np.arange(len(images)), [len(ids) for ids in category_ids])
            flat = np.array([category_id for ids in category_ids for category_id in ids], np.int64)
            arrays = self.predict_arrays(images, index, flat, prior=prior)
            if wanted is not None:
                return images, category_ids, arrays
            listed = arrays.probabilities[:, 0] < 1 - LISTED_PROBABILITY
            by_image = [flat[listed & (index == place)].tolist() for place in range(len(images))]
            return images, by_image, arrays.at(listed)

        return map_in_order(predict_some, in_batches(detections))

    def predict_arrays(
        self, images: Sequence[Detections], index: NDArray[np.int64], category_ids: NDArray[np.int64], *, prior: Prior
    ) -> PredictionArrays:
        """Predict ``category_ids[q]`` in ``images[index[q]]`` for each question q, as arrays."""
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
            probabilities = f.prevalence.apply(probabilities, best, questions.summary.double().numpy())
        levels = f.levels_listed if prior == "every" else f.levels
        return summarise(probabilities, mean_beyond(f.excess, expected, f.config.max_objects), levels)

    def explain(
        self,
        detections: Detections,
        categories: Sequence[int | str] | None = None,
        *,
        predictions: ImagePredictions | None = None,
    ) -> dict[int, CountExplanation]:
        """Return which boxes of an image count and why, for categories that are chosen as `predict` does.

        ``predictions`` are those of this image, if `predict` was called before.
        """
        f = self.fitted
        predictions = self.predict(detections, categories) if predictions is None else predictions
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
        if not self.is_calibrated:
            raise TallyboxError("an untrained estimator must learn before it is saved; call fit")
        from tallybox.estimator.storage import save_fitted

        save_fitted(self.fitted, Path(path))

    @property
    def is_calibrated(self) -> bool:
        """Whether it learned from labelled images; an untrained one only adds up what the scores say."""
        return bool(self.fitted.category_ids)

    @classmethod
    def untrained(cls, categories: Mapping[int, str]) -> Self:
        """Return an estimator that counts with the untrained presence counter, for a detector without labels.

        It treats scores as probabilities, which is rarely accurate. Its predictions are marked ``calibrated=False``,
        and its intervals have no guaranteed coverage. ``categories`` names the detector's categories.

        >>> estimator = CountEstimator.untrained({0: "apple"})
        >>> two = Detections([[0, 0, 9, 9], [0, 0, 9, 9], [20, 0, 29, 9]], [0.99, 0.98, 0.97], [0, 0, 0])
        >>> estimator.predict(two)["apple"].to_dict()
        {'count': 2, 'most_probable': 2, 'expected': 1.9686, 'low': 2, 'high': 2, 'calibrated': False}
        """
        self = cls(heads=1)
        self._fitted = untrained(self._config, categories)
        return self

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an estimator that `save` wrote; nothing in the file is ever executed."""
        from tallybox.estimator.storage import load_fitted

        fitted = load_fitted(Path(path))
        self = cls(fitted.config.component)
        self._config, self._max_objects, self._fitted = fitted.config, fitted.config.max_objects, fitted
        return self


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
