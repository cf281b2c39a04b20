"""`PhotoCounter`: from photos to counts, with the embedded detector or another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from tallybox.concurrency import in_batches
from tallybox.detections.categories import check_common_names
from tallybox.errors import InputError, InputTypeError
from tallybox.estimator.estimator import Categories, CountEstimator
from tallybox.estimator.explanation import CountExplanation
from tallybox.estimator.prediction import CountPrediction, ImagePredictions
from tallybox.photos.detector import Detector, categories_of
from tallybox.photos.images import read_photo
from tallybox.photos.picodet import DEFAULT_SIZE, PicoDet
from tallybox.photos.pipeline import DetectedPhoto, detect_each
from tallybox.photos.shipped import shipped_estimator
from tallybox.photos.specs import check_same_detector, detector_of

if TYPE_CHECKING:
    from PIL.Image import Image

BATCH = 32  # photos that are counted together: 2.7 ms a photo on one core, against 11.4 in batches of two


@dataclass(frozen=True)
class CountedPhoto(DetectedPhoto):
    """What was counted in one photo, or why it could not be read."""

    predictions: ImagePredictions | None = None

    @property
    def counts(self) -> dict[str, CountPrediction]:
        """The predictions by the names of categories; empty where the photo could not be read."""
        return {} if self.predictions is None else self.predictions.by_name()


class PhotoCounter:
    """Count the objects in photos.

    ``detector`` is a name as `tallybox count --detector` takes it (``"picodet"``, ``"transformers:MODEL"``,
    ``"onnx:FILE"`` …) or any object with ``detect(photos)``. ``estimator`` is a `CountEstimator`, or the file of one,
    that was fitted to this detector; by default the one that ships with tallybox for PicoDet at 640 px. For another
    detector the untrained presence counter counts: its predictions are marked ``calibrated=False``. ``texts`` are the
    phrases that a zero-shot detector looks for.

    >>> from tallybox.photos import sample_photos
    >>> counts = PhotoCounter().count(sample_photos()[1])
    >>> counts["horse"].count, counts["person"].count
    (2, 2)
    """

    def __init__(
        self,
        detector: str | Detector = "picodet",
        estimator: CountEstimator | str | Path | None = None,
        device: str | torch.device | None = None,
        *,
        texts: Sequence[str] = (),
    ) -> None:
        self.spec = detector if isinstance(detector, str) else None
        self.texts = tuple(texts)
        if isinstance(detector, str):
            self.detector: Detector = detector_of(detector, texts=texts, device=device)
        elif not callable(getattr(detector, "detect", None)):
            raise InputTypeError(
                f"detector must be a name or an object with detect(photos), but got {type(detector).__name__}"
            )
        elif texts or device is not None:
            raise InputError("device and texts are for detectors that are given by name; this one has its own")
        else:
            self.detector = detector
        if isinstance(estimator, CountEstimator):
            self.estimator = estimator
        elif estimator is not None:
            self.estimator = CountEstimator.load(estimator)
        elif isinstance(self.detector, PicoDet) and self.detector.size == DEFAULT_SIZE:
            self.estimator = shipped_estimator()
        else:
            self.estimator = CountEstimator.untrained(categories_of(self.detector))
        if self.spec is not None:
            check_same_detector(self.estimator.fitted.detector, (self.spec, *self.texts))
        check_common_names(categories_of(self.detector), self.estimator.fitted.categories, self.spec or "the detector")

    def count(self, path: str | Path, categories: Categories = None) -> dict[str, CountPrediction]:
        """Return how many objects of each category a photo shows, by the category's name.

        By default of all categories that are there with a probability of more than 0.1; those that are named are all
        counted, 0 with an interval where nothing was detected.
        """
        counted = next(self.count_each([path], categories))
        if counted.error is not None:
            raise counted.error
        return counted.counts

    def count_many(self, paths: Iterable[str | Path], categories: Categories = None) -> list[CountedPhoto]:
        """Count in several photos, in order; a file that cannot be read is an item with its ``error``."""
        return list(self.count_each(paths, categories))

    def count_each(
        self, paths: Iterable[str | Path], categories: Categories = None, *, keep_photos: bool = False
    ) -> Iterator[CountedPhoto]:
        """Yield what `count_many` returns, photo by photo, with only a few batches of photos in memory.

        With ``keep_photos``, each item has its decoded ``photo``, so that `draw` need not read it again.
        """
        if isinstance(paths, str | Path):
            raise InputTypeError(f"several paths are expected, but got one, {str(paths)!r}; call count")
        detected = detect_each((Path(path) for path in paths), self.detector, keep_photos=keep_photos)
        for batch in in_batches(detected, BATCH):
            yield from count_detected(self.estimator, batch, categories)

    def explain(self, path: str | Path, categories: Categories = None) -> dict[str, CountExplanation]:
        """Return which boxes of a photo were counted and why, by the category's name."""
        (detected,) = detect_each([Path(path)], self.detector)
        if detected.detections is None:
            raise detected.error or InputError(f"{path} must be a photo")
        return self._by_name(self.estimator.explain(detected.detections, categories))

    def draw(self, counted: CountedPhoto) -> Image:
        """Return a counted photo with its objects outlined and, below it, the counts in words."""
        from tallybox.photos.outlines import MAX_SIDE, draw_counts

        assert counted.detections is not None
        photo = counted.photo
        if photo is None or photo.image.size != photo.size_wh:  # detection decodes large photos at a reduced size
            photo = read_photo(counted.path, reduced_to=MAX_SIDE)
        explanations = self.estimator.explain(counted.detections, predictions=counted.predictions)
        return draw_counts(photo, counted.detections, self._by_name(explanations))

    def _by_name(self, explanations: Mapping[int, CountExplanation]) -> dict[str, CountExplanation]:
        return {self.estimator.category_name(category_id): e for category_id, e in explanations.items()}


def count_detected(
    estimator: CountEstimator, batch: Sequence[DetectedPhoto], categories: Categories
) -> Iterator[CountedPhoto]:
    """Yield detected photos with their counts; those that could not be read keep their errors."""
    images = [photo.detections for photo in batch if photo.detections is not None]
    predicted = estimator.predict_each(images, categories)
    for photo in batch:
        detections, counts = (None, None) if photo.detections is None else next(predicted)
        yield CountedPhoto(photo.path, detections, photo.error, photo.photo, counts)
