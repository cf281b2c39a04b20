"""Detecting and counting in photos on many machines, with Ray.

Each task reads some photos, detects and counts in them, on a GPU where the cluster has one; each worker process loads
its detector once. The photos must lie where all machines see them under the same paths. A photo's boxes come back with
its counts (28 bytes a box, at most 5.6 kB a photo from PicoDet), since drawings and files of detections are made of
them. Only the photos of running and waiting tasks are held, whatever the number of paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, islice
from operator import length_hint
from pathlib import Path
from typing import NamedTuple

from tallybox.detections.container import Detections
from tallybox.errors import InputError, TallyboxError
from tallybox.estimator.estimator import CountEstimator
from tallybox.estimator.prediction import PredictionArrays
from tallybox.estimator.ray_tasks import TASKS_AHEAD, RayTasks, runs_on_gpu
from tallybox.photos.counter import CountedPhoto, PhotoCounter
from tallybox.photos.detector import Detector
from tallybox.photos.picodet import PicoDet
from tallybox.photos.reading import DetectedPhoto, detect_each
from tallybox.photos.specs import detector_of

# Four seconds on a core, and what is done again where a machine is lost. Fewer where that leaves cores without any.
MAX_PHOTOS_PER_TASK = 64
SPECS_OF_FILES = ("onnx", "transformers", "ultralytics")  # what may be a path after the colon


class _PhotoResults(NamedTuple):
    """What was detected in the photos of a task and, where asked for, counted in those that could be read."""

    detected: list[DetectedPhoto]
    predictions: list[tuple[list[list[int]], PredictionArrays]]


Tasks = RayTasks[list[str], _PhotoResults]


@dataclass
class _Shared:
    make_detector: Callable[..., Detector]  # takes device
    folder: Path  # that relative paths start from
    estimator: CountEstimator | None = None
    wanted: list[int] | None = None  # category ids

    @cached_property
    def detector(self) -> Detector:
        """The detector of this process."""
        return self.make_detector(device="cuda" if runs_on_gpu() else "cpu")


def count_each_with_ray(
    counter: PhotoCounter, paths: Iterable[str | Path], categories: Sequence[int | str] | None = None
) -> Iterator[CountedPhoto]:
    """Yield what `PhotoCounter.count_each` yields, in the same order, from many machines.

    Workers make PicoDet, and any detector that the counter has by name, themselves; another object is pickled.
    """
    estimator = counter.estimator
    wanted = None if categories is None else [estimator.category_id(category) for category in categories]
    shared = _Shared(_maker_of(counter), Path.cwd(), estimator, wanted)
    for result in _results(shared, paths):
        predictions = estimator.by_image(result.predictions)
        for photo in result.detected:
            if photo.detections is None:
                yield CountedPhoto(photo.path, error=photo.error)
            else:
                yield CountedPhoto(photo.path, photo.detections, next(predictions))


def detect_each_with_ray(spec: str, texts: Sequence[str], paths: Iterable[str | Path]) -> Iterator[DetectedPhoto]:
    """Yield what is detected in each photo, in order, from many machines; each worker makes its own detector."""
    shared = _Shared(_maker_of_spec(spec, texts), Path.cwd())
    for result in _results(shared, paths):
        yield from result.detected


def _maker_of(counter: PhotoCounter) -> Callable[..., Detector]:
    detector = counter.detector
    if counter.spec is not None:
        return _maker_of_spec(counter.spec, counter.texts)
    if type(detector) is PicoDet:  # a subclass may hold more than its size
        return partial(PicoDet, size=detector.size)
    return partial(_as_it_is, detector)


def _maker_of_spec(spec: str, texts: Sequence[str]) -> Callable[..., Detector]:
    kind, _, name = spec.partition(":")
    if kind in SPECS_OF_FILES and Path(name).exists():
        spec = f"{kind}:{Path(name).absolute()}"
    return partial(detector_of, spec, texts=tuple(texts))


def _as_it_is(detector: Detector, *, device: str) -> Detector:
    return detector


def _results(shared: _Shared, paths: Iterable[str | Path]) -> Iterator[_PhotoResults]:
    tasks: Tasks = RayTasks(_detect_photos, shared, use_gpus=True)
    number = length_hint(paths)
    photos_per_task = MAX_PHOTOS_PER_TASK
    if number:
        photos_per_task = min(photos_per_task, -(-number // (TASKS_AHEAD * tasks.at_once)))
    remaining = iter(paths)
    batches = iter(lambda: [str(path) for path in islice(remaining, photos_per_task)], [])
    yield from tasks.map_in_order(batches, partial(_retry_each, tasks))


def _detect_photos(paths: list[str], shared: _Shared) -> _PhotoResults:
    """Detect and count in the photos of a task, in a worker process."""
    absolute = [shared.folder / path for path in paths]
    detected = [
        _as_given(photo, Path(path))
        for photo, path in zip(chain.from_iterable(detect_each(absolute, shared.detector)), paths, strict=True)
    ]
    if shared.estimator is None:
        return _PhotoResults(detected, [])
    images = [photo.detections for photo in detected if photo.detections is not None]
    batches = shared.estimator.predict_batches(images, shared.wanted)
    return _PhotoResults(detected, [(category_ids, arrays) for _, category_ids, arrays in batches])


def _as_given(photo: DetectedPhoto, path: Path) -> DetectedPhoto:
    """Name a photo by the path that the user gave."""
    if photo.error is not None:
        if not photo.path.exists():
            problem = "must be a photo, but there is no such file; all machines must see it under this path"
            return DetectedPhoto(path, None, InputError(f"{photo.path} {problem}"))
        return DetectedPhoto(path, None, InputError(str(photo.error).replace(str(photo.path), str(path))))
    found = photo.detections
    if found is None or found.image_id != str(photo.path):  # a detector may name photos in its own way
        return replace(photo, path=path)
    named = Detections.of_checked(found.boxes, found.scores, found.category_ids, found.image_size, str(path))
    return DetectedPhoto(path, named)


def _retry_each(tasks: Tasks, paths: list[str], crash: TallyboxError) -> _PhotoResults:
    """Look at photos that crashed their workers in a task of its own each; one that does so again is an error."""
    if len(paths) == 1:
        error = InputError(f"{paths[0]} must be a photo that can be processed, but {crash}")
        return _PhotoResults([DetectedPhoto(Path(paths[0]), None, error)], [])
    each = list(tasks.map_in_order(([path] for path in paths), partial(_retry_each, tasks)))
    return _PhotoResults(
        [photo for result in each for photo in result.detected],
        [batch for result in each for batch in result.predictions],
    )
