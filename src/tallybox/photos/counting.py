"""Count in everything that paths name: photos, videos and files of detections, as `tallybox count` does.

Frames of videos, at regular times, are counted like photos (PyAV, the extra ``video``).
"""

import collections
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from tallybox import __version__
from tallybox.detections.categories import ClassNames
from tallybox.detections.detections import BoxFormat
from tallybox.detections.readers import read_detections
from tallybox.errors import InputError
from tallybox.estimator.estimator import Categories, CountEstimator
from tallybox.estimator.totals import Totals
from tallybox.files import import_optional, wrap_errors
from tallybox.photos.cache import Engine, file_state, resumed
from tallybox.photos.counter import PhotoCounter
from tallybox.photos.detector import DEFAULT_SPEC
from tallybox.photos.images import VideoFrame
from tallybox.photos.pipeline import OnProgress, PhotoResult
from tallybox.photos.shipped import shipped_estimator
from tallybox.photos.sources import find_sources
from tallybox.photos.tiles import Tiles, check_tiles

VIDEO_SUFFIXES = (".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm")
SECONDS_OF_UNIT = {"ms": 0.001, "s": 1.0, "min": 60.0, "": 1.0}


class PathCounter:
    """Counts in photos, folders of photos, patterns (``photos/*.jpg``), videos and files of detections.

    ``detector``, ``texts``, ``estimator`` and ``tiles`` are those of `PhotoCounter`, ``box_format`` and
    ``category_names`` those of `read_detections`. Of a video, a frame is counted ``every`` so often (``1s``,
    ``500ms``, ``2min``). With ``engine="ray"``, a cluster counts the photos. Paths and combinations of options are
    checked at once, but the detector and the estimator are loaded when they are needed.
    """

    def __init__(
        self,
        paths: Iterable[str | Path],
        *,
        detector: str | None = None,
        texts: Sequence[str] = (),
        estimator: Path | None = None,
        tiles: Tiles = "auto",
        every: str | None = None,
        engine: Engine | None = None,
        box_format: BoxFormat | None = None,
        category_names: ClassNames = None,
    ) -> None:
        self.skipped = collections.Counter[str]()  # files in folders that are not photos, by suffix
        self.sources = find_sources(paths, self.skipped)
        self.files = [source.path for source in self.sources if not source.is_photo]  # of detections
        self.videos = [source.path for source in self.sources if source.path.suffix.lower() in VIDEO_SUFFIXES]
        self.has_photos = len(self.files) < len(self.sources)
        self.spec, self.texts, self.tiles = detector or DEFAULT_SPEC, tuple(texts), check_tiles(tiles)
        self.engine, self.seconds = engine, parse_interval(every or "1s")
        self.box_format, self.category_names = box_format, category_names
        self._estimator = estimator
        if every and not self.videos:
            raise InputError("--every is for videos, but there is none among the paths")
        if (detector or texts) and not self.has_photos:
            raise InputError("--detector and --text are for photos, but there is none among the paths")
        if engine == "ray" and (self.files or self.videos):
            raise InputError("--engine ray is for photos, not for videos or files of detections")

    @cached_property
    def counter(self) -> PhotoCounter:
        """The counter of photos."""
        return PhotoCounter(self.spec, self._estimator, tiles=self.tiles, texts=self.texts)

    @cached_property
    def file_estimator(self) -> CountEstimator:
        """The estimator of files of detections: the bundled one, if none was given."""
        return shipped_estimator() if self._estimator is None else CountEstimator.load(self._estimator)

    @cached_property
    def expected_images(self) -> int:
        """About how many photos, frames and files there are."""
        return len(self.sources) + sum(expected_frames(path, self.seconds) - 1 for path in self.videos)

    def totals(self, categories: Categories = None) -> Totals:
        """Return totals, to which predictions can be added: of the photos, if there are any, else of the files."""
        return (self.counter.estimator if self.has_photos else self.file_estimator).totals(categories)

    def count(
        self,
        categories: Categories = None,
        *,
        folder: Path | None = None,
        keep_photos: bool = False,
        on_progress: OnProgress = lambda done, total: None,
    ) -> Iterator[PhotoResult]:
        """Yield the counts of each image, in order; one that cannot be read is an item with its ``error``.

        With a ``folder``, detections of photos (not of videos) are kept in it, and an interrupted run resumes. Delete
        it when you have saved the counts.
        """
        done = 0
        for is_photo, group in groupby(self.sources, key=lambda source: source.is_photo):
            paths = [source.path for source in group]
            parts: Iterable[Iterable[PhotoResult]] = (self._images(path, categories) for path in paths)
            if is_photo:
                parts = ([image] for image in self._photos(paths, categories, folder, keep_photos))
            for part in parts:
                yield from part
                done += 1
                on_progress(done, max(done, self.expected_images))

    def _images(self, path: Path, categories: Categories) -> Iterator[PhotoResult]:
        """Yield the images of a file of detections."""
        try:
            images = read_detections(path, box_format=self.box_format, category_names=self.category_names)
            for image, predictions in self.file_estimator.predict_each(images, categories):
                yield PhotoResult(None, image, predictions=predictions)
        except InputError as error:
            yield PhotoResult(path, error=error)

    def _photos(
        self, paths: list[Path], categories: Categories, folder: Path | None, keep_photos: bool
    ) -> Iterator[PhotoResult]:
        def count(paths: list[Path]) -> Iterator[PhotoResult]:
            if self.engine == "ray":
                from tallybox.photos.distributed import count_each_with_ray

                return count_each_with_ray(self.counter, paths, categories)
            frames = (read_frames(path, self.seconds) if path in self.videos else [path] for path in paths)
            return self.counter.count_each(chain.from_iterable(frames), categories, keep_photos=keep_photos)

        if folder is None or self.videos:
            yield from count(paths)
            return
        settings = {
            "detector": [self.spec, *self.texts],
            "estimator": None if self._estimator is None else file_state(self._estimator),
            "categories": categories,
            "tiles": self.tiles,
            "version": __version__,
        }
        by_id = {str(path).encode(errors="backslashreplace").decode(): path for path in paths}  # Parquet wants UTF-8
        for photo in resumed(by_id, folder, settings, count):
            is_counted = photo.detections is None or photo.predictions is not None
            yield photo if is_counted else self.counter.count_detected(photo, categories)


def parse_interval(text: str) -> float:
    """Return the seconds of a time such as ``1s``, ``500ms`` or ``2min``; a number alone is in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|min|)", text.strip())
    if match is None or float(match[1]) == 0:
        raise InputError(f"{text!r} is not an interval such as 1s, 500ms or 2min")
    return float(match[1]) * SECONDS_OF_UNIT[match[2]]


def read_frames(path: Path, every: float) -> Iterator[VideoFrame]:
    """Yield the first frame at or after each multiple of ``every`` seconds, upright."""
    with _opened(path) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        start = float((stream.start_time or 0) * stream.time_base)
        due = 0.0
        for frame in container.decode(stream):
            seconds = (frame.time or 0.0) - start
            if seconds + 1e-6 < due:
                continue
            image = frame.to_image()
            if rotation := getattr(frame, "rotation", 0):  # a phone that was held sideways
                image = image.rotate(rotation, expand=True)
            yield VideoFrame(path, round(seconds, 3), image)
            due = every * (math.floor(seconds / every + 1e-6) + 1)


def expected_frames(path: Path, every: float) -> int:
    """Return about how many frames `read_frames` yields; raise if the file is not a video."""
    with _opened(path) as container:
        duration = (container.duration or 0) / 1_000_000
    return max(1, math.ceil(duration / every))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    av = import_optional("av", needed_for=f"counting in the video {path}", install="'tallybox[video]'")
    with wrap_errors(f"Cannot read the video {path}", InputError), av.open(str(path)) as container:
        if not container.streams.video:
            raise InputError(f"{path} has no video stream")
        yield container
