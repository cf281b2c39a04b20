"""`PhotoCounter`: from photos to counts, with the embedded detector or another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from tallybox.concurrency import in_batches
from tallybox.detections.categories import check_common_names
from tallybox.detections.detections import Size
from tallybox.errors import InputError, InputTypeError
from tallybox.estimator.estimator import Categories, CountEstimator
from tallybox.estimator.explanation import CountExplanation
from tallybox.estimator.prediction import CountPrediction
from tallybox.photos.detector import Detector, categories_of, check_same_detector, detector_of
from tallybox.photos.images import Photo, PhotoSource, buffered, opened, read_photo
from tallybox.photos.picodet import DEFAULT_SIZE, MAX_PER_CATEGORY, PicoDet
from tallybox.photos.pipeline import PhotoResult, Tiling, detect_each, detect_photos
from tallybox.photos.shipped import shipped_estimator
from tallybox.photos.tiles import CROWDED, Tiles, check_tiles, count_blocks, detect_in_windows, uses_up, window_side

if TYPE_CHECKING:
    from PIL.Image import Image

BATCH = 32  # photos that are counted together: 1.5 ms a photo on one core, against 5.0 in batches of two


class PhotoCounter:
    """Count the objects in photos.

    ``detector`` is a SPEC of `tallybox count --detector` (``"picodet"``, ``"transformers:MODEL"``, ``"onnx:FILE"`` …)
    or any object with ``detect(photos)``. ``estimator`` is a `CountEstimator` fitted to this detector, or its file; by
    default the bundled one for PicoDet at 640 px. Any other detector without an estimator counts with the untrained
    presence counter, and its predictions are marked ``calibrated=False``. ``texts`` are the phrases that a zero-shot
    detector looks for. Threads may share a counter.

    ``tiles="auto"`` counts crowds in overlapping windows, and large photos (from 1,280 px, or twice the size of the
    photos that ``estimator`` was fitted to) if windows show clearly more than the whole photo; ``"off"`` never does,
    and a number is the side of the smallest windows in pixels of the photo.

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
        tiles: Tiles = "auto",
        *,
        texts: Sequence[str] = (),
    ) -> None:
        self.tiles, self.texts = check_tiles(tiles), tuple(texts)
        self.spec = detector if isinstance(detector, str) else None
        if isinstance(detector, str):
            detector = detector_of(detector, texts=texts, device=device)
        elif not callable(getattr(detector, "detect", None)):
            raise InputTypeError(f"detector must be a name or have a method detect; got {type(detector).__name__}")
        elif texts or device is not None:
            raise InputError("device and texts only apply to a detector given by name")
        self.detector = detector
        if isinstance(estimator, CountEstimator):
            self.estimator = estimator
        elif estimator is not None:
            self.estimator = CountEstimator.load(estimator)
        elif isinstance(self.detector, PicoDet) and self.detector.size == DEFAULT_SIZE:
            self.estimator = shipped_estimator()
        else:
            self.estimator = CountEstimator.untrained(categories_of(self.detector))
        if isinstance(self.detector, PicoDet) and self.detector.device != self.estimator.device:
            self.estimator = self.estimator.on(self.detector.device)
        if self.spec is not None:
            check_same_detector(self.estimator.fitted.detector, (self.spec, *self.texts))
        check_common_names(categories_of(self.detector), self.estimator.fitted.categories, self.spec or "the detector")

    def count(self, photo: PhotoSource, categories: Categories = None) -> dict[str, CountPrediction]:
        """Return how many objects of each category a photo shows, by the category's name.

        ``photo`` is anything that `read_photo` reads: a path, bytes, a binary file, a PIL image, an array ``[H, W, 3]``
        or a tensor ``[3, H, W]``. Without ``categories``, those with a probability above 10 % are listed; any other
        known name gives 0. With ``categories``, exactly these are counted.
        """
        counted = next(self.count_each([photo], categories))
        if counted.error is not None:
            raise counted.error
        return counted.counts

    def count_many(self, photos: Iterable[PhotoSource], categories: Categories = None) -> list[PhotoResult]:
        """Count in several photos, in order; a photo that cannot be read is an item with its ``error``."""
        return list(self.count_each(photos, categories))

    def count_each(
        self, photos: Iterable[PhotoSource], categories: Categories = None, *, keep_photos: bool = False
    ) -> Iterator[PhotoResult]:
        """Yield the items of `count_many` one by one, with only a few photos in memory.

        With ``keep_photos``, each item has its decoded ``photo``, and `draw` does not read it again.
        """
        is_photo = isinstance(photos, str | bytes | Path) or hasattr(photos, "read") or getattr(photos, "ndim", 1) == 3
        if is_photo or not isinstance(photos, Iterable):
            raise InputTypeError(f"count_many takes several photos; call count for one. Got {type(photos).__name__}")
        photos = map(buffered, photos)  # `_is_large` opens a photo first, and a file object can be read only once
        keep = keep_photos or self.tiles == "auto"  # a crowd is counted again, in windows
        found = detect_each(photos, self.detector, keep_photos=keep, leave=self._is_large)
        for batch in in_batches(found, BATCH):
            for counted in self._count_whole(batch, categories, keep_inputs=keep_photos):
                is_left = counted.detections is None and counted.error is None
                if is_left or self._is_crowded(counted):
                    yield self._count_in_windows(counted, categories, keep_photos)
                else:
                    yield counted if keep_photos else replace(counted, photo=None)

    def count_detected(self, photo: PhotoResult, categories: Categories = None) -> PhotoResult:
        """Return a photo with the counts of its detections, which may be those of an earlier run."""
        if photo.tiling is None or photo.detections is None:
            return next(self._count_whole([photo], categories))
        predictions, _ = count_blocks(self.estimator, photo.detections, photo.tiling.side, categories)
        return replace(photo, predictions=predictions)

    def _count_whole(
        self, batch: Sequence[PhotoResult], categories: Categories, *, keep_inputs: bool = False
    ) -> Iterator[PhotoResult]:
        """Yield detected photos with their counts; with ``keep_inputs``, `draw` computes nothing twice."""
        images = [photo.detections for photo in batch if photo.detections is not None]
        predictions = self.estimator.predict_each(images, categories, keep_inputs=keep_inputs)
        for photo in batch:
            if photo.detections is None:
                yield photo
            else:
                matched, predicted = next(predictions)
                yield replace(photo, detections=matched, predictions=predicted)

    def _is_large(self, photo: PhotoSource) -> bool:
        if self.tiles == "off":
            return False
        with suppress(Exception), opened(photo) as image:  # one that cannot be read is reported when it is read
            return self._window_side(image.size) > 0
        return False

    def _is_crowded(self, counted: PhotoResult) -> bool:
        """Return whether a photo that was counted as a whole should be counted again in windows."""
        if counted.photo is None or counted.detections is None:
            return False
        limit = CROWDED * self.estimator.fitted.config.max_objects
        is_crowded = any(prediction.count >= limit for prediction in counted.counts.values()) or (
            isinstance(self.detector, PicoDet) and uses_up(counted.detections, MAX_PER_CATEGORY)
        )
        return is_crowded and self._window_side(counted.photo.size_wh, crowded=True) > 0

    def _window_side(self, size_wh: Size, *, crowded: bool = False) -> int:
        return window_side(size_wh, self.tiles, fitted_side=self.estimator.fitted.longer_side, crowded=crowded)

    def _count_in_windows(self, counted: PhotoResult, categories: Categories, keep_photo: bool) -> PhotoResult:
        start, is_auto = perf_counter(), self.tiles == "auto"
        try:
            photo = _decoded(counted)
            side = self._window_side(photo.size_wh, crowded=True)
            side *= -(-photo.size_wh[0] // photo.image.width)  # a photo of more than 64 megapixels is reduced
            detections, side, windows = detect_in_windows(photo, side, self.detector, coarser=is_auto)
        except InputError as error:
            return PhotoResult(counted.source, error=error)
        (matched,) = self.estimator.matched([detections])
        tiling = Tiling(side, windows, round(perf_counter() - start, 2)) if side else None
        kept = photo if keep_photo else None
        return self.count_detected(PhotoResult(counted.source, matched, photo=kept, tiling=tiling), categories)

    def explain(self, photo: PhotoSource, categories: Categories = None) -> dict[str, CountExplanation]:
        """Return which boxes of a photo were counted and why, by the category's name; the photo is seen as a whole."""
        (detections,) = detect_photos([read_photo(photo)], self.detector)
        return self._by_name(self.estimator.explain(detections, categories))

    def draw(self, counted: PhotoResult, **options: Any) -> Image:
        """Return a counted photo with its objects outlined and, below it, the counts in words.

        ``options`` are those of `photos.outlines.draw_outlines`: ``all_boxes``, ``colours`` and ``with_caption``.
        """
        from tallybox.photos.outlines import MAX_SIDE, Outline, draw_outlines, outlines_of

        assert counted.detections is not None
        photo = _decoded(counted, reduced_to=MAX_SIDE)
        if counted.tiling is None:
            parts = [(counted.detections, self.estimator.explain(counted.detections, predictions=counted.predictions))]
        else:
            listed = list(counted.predictions or ())
            _, blocks = count_blocks(self.estimator, counted.detections, counted.tiling.side, listed)
            parts = [(block.in_photo(), self.estimator.explain(block.detections, listed)) for block in blocks]
        outlines: list[Outline] = []
        for detections, explanations in parts:
            outlines += outlines_of(detections, self._by_name(explanations), outlines)
        return draw_outlines(photo, outlines, counted.counts, **options)

    def _by_name(self, explanations: Mapping[int, CountExplanation]) -> dict[str, CountExplanation]:
        return {self.estimator.category_name(category_id): e for category_id, e in explanations.items()}


def _decoded(result: PhotoResult, reduced_to: int | None = None) -> Photo:
    """Return the photo of a result; it is read if it was not kept, or was decoded at a reduced size."""
    if result.photo is not None and result.photo.image.size == result.photo.size_wh:
        return result.photo
    assert result.source is not None
    return read_photo(result.source, reduced_to=reduced_to)
