"""Many photos through a detector, some at a time; a bad file is left out with its reason."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path

from tallybox.counter.cpu.threads import map_in_order
from tallybox.detections.container import Detections
from tallybox.errors import InputError
from tallybox.photos.detector import DarknetDetector, Detector
from tallybox.photos.images import Photo, read_photo

BATCH = 8  # photos detected together on a GPU, or by a detector of which nothing is known
PHOTOS_OF_A_THREAD = 2  # likewise on a CPU, where each thread reads and detects photos of its own

OnFailure = Callable[[Path, InputError], None]


def detect_in_batches(
    paths: Iterable[Path], detector: Detector, *, on_failure: OnFailure, batch: int = BATCH
) -> Iterator[list[Detections]]:
    """Yield the detections of photos some at a time, in order; ``on_failure`` hears of each that cannot be read.

    Memory is bounded whatever the number of photos.
    """
    if isinstance(detector, DarknetDetector) and detector.device.type == "cpu":
        yield from _detect_on_threads(paths, detector, on_failure, batch)
        return
    reduced_to = 2 * detector.size if isinstance(detector, DarknetDetector) else None
    remaining = iter(paths)
    with ThreadPoolExecutor(max_workers=min(batch, os.cpu_count() or 1)) as threads:
        ahead: deque[tuple[Path, Future[Photo]]] = deque()

        def read_ahead(number: int) -> None:
            for path in islice(remaining, number):
                ahead.append((path, threads.submit(read_photo, path, reduced_to=reduced_to)))

        read_ahead(2 * batch)
        while ahead:
            photos = []
            for _ in range(min(batch, len(ahead))):
                path, photo = ahead.popleft()
                try:
                    photos.append(photo.result())
                except InputError as error:
                    on_failure(path, error)
            read_ahead(batch)
            if photos:
                yield detector.detect(photos)


def _detect_on_threads(
    paths: Iterable[Path], detector: DarknetDetector, on_failure: OnFailure, batch: int
) -> Iterator[list[Detections]]:
    """Share photos out among threads: one photo's layers on two of them wait for each other at every layer."""

    def read_and_detect(some: list[Path]) -> tuple[list[Detections], list[tuple[Path, InputError]]]:
        photos, failures = [], []
        for path in some:
            try:
                photos.append(read_photo(path, reduced_to=2 * detector.size))
            except InputError as error:
                failures.append((path, error))
        return detector.detect(photos), failures

    remaining = iter(paths)
    shares = iter(lambda: list(islice(remaining, PHOTOS_OF_A_THREAD)), [])
    detected: list[Detections] = []
    for images, failures in map_in_order(read_and_detect, shares):
        for path, error in failures:
            on_failure(path, error)
        detected += images
        if len(detected) >= batch:
            yield detected
            detected = []
    if detected:
        yield detected
