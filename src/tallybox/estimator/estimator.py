"""`CountEstimator`: learn to count from a detector's boxes and true counts, then count."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Self

import numpy as np
import torch

from tallybox.checks import check_count
from tallybox.concurrency import in_batches
from tallybox.detections.categories import category_id_of
from tallybox.detections.detections import Detections, ImageId
from tallybox.detections.labels import TrueCounts, match_images
from tallybox.errors import InputTypeError, TallyboxError
from tallybox.estimator.calibration import LISTED_PROBABILITY
from tallybox.estimator.explanation import CountExplanation, explain_predictions
from tallybox.estimator.fitted import Fitted, load_fitted, save_fitted
from tallybox.estimator.fitting import fit
from tallybox.estimator.inference import CPU, infer_pairs
from tallybox.estimator.inputs import IMAGES_PER_BATCH, EstimatorConfig, pairs_of_images
from tallybox.estimator.model import CountEnsemble
from tallybox.estimator.prediction import ImagePredictions
from tallybox.estimator.totals import Totals
from tallybox.estimator.training import OnProgress

UNTRAINED_MAX_OBJECTS = 20
Categories = Sequence[int | str] | None  # by id or by name; None for all that may be there


class CountEstimator:
    """Count objects of each category from a detector's boxes, trained on counts alone.

    Counts below ``max_objects`` have a probability of their own, larger ones share one; by default the labels decide.

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
        self, *, max_objects: int | None = None, members: int = EstimatorConfig.members, seed: int = 0
    ) -> None:
        if max_objects is not None:
            check_count("max_objects", max_objects)
        self._config = EstimatorConfig(max_objects=max_objects or 0, members=members)
        self._seed = seed
        self._fitted: Fitted | None = None
        self.device = CPU

    @property
    def fitted(self) -> Fitted:
        """Everything that was learned."""
        if self._fitted is None:
            raise TallyboxError("This estimator is not fitted; call fit, or load one.")
        return self._fitted

    def on(self, device: torch.device) -> Self:
        """Return the same estimator, fitted already, that predicts on another device."""
        moved = copy(self)
        moved.device = device
        return moved

    def fit(
        self,
        detections: Iterable[Detections],
        counts: TrueCounts | Mapping[tuple[ImageId, int], int] | Mapping[tuple[ImageId, str], int],
        *,
        category_names: Mapping[int, str] | None = None,
        detector: Sequence[str] = (),
        on_progress: OnProgress | None = None,
    ) -> Self:
        """Fit to images and their true counts: labels, or counts by (image_id, category).

        Categories of detections and labels are matched by name if both have names, otherwise by id.
        ``category_names`` are names for the ids of detections without names; ids without any names are COCO's.
        ``detector`` is the SPEC of the detector with its phrases: the file keeps it, so that the estimator is not used
        with another.

        In a labelled image, a category that is named only for other images counts 0; a category that is never named is
        unknown. ``on_progress(done, total)`` is called after each epoch.
        """
        labels = counts if isinstance(counts, TrueCounts) else TrueCounts.of_pairs(counts)
        names = dict(category_names or {})
        images = list(match_images(detections, names))
        show = on_progress or (lambda done, total: None)
        fitted = fit(images, labels.for_detections(names), self._config, seed=self._seed, on_progress=show)
        named = not category_names and any(image.category_names for image in images)
        self._fitted = replace(fitted, named=named, detector=tuple(detector))
        return self

    def predict(self, detections: Detections, categories: Categories = None) -> ImagePredictions:
        """Count the categories of an image: predictions by category id, or by name.

        By default, the categories that are there with a probability of more than 0.1 are listed; all others count 0.
        If ``categories`` are given, by id or by name, all of them are listed, even if nothing was detected.
        """
        return next(self.predict_each([detections], categories))[1]

    def predict_many(self, detections: Iterable[Detections], categories: Categories = None) -> list[ImagePredictions]:
        """Count the categories of each of several images, as `predict` does for one."""
        return [predictions for _, predictions in self.predict_each(detections, categories)]

    def predict_each(
        self, detections: Iterable[Detections], categories: Categories = None, *, keep_inputs: bool = False
    ) -> Iterator[tuple[Detections, ImagePredictions]]:
        """Yield each image with its predictions, as `predict` returns them, a batch of images in memory at a time.

        With ``keep_inputs``, `explain` reuses the predictions: nothing is computed twice.
        """
        if isinstance(detections, Detections):
            raise InputTypeError("These are the Detections of one image; call predict")
        category_ids = self.category_ids(categories)
        learned = set(self.fitted.category_ids)
        for images in in_batches(self.matched(detections), IMAGES_PER_BATCH):
            pairs = pairs_of_images(images, category_ids)
            inference = infer_pairs(self.fitted, images, pairs, self.device)
            arrays, moments = inference.predictions("population"), inference.moments()
            listed = (arrays.probabilities[:, 0] < 1 - LISTED_PROBABILITY) | (category_ids is not None)
            predictions = arrays.each()
            ends = np.searchsorted(pairs.image_index, np.arange(len(images)), side="right")
            for image, (start, end) in zip(images, pairwise((0, *ends.tolist())), strict=True):
                ids = pairs.category_ids[start:end].tolist()
                rows = np.flatnonzero(listed[start:end])
                found = ImagePredictions(
                    {ids[r]: replace(predictions[start + r], calibrated=ids[r] in learned) for r in rows.tolist()},
                    image.category_names or self.fitted.categories,
                    complete=category_ids is None,
                    moments=dict(zip(ids, moments[start:end], strict=True)),
                    inputs=inference.inputs.at(torch.from_numpy(start + rows)) if keep_inputs else None,
                )
                yield image, found

    def matched(self, detections: Iterable[Detections]) -> Iterator[Detections]:
        """Yield detections under the category ids of this estimator, matched by name if they have names."""
        return match_images(detections, dict(self.fitted.categories), named=self.fitted.named)

    def totals(self, categories: Categories = None) -> Totals:
        """Return totals to which predictions are added, of ``categories``, or of all that some image lists."""
        return Totals(self.fitted, self.category_ids(categories))

    def explain(
        self, detections: Detections, categories: Categories = None, *, predictions: ImagePredictions | None = None
    ) -> dict[int, CountExplanation]:
        """Return which boxes of an image count and why, for the categories that `predict` would list.

        ``predictions`` are those of this image, if `predict_each` made them with ``keep_inputs``.
        """
        if predictions is None or predictions.inputs is None:
            wanted = categories if predictions is None else list(predictions)
            predictions = next(self.predict_each([detections], wanted, keep_inputs=True))[1]
        return explain_predictions(self.fitted, predictions.inputs, predictions)

    def category_ids(self, categories: Categories) -> list[int] | None:
        """Return the ids of categories that are given by id or by name; None for all."""
        if isinstance(categories, str):
            raise InputTypeError(f"categories must be a list of names or ids, but got the text {categories!r}")
        return None if categories is None else list(dict.fromkeys(map(self.category_id, categories)))

    def category_id(self, category: int | str) -> int:
        """Return the id of a category that is given by id or by name."""
        return category_id_of(category, self.fitted.categories) if isinstance(category, str) else int(category)

    def category_name(self, category_id: int) -> str:
        """Return the name of a category, or its id as text where it has none."""
        return self.fitted.categories.get(category_id, str(category_id))

    def save(self, path: str | Path) -> None:
        """Write the estimator to a file: safetensors with a JSON header."""
        if not self.is_calibrated:
            raise TallyboxError("This estimator is not fitted, so there is nothing to save; call fit.")
        save_fitted(self.fitted, Path(path))

    @property
    def is_calibrated(self) -> bool:
        """Whether it learned from labelled images; an untrained one takes scores for probabilities."""
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
        self = cls()
        config = EstimatorConfig(max_objects=UNTRAINED_MAX_OBJECTS)
        ensemble = CountEnsemble(config, 0, members=1).eval()
        # The names are copied, so that they can be pickled whatever mapping is given.
        self._fitted = Fitted(ensemble, None, config, (), dict(categories), tail_mean=0.5)
        return self

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an estimator that `save` wrote; nothing in the file is ever executed."""
        fitted = load_fitted(Path(path))
        self = cls()
        self._config, self._fitted = fitted.config, fitted
        return self
