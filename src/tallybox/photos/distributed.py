"""Detecting and counting in photos on many machines, with Ray.

Each task reads some photos, detects and counts in them, on a GPU where the cluster has one; each worker process loads
its detector once. All machines must see the photos under the same paths. A photo's boxes come back with its counts (28
bytes a box, at most 5.6 kB a photo from PicoDet), because drawings and files of detections need them. Only the photos
of running and waiting tasks are held, whatever the number of paths.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import chdir, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from operator import length_hint
from pathlib import Path
from typing import Any

from tallybox.concurrency import in_batches
from tallybox.errors import InputError, TallyboxError
from tallybox.estimator.estimator import Categories, CountEstimator
from tallybox.estimator.ray_tasks import TASKS_AHEAD, RayTasks, runs_on_gpu
from tallybox.photos.counter import CountedPhoto, PhotoCounter, count_detected
from tallybox.photos.detector import Detector, categories_of
from tallybox.photos.picodet import PicoDet
from tallybox.photos.pipeline import DetectedPhoto, detect_each
from tallybox.photos.specs import detector_of

# Four seconds on a core, and what is done again where a machine is lost. Fewer where that leaves cores without any.
MAX_PHOTOS_PER_TASK = 64
SPECS_OF_FILES = ("onnx", "transformers", "ultralytics")  # what may be a path after the colon


@dataclass
class _PhotoTask:
    """What all tasks share."""

    make_detector: Callable[..., Detector]  # takes device
    folder: Path  # that relative paths start from
    estimator: CountEstimator | None = None
    categories: Categories = None

    @cached_property
    def detector(self) -> Detector:
        """The detector of this process."""
        return self.make_detector(device="cuda" if runs_on_gpu() else "cpu")


def count_each_with_ray(
    counter: PhotoCounter, paths: Iterable[str | Path], categories: Categories = None
) -> Iterator[CountedPhoto]:
    """Yield what `PhotoCounter.count_each` yields, in the same order, from many machines.

    Workers make PicoDet, and any detector that the counter has by name, themselves; another object is pickled.
    """
    task = _PhotoTask(_detector_factory(counter), Path.cwd(), counter.estimator, categories)
    yield from _map_photos(RayTasks(task, use_gpus=True), _count_photos, paths)


def detect_each_with_ray(
    spec: str, texts: Sequence[str], paths: Iterable[str | Path]
) -> tuple[Mapping[int, str], Iterator[DetectedPhoto]]:
    """Return the names of a detector's categories, and what it detects in each photo, in order, from many machines.

    Each worker makes its own detector; none is made here.
    """
    tasks = RayTasks(_PhotoTask(_factory_of_spec(spec, texts), Path.cwd()), use_gpus=True)
    (categories,) = tasks.map_in_order(_categories, [None])
    return categories, _map_photos(tasks, _detect_photos, paths)


def _detector_factory(counter: PhotoCounter) -> Callable[..., Detector]:
    if counter.spec is not None:
        return _factory_of_spec(counter.spec, counter.texts)
    if type(counter.detector) is PicoDet:  # a subclass may hold more than its size
        return partial(PicoDet, size=counter.detector.size)
    detector = counter.detector
    return lambda device: detector


def _factory_of_spec(spec: str, texts: Sequence[str]) -> Callable[..., Detector]:
    kind, _, name = spec.partition(":")
    if kind in SPECS_OF_FILES and Path(name).exists():
        spec = f"{kind}:{Path(name).absolute()}"
    return partial(detector_of, spec, texts=tuple(texts))


def _map_photos(
    tasks: RayTasks, function: Callable[[list[Path], _PhotoTask], list[Any]], paths: Iterable[str | Path]
) -> Iterator[Any]:
    per_core = -(-length_hint(paths) // (TASKS_AHEAD * tasks.max_running()))
    batches = in_batches(map(Path, paths), min(MAX_PHOTOS_PER_TASK, per_core or MAX_PHOTOS_PER_TASK))

    def retry_each(batch: list[Path], crash: TallyboxError) -> list[Any]:
        """Process photos that crashed their worker in a task of its own each; one that does so again is an error."""
        if len(batch) == 1:
            error = InputError(f"{batch[0]} must be a photo that can be processed, but {crash}")
            return [CountedPhoto(batch[0], error=error)]
        return [*chain.from_iterable(tasks.map_in_order(function, ([path] for path in batch), retry_each))]

    yield from chain.from_iterable(tasks.map_in_order(function, batches, retry_each))


def _categories(_: None, task: _PhotoTask) -> dict[int, str]:
    return dict(categories_of(task.detector))  # COCO's cannot be pickled as they are


def _detect_photos(paths: list[Path], task: _PhotoTask) -> list[DetectedPhoto]:
    """Detect in the photos of a task, in a worker process, which runs in a folder of its own."""
    problem = "must be a photo, but there is no such file; all machines must see it under this path"
    detected = []
    with chdir(task.folder) if task.folder.is_dir() else nullcontext():
        for photo in detect_each(paths, task.detector):
            if photo.error is not None and not photo.path.exists():
                photo = DetectedPhoto(photo.path, error=InputError(f"{task.folder / photo.path} {problem}"))
            detected.append(photo)
    return detected


def _count_photos(paths: list[Path], task: _PhotoTask) -> list[CountedPhoto]:
    assert task.estimator is not None
    return list(count_detected(task.estimator, _detect_photos(paths, task), task.categories))
